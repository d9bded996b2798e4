"""Reading a stretch of the log: pages, ends, damage."""

from __future__ import annotations

import pytest

from iothub.records.events import Topic
from iothub.testing.event_contract import event
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import NOWHERE, DamagedEventError, LoggedEvent, Offsets, raised, reached
from iothub_services.events.reading import PAGE, read_between, refuse_damage


class DamagedEvents(MemoryEvents):
    """Event 2 of partition 0 cannot be read."""

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        page = super().read(after, count, topic)
        if page and (page[0].partition, page[0].offset) == (0, 2):
            raise DamagedEventError("damaged", partition=0, offset=2)
        return page[:1]


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


def test_damaged_event_is_told_and_left_out() -> None:
    log = DamagedEvents()
    log.append([event(number) for number in range(4)])
    told: list[DamagedEventError] = []

    found = list(read_between(log, NOWHERE, log.end(), told.append))

    assert [each.offset for each in found] == [1, 3, 4]
    assert [error.offset for error in told] == [2]


def test_reader_may_refuse_damage() -> None:
    log = DamagedEvents()
    log.append([event(number) for number in range(4)])

    with pytest.raises(DamagedEventError, match="damaged"):
        list(read_between(log, NOWHERE, log.end(), refuse_damage))


def test_offsets_that_are_missing_at_the_end_count_as_none() -> None:
    assert reached((5, 6), 1) == 6
    assert reached((5, 6), 2) == 0
    assert raised((), 2, 7) == (0, 0, 7)
    assert raised((5, 9), 1, 7) == (5, 9)
