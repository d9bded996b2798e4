"""Calls of the queues on their way to Redis, in parts of a bounded size.

Knows no key but one, and no script; whether an answer means that something is on the disk is `durability`'s.

Theory: what was not answered may be done, so its outcome is an error that says so; what was behind it was not sent, and says that it was not.
A refusal that concerns only one queue is an answer as any other: what is behind it is sent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from typing import TypeGuard

from iothub.base.errors import BackendError
from iothub_services.queues.damage import DamagedQueues, no_alarm
from iothub_services.queues.port import worst_of
from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply, command

Ask = Callable[[Sequence[Call]], list[Reply]]
"""Does a pipeline and returns the answer, or the error, to each. Raises BackendError: none was answered."""

GONE = b"gone"  # what a script answers for a queue that is not there

PART_BYTES = 1 << 20  # of one pipeline: Redis holds all answers until it is read, and a slow disk has its time for each
PART_CALLS = 512

_OF_ONE_QUEUE = re.compile(
    r"(?:Redis refused|@user_script:\d+): (?:DAMAGED|WRONGTYPE) |(?<!@)user_script:\d+: |The ID specified in XADD "
)
"""A script has found a damaged queue: it says so, or fails of it. What it is not allowed to do reads otherwise.

Redis 6 has a text of its own around what a script was refused.
"""


class Sender:
    """Sends for one thread at a time.

    Args:
        write: The connection of the writing thread.
        read: One for reads, which never wait for a commit.
        on_damaged: The alarm for queues whose own state is damaged.

    `has_failed`: something that passes was in the way of a write, so the server may be another one by now; whoever looks at it takes that back.
    `damage`: the queues that a call has found damaged.
    """

    def __init__(self, write: Ask, read: Ask, probe: bytes, on_damaged: Callable[[str, str], None] = no_alarm) -> None:
        self._write = write
        self._read = read
        self._probe = probe
        self.damage = DamagedQueues(on_damaged)
        self.has_failed = False

    def write(self, calls: Sequence[Call]) -> list[Reply]:
        """Return what became of each; nothing is raised but what is our own mistake."""
        outcomes: list[Reply] = []
        for part in _parts(calls):
            try:
                outcomes += self._write(part)
            except BackendError as error:
                outcomes += [error] * len(part)
            errors = [outcome for outcome in outcomes[-len(part) :] if isinstance(outcome, BackendError)]
            self.has_failed |= any(error.retryable for error in errors)
            last = outcomes[-1]
            if isinstance(last, BackendError) and not is_of_one_queue(last) and len(outcomes) < len(calls):
                why = RedisUnavailableError(str(last))
                return [*outcomes, *[why] * (len(calls) - len(outcomes))]
        return outcomes

    def read(self, calls: Sequence[Call]) -> list[Reply]:
        """Return all answers. Raises BackendError: nothing is written."""
        return looked(self.ask(calls))

    def ask(self, calls: Sequence[Call]) -> list[Reply]:
        """Return the answer to each, or what was in its way."""
        return [outcome for part in _parts(calls) for outcome in self._read(part)]

    def read_one(self, call: Call, queue_id: int = 0) -> Reply:
        """`queue_id`: whose the call is, if it is of one queue: see `of_queue`. Raises BackendError."""
        return looked([self.of_queue(queue_id, each) for each in self.ask((call,))])[0]

    def write_one(self, call: Call, queue_id: int = 0) -> Reply:
        """As `read_one`."""
        return require([self.of_queue(queue_id, each) for each in self.write((call,))])[0]

    def of_queue(self, queue_id: int, outcome: Reply) -> Reply:
        """Return what became of a queue's call; a damaged queue is gone."""
        if not queue_id or not is_of_one_queue(outcome):
            return outcome
        self.damaged(queue_id, outcome.fact.removeprefix("Redis refused: DAMAGED "))
        return GONE

    def damaged(self, queue_id: int, why: str) -> None:
        """The queue's own state is."""
        self.damage.found(queue_id, why)

    def probe(self) -> None:
        """Write something small. Raises BackendError: Redis takes no writes now."""
        require(self.write((command("SET", self._probe, 1),)))


def require(outcomes: Sequence[Reply]) -> list[Reply]:
    """Return all answers. Raises BackendError: of several errors one that will not pass by itself."""
    errors = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
    if not errors:
        return list(outcomes)
    raise worst_of(errors, is_written=len(errors) < len(outcomes) or any(error.is_written for error in errors))


def is_of_one_queue(outcome: Reply) -> TypeGuard[RedisRefusedError]:
    """Is it refused because of what its queue is? Another queue's call would be done."""
    return isinstance(outcome, RedisRefusedError) and _OF_ONE_QUEUE.search(outcome.fact) is not None


def looked(outcomes: Sequence[Reply]) -> list[Reply]:
    """As `require`; nothing is written."""
    try:
        return require(outcomes)
    except BackendError as error:
        error.is_written = False
        raise


def _parts(calls: Sequence[Call]) -> Iterator[list[Call]]:
    """Yield what one pipeline takes."""
    part: list[Call] = []
    size_bytes = 0
    for call in calls:
        size = call.size
        if part and (size_bytes + size > PART_BYTES or len(part) >= PART_CALLS):
            yield part
            part, size_bytes = [], 0
        part.append(call)
        size_bytes += size
    if part:
        yield part
