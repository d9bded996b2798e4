"""Hubs with queues in one Redis of redis-py's making, in this process: calls can get lost on the way there and on the way back.

Knows what the driver asks of a connection; the real server is for `tests/services`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from typing import Any

import fakeredis
from redis import exceptions

from iothub.testing.clock import ManualClock
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply

PREFIX = "test"


class Fault(Enum):
    """What happens to one call."""

    NONE = auto()
    LOST_BEFORE = auto()  # the connection goes; neither this call nor those behind it are done
    LOST_AFTER = auto()  # this one is done; nobody hears of it, nor of those behind it, which are not done
    LATE = auto()  # all that was sent is done, but nobody hears of this one and those behind it
    FULL = auto()  # Redis is above maxmemory: it refuses this one


class RedisHarness:
    """One server. `settings`: what CONFIG GET says; `forbidden`: verbs that this user may not call."""

    def __init__(self) -> None:
        self.server = fakeredis.FakeServer(version=(7,))
        self.redis: Any = fakeredis.FakeRedis(server=self.server, protocol=2)
        self.redis.response_callbacks.clear()  # answers as they come
        self.clock = ManualClock()
        self.version = "7.0.15"
        self.settings = {
            "appendonly": "yes",
            "appendfsync": "always",
            "no-appendfsync-on-rewrite": "no",
            "maxmemory-policy": "noeviction",
        }
        self.forbidden: set[str] = set()
        self.calls: list[Call] = []
        self.fault: Callable[[Call], Fault] = lambda _: Fault.NONE
        self.lost: list[str] = []
        self.back: list[str] = []
        self.damaged: list[str] = []  # queues that are, as the alarm says it
        self.damaged_records: list[tuple[str, str, str]] = []
        self.closed = 0

    def store(self, incarnation: int = 1, *, is_memory_enough: bool = False) -> RedisQueues:
        """Return the queues of one hub."""
        return RedisQueues(
            self.ask,
            self.ask,
            PREFIX,
            incarnation,
            self.clock,
            is_memory_enough=is_memory_enough,
            on_lost=self.lost.append,
            on_back=self.back.append,
            on_damaged=lambda _, text: self.damaged.append(text),
            on_damaged_record=lambda *damaged, **_: self.damaged_records.append(damaged),
        )

    def run_many(self, calls: Sequence[Call]) -> list[Reply]:
        """As `iothub_services.redis.blocking.BlockingRedis`."""
        return self.ask(calls)

    def write_many(self, calls: Sequence[Call]) -> list[Reply]:
        return self.ask(calls)

    def close(self) -> None:
        self.closed += 1

    def ask(self, calls: Sequence[Call]) -> list[Reply]:
        """Do a pipeline."""
        outcomes: list[Reply] = []
        is_unheard = False
        for call in calls:
            fault = Fault.NONE if is_unheard else self.fault(call)
            if fault is Fault.FULL:
                outcomes.append(RedisUnavailableError("Redis refused: OOM command not allowed"))
                continue
            if fault is Fault.LOST_BEFORE:
                break
            self.calls.append(call)
            outcome = self._answer(call)
            if fault is Fault.LOST_AFTER:
                break
            is_unheard |= fault is Fault.LATE
            if not is_unheard:
                outcomes.append(outcome)
        return _unanswered(outcomes, len(calls))

    def _answer(self, call: Call) -> Reply:
        verb = str(call.arguments[0])
        if verb in self.forbidden:
            return RedisRefusedError(f"Redis refused: NOPERM this user has no permissions to run '{verb}'")
        if verb == "INFO":
            return f"# Server\r\nredis_version:{self.version}\r\n".encode()
        if verb == "CONFIG":
            name = str(call.arguments[2])
            return [name.encode(), self.settings[name].encode()]
        arguments = call.arguments if call.script is None else ("EVAL", call.script.text, *call.arguments[2:])
        try:
            answer: Reply = self.redis.execute_command(*arguments)
        except exceptions.ResponseError as error:
            return RedisRefusedError(f"Redis refused: {error}")
        return answer


def _unanswered(outcomes: list[Reply], count: int) -> list[Reply]:
    lost = RedisUnavailableError("Redis does not answer", is_written=True)
    return [*outcomes, *[lost] * (count - len(outcomes))]
