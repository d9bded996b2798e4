"""Reading a stretch of the event log, page by page, whatever the driver.

Knows no fold: it yields events, and says which records are damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from iothub.records.events import Topic
from iothub_services.damaged import OnDamage
from iothub_services.events.port import DamagedEvent, EventLog, LoggedEvent, Offsets, raised, reached

STORE = "events"  # by which damaged records of the log are counted
PAGE = 1_000  # events per read


def read_between(
    log: EventLog,
    after: Offsets,
    upto: Offsets,
    on_damaged: Callable[[DamagedEvent], None],
    topic: Topic = Topic.SESSIONS,
) -> Iterator[LoggedEvent]:
    """Yield the events above `after` up to `upto`, an end that was captured before, and perhaps some that came since.

    A damaged event is passed over, once `on_damaged` has been called with it.
    """
    while any(reached(after, partition) < offset for partition, offset in enumerate(upto)):
        page = log.read(after, PAGE, topic)
        if not page:
            return
        yield from readable(page, on_damaged)
        after = behind(after, page)


def readable(
    page: Sequence[LoggedEvent | DamagedEvent], on_damaged: Callable[[DamagedEvent], None]
) -> list[LoggedEvent]:
    """Return the events of a page without those that are damaged, after `on_damaged` was called with each of these."""
    events = []
    for entry in page:
        if isinstance(entry, LoggedEvent):
            events.append(entry)
        else:
            on_damaged(entry)
    return events


def behind(after: Offsets, page: Sequence[LoggedEvent | DamagedEvent]) -> Offsets:
    """Return the place behind a page that was read after another place."""
    for partition, offset in {entry.partition: entry.offset for entry in page}.items():  # the last of each
        after = raised(after, partition, offset)
    return after


def counted_by(on_damage: OnDamage) -> Callable[[DamagedEvent], None]:
    """Return what counts damaged events of the log."""

    def count(damaged: DamagedEvent) -> None:
        on_damage(STORE, f"{damaged.partition}:{damaged.offset}", damaged.reason)

    return count
