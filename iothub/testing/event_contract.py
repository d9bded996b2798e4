"""The contract suite of the event-log port, as functions that take a fresh log.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub.records.events import Event, EventType, Subject, Topic, session_discarded, session_subscribed
from iothub_services.events.port import EventLog

Case = Callable[[EventLog], None]


def event(number: int, client_id: str = "cl\u00e9/1") -> Event:
    """Return one event of the session log."""
    return session_discarded(Subject(7, client_id, 3, number), reason="why")


def sample(number: int) -> Event:
    """Return one event for analytics."""
    return Event(EventType.USAGE_COUNTED, 7, "", 0, number, {"messages": number})


def offsets_rise_from_one_and_events_come_back_whole(log: EventLog) -> None:
    """In the order in which they were appended."""
    rich = session_subscribed(
        Subject(7, "c", 9, 5),
        topic_filter="a/+/#",
        group="g",
        qos=2,
        no_local=True,
        retain_as_published=False,
        retain_handling=1,
        identifier=268_435_455,
    )
    first = log.append([event(1), rich])
    second = log.append([event(3)])

    assert first < second
    assert [logged.offset for logged in log.read(0, 10)] == first + second
    assert [logged.event for logged in log.read(0, 10)] == [event(1), rich, event(3)]
    assert log.end() == second[-1]


def read_goes_on_after_an_offset_and_stops_at_count(log: EventLog) -> None:
    """An empty page is the end."""
    offsets = log.append([event(number) for number in range(5)])

    assert [logged.offset for logged in log.read(offsets[1], 2)] == offsets[2:4]
    assert log.read(offsets[-1], 10) == []


def topics_have_offsets_of_their_own(log: EventLog) -> None:
    """Analytics never delays the fold."""
    log.append([event(1), sample(1), event(2), sample(2), sample(3)])

    assert (log.end(), log.end(Topic.ANALYTICS)) == (2, 3)
    assert [logged.event for logged in log.read(0, 9, Topic.ANALYTICS)] == [sample(1), sample(2), sample(3)]


def trim_removes_the_beginning(log: EventLog) -> None:
    """`begin` is the offset from which nothing is missing."""
    offsets = log.append([event(number) for number in range(4)])
    assert log.begin() == 1

    assert log.trim(offsets[1]) == 2
    assert log.trim(offsets[1]) == 0
    assert log.begin() == offsets[2]
    assert [logged.offset for logged in log.read(0, 9)] == offsets[2:]


def offsets_go_on_after_everything_was_trimmed(log: EventLog) -> None:
    """They never begin again (!)."""
    (last,) = log.append([event(1)])
    log.trim(last)

    assert (log.begin(), log.end()) == (last + 1, last)
    assert log.append([event(2)])[0] > last


def offsets_that_were_skipped_are_not_given(log: EventLog) -> None:
    """A fresh log goes on where its consumers stand; going back is not possible."""
    log.append([event(1)])
    log.skip_to(500)
    log.skip_to(3)

    assert log.end() == 500
    assert log.append([event(2)]) == [501]


def empty_log_begins_at_one(log: EventLog) -> None:
    """And has nothing."""
    assert (log.begin(), log.end(), log.read(0, 9), log.trim(99), log.append([])) == (1, 0, [], 0, [])


def group_is_one_commit(log: EventLog) -> None:
    """Everything inside is there after it."""
    with log.group():
        log.append([event(1)])
        log.append([event(2)])

    assert len(log.read(0, 9)) == 2


CASES: tuple[Case, ...] = (
    offsets_rise_from_one_and_events_come_back_whole,
    read_goes_on_after_an_offset_and_stops_at_count,
    topics_have_offsets_of_their_own,
    trim_removes_the_beginning,
    offsets_go_on_after_everything_was_trimmed,
    offsets_that_were_skipped_are_not_given,
    empty_log_begins_at_one,
    group_is_one_commit,
)
