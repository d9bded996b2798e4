"""Trimming events for statistics: by age, by number, never past a mark, a slice at a time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub.records.events import Event, EventType, Topic
from iothub.testing.clock import ManualClock
from iothub_services.events.retention import SLICE, TrimStatistics, trim_statistics
from iothub_services.events.sqlite.log import SCHEMA, SqliteEvents
from iothub_services.sqlite.database import open_database

FAR = 1 << 40


@pytest.fixture
def log(tmp_path: Path) -> Iterator[SqliteEvents]:
    opened = SqliteEvents(open_database(tmp_path / "events.db", SCHEMA, ManualClock(), lambda _name, _text: None))
    yield opened
    opened.close()


def counted(at_ms: int) -> Event:
    return Event(EventType.USAGE_COUNTED, 1, "", 0, at_ms)


def left(log: SqliteEvents) -> list[int]:
    return [logged.offset for logged in log.read((0,), 10_000, Topic.ANALYTICS)]


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        (TrimStatistics(3, FAR), [3, 4, 5]),
        (TrimStatistics(0, FAR), [1, 2, 3, 4, 5]),
        (TrimStatistics(99, FAR), []),
        (TrimStatistics(0, 2), [4, 5]),
        (TrimStatistics(5, 3), [5]),
        (TrimStatistics(99, 1, mark=2), [3, 4, 5]),
        (TrimStatistics(99, 1, mark=0), [1, 2, 3, 4, 5]),
        (TrimStatistics(2, FAR, mark=4), [2, 3, 4, 5]),
    ],
)
def test_old_and_surplus_events_go_up_to_the_mark(
    log: SqliteEvents, wanted: TrimStatistics, expected: list[int]
) -> None:
    """Event n happened at n ms and is at offset n."""
    log.append([counted(at_ms) for at_ms in range(1, 6)])

    gone = trim_statistics(log, wanted)

    assert left(log) == expected
    assert gone == 5 - len(expected)


def test_empty_log_is_left_alone(log: SqliteEvents) -> None:
    assert trim_statistics(log, TrimStatistics(99, 1)) == 0


def test_slice_is_all_that_goes_at_a_time(log: SqliteEvents) -> None:
    """The sessions' events wait no longer than that."""
    log.append([counted(1) for _ in range(SLICE + 5)])

    gone = [trim_statistics(log, TrimStatistics(99, FAR)) for _ in range(3)]

    assert gone == [SLICE, 5, 0]
    assert log.end(Topic.ANALYTICS) == (SLICE + 5,)


def test_damaged_event_goes_with_the_old_ones(log: SqliteEvents, tmp_path: Path) -> None:
    """Else the log would grow behind it for ever."""
    log.append([counted(at_ms) for at_ms in (1, 2, 3)])
    with log._database.transaction() as connection:
        connection.execute("UPDATE analytics_event SET value = ? WHERE offset IN (1, 2)", (b"{",))

    trim_statistics(log, TrimStatistics(3, FAR))

    assert left(log) == [3]


def test_sessions_events_are_not_touched(log: SqliteEvents) -> None:
    log.append([Event(EventType.SESSION_EXPIRED, 1, "c", 1, 1), counted(1)])

    trim_statistics(log, TrimStatistics(99, 0))

    assert len(log.read((0,), 10)) == 1
