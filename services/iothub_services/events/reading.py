"""Reading a stretch of the event log, page by page, whatever the driver.

Knows no fold: it yields events and says which were damaged.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from iothub.records.events import Topic
from iothub_services.events.port import DamagedEventError, EventLog, LoggedEvent, Offsets, raised, reached

PAGE = 1_000  # events per read


def read_between(
    log: EventLog,
    after: Offsets,
    upto: Offsets,
    on_damage: Callable[[DamagedEventError], None],
    topic: Topic = Topic.SESSIONS,
) -> Iterator[LoggedEvent]:
    """Yield the events above `after` up to `upto`, an end that was captured before, and perhaps some that came since.

    `on_damage` hears of every damaged event, which is left out; or it raises. Raises FutureEventError.
    """
    while any(reached(after, partition) < offset for partition, offset in enumerate(upto)):
        try:
            page = log.read(after, PAGE, topic)
        except DamagedEventError as error:
            on_damage(error)
            after = raised(after, error.partition, error.offset)
            continue
        if not page:
            return
        yield from page
        for partition, offset in {logged.partition: logged.offset for logged in page}.items():  # the last of each
            after = raised(after, partition, offset)


def refuse_damage(error: DamagedEventError) -> None:
    """Leave nothing out: raise."""
    raise error
