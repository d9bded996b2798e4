"""The contract suite of the event-log port, as functions that take a fresh log.

Knows no driver: `tests/contract` runs `CASES` over all of them.
"""

# ruff: noqa: S101 - assertions are what a contract is made of

from __future__ import annotations

from collections.abc import Callable

from iothub.records.events import (
    Event,
    EventType,
    Subject,
    Topic,
    partition_of,
    session_discarded,
    session_subscribed,
)
from iothub_services.events.port import NOWHERE, DamagedEvent, EventLog, LoggedEvent, Offsets, raised, reached
from iothub_services.events.reading import read_between, readable

Case = Callable[[EventLog], None]


def event(number: int, client_id: str = "cl\u00e9/1") -> Event:
    """Return one event of the session log."""
    return session_discarded(Subject(7, client_id, 3, number), reason="why")


def sample(number: int) -> Event:
    """Return one event for analytics."""
    return Event(EventType.USAGE_COUNTED, 7, "", 0, number, {"messages": number})


def offsets_rise_and_events_come_back_whole(log: EventLog) -> None:
    """In the order in which they were appended; all of a key are in one partition."""
    rich = session_subscribed(
        Subject(7, "cl\u00e9/1", 9, 5),
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

    offsets = [logged.offset for logged in first + second]
    assert offsets == sorted(set(offsets))
    assert offsets[0] > 0
    assert log.read(NOWHERE, 10) == first + second
    assert [logged.event for logged in first + second] == [event(1), rich, event(3)]
    assert {logged.partition for logged in first + second} == {first[0].partition}
    assert reached(log.end(), first[0].partition) == offsets[-1]


def keys_keep_their_order_in_every_partition(log: EventLog) -> None:
    """Whatever was between them."""
    names = [f"client-{number}" for number in range(40)]
    log.append([event(number, name) for number in range(5) for name in names])

    found = everything(log)
    assert len(found) == 200
    for name in names:
        mine = [logged for logged in found if logged.event.client_id == name]
        assert [logged.event.at_ms for logged in mine] == list(range(5))
        assert {logged.partition for logged in mine} == {partition_of(f"7/{name}", len(log.end()))}
        assert [logged.offset for logged in mine] == sorted(logged.offset for logged in mine)


def read_goes_on_after_a_place_and_stops_at_count(log: EventLog) -> None:
    """An empty page is the end."""
    logged = log.append([event(number) for number in range(5)])

    assert log.read(place(logged[1]), 2) == logged[2:4]
    assert log.read(log.end(), 10) == []


def end_is_known_before_anything_is_read(log: EventLog) -> None:
    """Whoever starts captures it first, and reads up to it."""
    logged = log.append([event(number, f"client-{number}") for number in range(100)])
    end = log.end()
    log.append([event(101)])

    found = list(read_between(log, NOWHERE, end, refuse_damage))
    assert {each.event.client_id for each in found} >= {each.event.client_id for each in logged}
    assert all(reached(end, each.partition) >= each.offset for each in logged)


def topics_have_offsets_of_their_own(log: EventLog) -> None:
    """Analytics never delays the fold."""
    log.append([event(1), sample(1), event(2), sample(2), sample(3)])

    assert [logged.event for logged in page(log, NOWHERE, 9)] == [event(1), event(2)]
    assert [logged.event for logged in page(log, NOWHERE, 9, Topic.ANALYTICS)] == [sample(1), sample(2), sample(3)]


def trim_removes_the_beginning(log: EventLog) -> None:
    """`begin` is the place from which nothing is missing."""
    before = log.begin()
    logged = log.append([event(number) for number in range(4)])
    assert log.begin() == before

    assert log.trim(place(logged[1])) == 2
    assert log.trim(place(logged[1])) == 0
    assert reached(log.begin(), logged[0].partition) == logged[2].offset
    assert log.read(NOWHERE, 9) == logged[2:]


def offsets_go_on_after_everything_was_trimmed(log: EventLog) -> None:
    """Offsets never restart: an event with an offset that was used before would be taken for a folded one, and lost."""
    (last,) = log.append([event(1)])
    end = log.end()
    log.trim(end)

    assert (log.begin(), log.end()) == (tuple(offset + 1 for offset in end), end)
    assert log.append([event(2)])[0].offset > last.offset


def log_goes_on_above_what_was_lost(log: EventLog) -> None:
    """It goes on where its readers stand, without what it has below; going back is not possible."""
    log.append([event(1)])
    seen = tuple(500 for _ in log.end())
    above = log.after_loss(seen)
    log.skip_to(above)
    log.skip_to(tuple(3 for _ in seen))

    assert all(offset >= 500 for offset in above)
    assert log.end() == above
    assert log.begin() == tuple(offset + 1 for offset in above)
    (logged,) = log.append([event(2)])
    assert logged.offset == reached(above, logged.partition) + 1
    assert log.read(NOWHERE, 9) == [logged]


def states_of_another_log_are_no_obstacle(log: EventLog) -> None:
    """Whoever changes the driver keeps the sessions: the new log begins above all that they have seen."""
    above = log.after_loss((7, 500, 3, 1))

    assert len(above) == len(log.end())
    assert min(above) >= 500


def empty_log_begins_at_one(log: EventLog) -> None:
    """And has nothing."""
    assert all(offset == 1 for offset in log.begin())
    assert all(offset == 0 for offset in log.end())
    assert len(log.begin()) == len(log.end()) > 0
    assert (log.read(NOWHERE, 9), log.trim(tuple(99 for _ in log.end())), log.append([])) == ([], 0, [])


def everything(log: EventLog) -> list[LoggedEvent]:
    """Return all events of the session log."""
    return list(read_between(log, NOWHERE, log.end(), refuse_damage))


def refuse_damage(damaged: DamagedEvent) -> None:
    """Pass nothing over."""
    raise AssertionError(damaged.reason)


def page(log: EventLog, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
    """Read a page that has no damage."""
    return readable(log.read(after, count, topic), refuse_damage)


def place(logged: LoggedEvent) -> Offsets:
    """Return the place of an event in a log of which only its partition counts."""
    return raised(NOWHERE, logged.partition, logged.offset)


CASES: tuple[Case, ...] = (
    offsets_rise_and_events_come_back_whole,
    keys_keep_their_order_in_every_partition,
    read_goes_on_after_a_place_and_stops_at_count,
    end_is_known_before_anything_is_read,
    topics_have_offsets_of_their_own,
    trim_removes_the_beginning,
    offsets_go_on_after_everything_was_trimmed,
    log_goes_on_above_what_was_lost,
    states_of_another_log_are_no_obstacle,
    empty_log_begins_at_one,
)
