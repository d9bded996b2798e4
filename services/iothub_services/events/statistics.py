"""Writes events for statistics to a log on servers: with a thread and connections of their own, so that no session ever waits for them.

Knows no session and no figure. These events are not folded: one that was written twice is counted once by its number.

Theory: the topic may be deleted, full or forbidden while the session log is well. The counting code keeps, within bounds, what has no answer, so
nothing is kept here: each attempt uses new connections, and finds or creates the topic again, until the time for the operation is over. What the
old connections had without an answer is given up; it may still be written.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeAlias

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConflictError
from iothub.records.events import Event, Topic
from iothub_services.events.journal import answer_of
from iothub_services.events.port import LoggedEvent
from iothub_services.group_thread import CallInReactor, GroupThread, RetryPolicy

RETRIES = RetryPolicy(retry_s=1.0, give_up_s=30.0)

StatisticsThread: TypeAlias = GroupThread[list[Event], object]


class StatisticsLog(Protocol):
    """A log whose clients can be replaced."""

    def append(self, events: list[Event]) -> list[LoggedEvent]: ...

    def probe(self, topic: Topic = Topic.SESSIONS) -> None: ...

    def begin_again(self) -> None: ...

    def close(self) -> None: ...


class StatisticsWriter:
    """The work of the thread. Raises BackendError; the next attempt starts from the beginning."""

    def __init__(self, log: StatisticsLog) -> None:
        self._log = log

    def __call__(self, ops: list[list[Event]]) -> list[object]:
        self._try(lambda: self._log.append([event for events in ops for event in events]))
        return [None] * len(ops)

    def probe(self) -> None:
        """See that the topic is there and everything is answered."""
        self._try(lambda: self._log.probe(Topic.ANALYTICS))

    def idle(self) -> bool:
        """Find the topic, or create it, also while no events come. Returns that there is no more to do."""
        self.probe()
        return False

    def _try(self, do: Callable[[], object]) -> None:
        try:
            do()
        except ConflictError as error:  # the cluster refuses to make the topic: that is put right while the hub runs
            self._log.begin_again()
            raise BackendError(str(error), retryable=True) from error
        except BackendError as error:
            if error.retryable:
                self._log.begin_again()
            raise


class StatisticsJournal:
    """What the counting code sees of the thread. On the reactor thread."""

    def __init__(self, thread: StatisticsThread, on_event: Callable[[Event], None]) -> None:
        self._thread = thread
        self._on_event = on_event  # of plug-ins

    async def record(self, events: list[Event]) -> None:
        """Durable when it returns. Raises BackendError."""
        for event in events:
            self._on_event(event)
        await answer_of(lambda done: self._thread.submit(events, done))


def statistics_thread(
    log: StatisticsLog,
    call_in_reactor: CallInReactor,
    clock: Clock,
    on_alarm: Callable[[str, str], None],
    retry_policy: RetryPolicy = RETRIES,
) -> StatisticsThread:
    """Return the thread: submit lists of events; each is durable when it is answered."""
    writer = StatisticsWriter(log)
    return GroupThread(
        "statistics",
        writer,
        call_in_reactor,
        clock,
        retry_policy=retry_policy,
        idle=writer.idle,
        probe=writer.probe,
        on_alarm=on_alarm,
        consequence="statistics wait, and some are lost if this lasts; sessions go on",
    )
