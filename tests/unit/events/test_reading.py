"""Reading a stretch of the log: pages, ends, damage."""

from __future__ import annotations

from iothub.records.events import Topic
from iothub.testing.event_contract import event, refuse_damage
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import NOWHERE, DamagedEvent, LoggedEvent, Offsets, raised, reached
from iothub_services.events.reading import PAGE, counted_by, read_between


class DamagedEvents(MemoryEvents):
    """Events 2 and 4 of partition 0 are damaged; a page has two."""

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent | DamagedEvent]:  # type: ignore[override]
        page = super().read(after, count, topic)[:2]
        return [DamagedEvent(0, each.offset, f"why {each.offset}") if each.offset in (2, 4) else each for each in page]


def test_reading_goes_over_many_pages() -> None:
    log = MemoryEvents(2)
    log.append([event(number, f"client-{number % 9}") for number in range(2 * PAGE + 7)])

    found = list(read_between(log, NOWHERE, log.end(), refuse_damage))

    assert len(found) == len({(each.partition, each.offset) for each in found}) == 2 * PAGE + 7


def test_reading_ends_where_the_log_does_although_more_was_wanted() -> None:
    """A log that lost its end answers with nothing."""
    log = MemoryEvents()
    log.append([event(1)])

    assert len(list(read_between(log, NOWHERE, (99,), refuse_damage))) == 1
    assert list(read_between(log, (1,), (1,), refuse_damage)) == []


def test_damaged_events_are_counted_and_passed_over() -> None:
    """Also the last one of a page, and of the log."""
    log = DamagedEvents()
    log.append([event(number) for number in range(4)])
    counted: list[tuple[str, str, str]] = []

    found = list(read_between(log, NOWHERE, log.end(), counted_by(lambda *record: counted.append(record))))

    assert [each.offset for each in found] == [1, 3]
    assert counted == [("events", "0:2", "why 2"), ("events", "0:4", "why 4")]


def test_offsets_that_are_missing_at_the_end_count_as_none() -> None:
    assert reached((5, 6), 1) == 6
    assert reached((5, 6), 2) == 0
    assert raised((), 2, 7) == (0, 0, 7)
    assert raised((5, 9), 1, 7) == (5, 9)
