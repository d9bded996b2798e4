"""Batches of calls over one connection that is made again when it is lost.

Knows neither a thread nor a pause: the caller decides when a lost server is tried again. Blocks; used by one thread at a time.

Theory: a batch is one pipeline, and its answers come in order. Nothing is ever sent twice: when the connection is lost, what had no answer fails as
"may be written", unless nothing of it was sent. A script is loaded on each connection before the first call of it; so calls of several scripts are
done in their order, and only a SCRIPT FLUSH in between can put one that must be repeated behind others.
A server that syncs before it answers does so once for a transaction, and for calls without one each time it has read 16 KiB of them.
Only scripts are in it: Redis looks at a command when it is queued, and one that it refuses would keep all from being done. While its memory is full
it queues nothing, not even a script that frees memory; what was not done together is done call by call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from iothub.base.clock import Clock
from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply, command
from iothub_services.redis.wire import AbortedRefusedError, NoScriptRefusedError, ReadOnlyRefusedError, Wire

_QUEUED = b"QUEUED"
_MULTI, _EXEC = command("MULTI"), command("EXEC")
_PATIENCE = 4.0  # time-outs that a batch may take, when every answer comes just in time


class LinkLostError(RedisUnavailableError):
    """The server does not answer, or refuses the login: the whole batch failed."""


class Connect(Protocol):
    """`Places.connect`."""

    def __call__(self) -> Wire: ...


class Link:
    """Invariant: a connection on which something went wrong is never used again.

    Args:
        timeout_s: How long the wire waits for one answer.
    """

    def __init__(self, connect: Connect, clock: Clock, timeout_s: float) -> None:
        self._connect = connect
        self._clock = clock
        self._longest_s = timeout_s * _PATIENCE
        self._wire: Wire | None = None
        self._known: set[str] = set()  # digests of scripts that the server has from this connection

    @property
    def is_open(self) -> bool:
        return self._wire is not None

    def exchange(self, calls: Sequence[Call], *, is_joining: bool = False) -> list[Reply]:
        """Return the answer to each, or its error, in their order.

        `is_joining`: the scripts that come first are one transaction, each with its own answer.

        Raises LinkLostError: None was answered. `is_written`: some may have been done.
        """
        if not calls:
            return []
        wire = self._opened()
        deadline = self._clock.monotonic() + self._longest_s
        try:
            loads = self._missing_scripts(calls)
            joined = _scripts_first(calls) if is_joining else 0
            if joined > 1:
                outcomes = self._together(wire, loads, calls, joined, deadline)
            else:
                outcomes = self._pipelined(wire, [*loads, *calls], deadline)[len(loads) :]
        except RedisRefusedError as error:  # something that cannot be put into bytes; nothing was sent
            return [error] if len(calls) == 1 else [self.exchange([call])[0] for call in calls]
        again = [place for place, outcome in enumerate(outcomes) if isinstance(outcome, NoScriptRefusedError)]
        if again and self._wire is not None:
            self._known.clear()
            repeated = self._pipelined(wire, [calls[place].spelled_out() for place in again], deadline)
            for place, outcome in zip(again, repeated, strict=True):
                outcomes[place] = outcome
        if any(isinstance(outcome, ReadOnlyRefusedError) for outcome in outcomes):
            self.close()  # the next batch looks for the master
        return outcomes

    def close(self) -> None:
        wire, self._wire = self._wire, None
        self._known.clear()
        if wire is not None:
            wire.close()

    def _opened(self) -> Wire:
        """Return a connection on which nothing has been said yet, or nothing is unanswered."""
        if self._wire is not None and not self._wire.is_usable():
            self.close()
        if self._wire is None:
            try:
                self._wire = self._connect()
            except RedisUnavailableError as error:
                raise LinkLostError(error.fact, remedy=error.remedy) from None
        return self._wire

    def _missing_scripts(self, calls: Sequence[Call]) -> list[Call]:
        """Return the calls that load what these need and the server may not have."""
        needed = {call.script.digest: call.script for call in calls if call.script is not None}
        missing = [script for digest, script in needed.items() if digest not in self._known]
        self._known.update(needed)
        return [command("SCRIPT", "LOAD", script.text) for script in missing]

    def _together(
        self, wire: Wire, loads: Sequence[Call], calls: Sequence[Call], joined: int, deadline: float
    ) -> list[Reply]:
        """Do so many calls as a transaction, or without one if Redis does nothing of it. Raises LinkLostError."""
        sent = [*loads, _MULTI, *calls[:joined], _EXEC, *calls[joined:]]
        outcomes = self._pipelined(wire, sent, deadline)[len(loads) :]
        if isinstance(outcomes[joined + 1], AbortedRefusedError) and self._wire is not None:
            return [*self._pipelined(wire, calls[:joined], deadline), *outcomes[joined + 2 :]]
        return _taken_apart(outcomes, joined)

    def _pipelined(self, wire: Wire, calls: Sequence[Call], deadline: float) -> list[Reply]:
        """Send all, read all. What has no answer when the connection is lost gets the error instead. Raises LinkLostError: nothing has one."""
        outcomes: list[Reply] = []
        try:
            wire.send(calls)
            while len(outcomes) < len(calls):
                outcomes += wire.read(len(calls) - len(outcomes))
                if self._clock.monotonic() > deadline and len(outcomes) < len(calls):
                    raise RedisUnavailableError("Redis answers too slowly", is_written=True)
        except RedisUnavailableError as error:
            self.close()
            if not outcomes:
                raise LinkLostError(error.fact, is_written=True, remedy=error.remedy) from None
            outcomes += [LinkLostError(str(error), is_written=True)] * (len(calls) - len(outcomes))
        return outcomes


def _scripts_first(calls: Sequence[Call]) -> int:
    """Return how many calls at the beginning are scripts."""
    count = 0
    while count < len(calls) and calls[count].script is not None:
        count += 1
    return count


def _taken_apart(outcomes: list[Reply], joined: int) -> list[Reply]:
    """Return what became of each call, of what MULTI, so many calls, EXEC and the rest were answered.

    A call that was done because MULTI was refused has its own answer.
    """
    queued, done, rest = outcomes[1 : joined + 1], outcomes[joined + 1], outcomes[joined + 2 :]
    answers = done if isinstance(done, list) else [done if each == _QUEUED else each for each in queued]
    return [*answers, *rest]


def is_lost(outcomes: Sequence[Reply]) -> bool:
    """Say whether the connection was lost on the way."""
    return bool(outcomes) and isinstance(outcomes[-1], LinkLostError)
