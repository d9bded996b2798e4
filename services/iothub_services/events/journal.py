"""The event log as the session manager sees it: events in the order of the calls, durable when awaited, folded into the state store.

Knows no session and no driver: it hands lists of events to the thread of the log.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub.records.events import Event
from iothub_services.events.port import Offsets
from iothub_services.events.retention import TrimStatistics
from iothub_services.group_thread import FOREVER_S

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]
"""`later(seconds, call)`: the reactor's `callLater`."""

GATHER_S = 0.05  # a note waits so long for others: one wake-up and one commit for all of them
GATHER = 512  # or until there are this many
_EVENT_BYTES = 512  # what an event takes in memory, a Will's payload apart


class EventThread(Protocol):
    """The log's thread (`iothub_services.group_thread.GroupThread`)."""

    @property
    def is_full(self) -> bool: ...

    def submit(
        self,
        op: list[Event] | TrimStatistics,
        callback: Callable[[object], None],
        size_bytes: int = 0,
        give_up_s: float | None = None,
    ) -> None: ...


def answer_of(submit: Callable[[Callable[[object], None]], None]) -> Deferred[object]:
    """Fire with what a thread answers to the one operation that `submit` gives it; an exception is a failure."""
    answer: Deferred[object] = Deferred()

    def done(result: object) -> None:
        if isinstance(result, Exception):
            answer.errback(result)
        else:
            answer.callback(result)

    submit(done)
    return answer


class ThreadJournal:
    """Fulfils `iothub_services.sessions.port.Journal` over a thread. On the reactor thread.

    Invariant: an event with an epoch (a persistent session's) is never dropped while the hub runs: it waits for the log in its place, however long
    that takes. Other events are dropped when the log is too far behind, and counted in `lost`.
    """

    def __init__(
        self,
        thread: EventThread,
        on_event: Callable[[Event], None] | None = None,
        later: Later | None = None,
        signature: Callable[[], str] = lambda: "",
    ) -> None:
        """`signature`: what persistent sessions' events are signed with, where several hubs write the log; else empty."""
        self._thread = thread
        self._on_event = on_event  # of plug-ins
        self._later = later  # None: notes are not gathered
        self._gathered: list[Event] = []
        self._signature = signature
        self.lost = 0

    async def record(self, events: list[Event]) -> Offsets | None:
        """Fulfils `Journal`. Raises BackendError; what was given up is not in the log, unless the error's `is_written` says so."""
        self.flush()  # the order of the calls is the order of the log
        self._notify(events)
        place = await answer_of(lambda done: self._thread.submit(self._signed(events), done, _size(events)))
        return place if isinstance(place, tuple) else None

    async def trim(self, wanted: TrimStatistics) -> int:
        """Remove a slice of the events for statistics; returns how many went. Raises BackendError."""
        gone = await answer_of(lambda done: self._thread.submit(wanted, done))
        return gone if isinstance(gone, int) else 0

    def note(self, events: list[Event]) -> None:
        """Durable soon."""
        self._notify(events)
        gathered = self._gathered
        if not gathered and self._later is not None:
            self._later(GATHER_S, self.flush)
        gathered += self._signed(events)
        if len(gathered) >= GATHER or self._later is None:
            self.flush()

    def flush(self) -> None:
        """Hand over what was gathered."""
        events = self._gathered
        if not events:
            return
        self._gathered = []
        if self._thread.is_full:
            needed = [event for event in events if event.epoch]
            if len(needed) < len(events):
                self._lose(len(events) - len(needed), "the log is too far behind")
            events = needed
        if not events:
            return
        try:
            self._thread.submit(events, lambda result: self._noted(result, len(events)), _size(events), FOREVER_S)
        except BackendError as error:  # the hub ends
            self._lose(len(events), str(error))

    def _signed(self, events: list[Event]) -> list[Event]:
        hub = self._signature()
        return [event.written_by(hub) if event.epoch else event for event in events] if hub else events

    def _notify(self, events: list[Event]) -> None:
        if self._on_event is not None:
            for event in events:
                self._on_event(event)

    def _noted(self, result: object, count: int) -> None:
        if isinstance(result, Exception):
            self._lose(count, str(result))

    def _lose(self, count: int, why: str) -> None:
        self.lost += count
        log.warning("session events not written to the log", count=count, cause=why)


def _size(events: list[Event]) -> int:
    return sum([_EVENT_BYTES + len(str(event.facts.get("payload", ""))) for event in events])
