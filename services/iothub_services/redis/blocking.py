"""Redis for drivers that live in threads of their own: a batch is one pipeline, made in the caller's thread.

Knows no reactor. Several threads may share one; a batch waits until the one before it has its answers.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence

from iothub.base.clock import Clock
from iothub_services.redis.calls import (
    Argument,
    Call,
    RedisUnavailableError,
    Reply,
    command,
    single,
)
from iothub_services.redis.link import Link, LinkLostError, is_lost

FIRST_PAUSE_S = 0.05
LONGEST_PAUSE_S = 1.0


class Pauses:
    """How long to wait before a lost server is tried again: twice as long each time, at most a second, with jitter."""

    def __init__(self, uniform: Callable[[], float] = random.random) -> None:
        self._uniform = uniform
        self._next_s = FIRST_PAUSE_S

    def next_s(self) -> float:
        pause_s, self._next_s = self._next_s, min(self._next_s * 2, LONGEST_PAUSE_S)
        return pause_s * (0.75 + 0.25 * self._uniform())

    def reset(self) -> None:
        self._next_s = FIRST_PAUSE_S


class BlockingRedis:
    """Blocking calls, each for a few time-outs at most.

    Invariant: after a time-out calls fail at once, without a new wait for the same server, until the pause is over.
    """

    def __init__(self, link: Link, clock: Clock, pauses: Pauses | None = None) -> None:
        self._link = link
        self._clock = clock
        self._pauses = pauses or Pauses()
        self._lock = threading.Lock()
        self._asked_again_at = 0.0
        self._trouble = ""

    def run(self, *arguments: Argument) -> Reply:
        """Make one call. Raises BackendError."""
        return single(self.run_many([command(*arguments)])[0])

    def run_many(self, calls: Sequence[Call]) -> list[Reply]:
        """Make calls in one pipeline; return the answer or the error of each, in their order.

        Calls of others never come between, so MULTI, its commands and EXEC may be one batch.
        """
        return self._run(calls, is_joining=False)

    def write_many(self, calls: Sequence[Call]) -> list[Reply]:
        """As `run_many`. The scripts that come first are done together, and are on the disk together."""
        return self._run(calls, is_joining=True)

    def _run(self, calls: Sequence[Call], *, is_joining: bool) -> list[Reply]:
        with self._lock:
            if self._clock.monotonic() < self._asked_again_at:
                return [RedisUnavailableError(self._trouble)] * len(calls)
            try:
                outcomes = self._link.exchange(calls, is_joining=is_joining)
            except LinkLostError as error:
                self._leave_alone(error)
                return [error] * len(calls)
            if is_lost(outcomes):
                self._leave_alone(outcomes[-1])
            else:
                self._pauses.reset()
            return outcomes

    def close(self) -> None:
        with self._lock:
            self._link.close()

    def _leave_alone(self, trouble: Reply) -> None:
        self._trouble = str(trouble)
        self._asked_again_at = self._clock.monotonic() + self._pauses.next_s()
