"""Queues that stand still: one alarm for each, told once, and over when the record is gone."""

from __future__ import annotations

from iothub.engine.state import Session, TenantPlane
from iothub.testing.clock import ManualClock
from iothub_services.queues.port import Unreadable
from iothub_services.queues.standing_still import AGAIN_S, MOST_NAMED, StandingStill

TENANT = TenantPlane(7, "acme")
FOUND = Unreadable(6, "version 7 is not known here")
WHOLE = Unreadable(0, "state of version 9")


class House:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.alarms: list[tuple[str, str]] = []
        self.still = StandingStill(self.clock, lambda word, text: self.alarms.append((word, text)))

    def words(self) -> list[str]:
        """Return the alarms since the last call, those that ended with a minus."""
        told, self.alarms[:] = [word if text else f"-{word}" for word, text in self.alarms], []
        return told


def session(queue_id: int, tenant: TenantPlane = TENANT) -> Session:
    return Session(tenant, f"meter-{queue_id}", "dev1", True, queue_id, 1)


def test_queue_that_stands_still_is_told_once_with_all_that_is_needed() -> None:
    house = House()
    house.still.stop(session(17), FOUND)
    house.still.stop(session(17), FOUND)

    ((word, text),) = house.alarms
    assert word == "queue_17_unreadable"
    for part in ("'meter-17'", "tenant acme", "position 6", "queue 17", FOUND.why, "queue purge acme"):
        assert part in text


def test_way_out_that_always_works_is_named() -> None:
    """A purge does not remove what lies behind the tail that a driver knows."""
    house = House()
    house.still.stop(session(17), FOUND)

    assert "session discard" in house.alarms[0][1]


def test_store_that_fails_is_not_told_as_a_record_that_cannot_be_read() -> None:
    """Nobody shall throw away what the next start would save."""
    house = House()
    house.still.stop(session(17), Unreadable(6, "queues.db: malformed"), is_store_failing=True)

    ((word, text),) = house.alarms
    assert word == "queue_17_unreadable"
    for part in ("'meter-17'", "tenant acme", "queue 17", "queues.db: malformed", "purge nothing", "next start"):
        assert part in text
    assert "iothub queue purge" not in text
    assert "Upgrade" not in text


def test_record_that_is_found_when_the_store_works_again_is_told() -> None:
    """At the same position: the advice is another one."""
    house = House()
    for is_store_failing in (True, True, False, False, True):
        house.still.stop(session(17), FOUND, is_store_failing=is_store_failing)

    assert house.words() == ["queue_17_unreadable", *["-queue_17_unreadable", "queue_17_unreadable"] * 2]


def test_queue_of_which_nothing_can_be_read_is_told_as_that() -> None:
    """A purge would be refused, and what comes is kept nowhere."""
    house = House()
    house.still.refused(session(17), WHOLE)
    house.still.refused(session(17), WHOLE._replace(why="in other words"))

    ((word, text),) = house.alarms
    assert word == "queue_17_unreadable"
    for part in ("'meter-17'", "tenant acme", "queue 17", WHOLE.why, "not acknowledged", "session discard acme"):
        assert part in text
    assert "iothub queue purge" not in text


def test_queue_of_which_nothing_can_be_read_is_looked_at_again_in_turn() -> None:
    """So many at once; those that stand still before a record are their readers' to look at."""
    house = House()
    for queue_id in (1, 2, 3, 5):
        house.still.refused(session(queue_id), WHOLE)
    house.still.refused(session(4), FOUND)

    assert [house.still.unread(3) for _ in range(3)] == [[1, 2, 3], [5, 1, 2], [3, 5, 1]]


def test_queue_that_refuses_and_stands_still_before_a_record_has_one_alarm() -> None:
    """A driver may not know what is behind the record; position and reader's position need not be the same."""
    house = House()
    house.still.stop(session(1), FOUND)
    house.still.refused(session(1), FOUND._replace(position=5))

    assert house.words() == ["queue_1_unreadable"]


def test_what_is_behind_is_asked_for_again_after_a_while() -> None:
    """Another hub may have purged the queue; what is before the record may be read at any time."""
    house = House()
    assert not house.still.holds(17, 5)
    house.still.stop(session(17), FOUND)

    assert [house.still.holds(17, after) for after in (4, 5, 6)] == [False, True, True]
    assert not house.still.holds(18, 5)
    house.clock.advance(AGAIN_S)
    assert not house.still.holds(17, 5)
    house.still.stop(session(17), FOUND)
    assert house.still.holds(17, 5)


def test_alarm_ends_when_the_record_was_passed_or_is_gone() -> None:
    house = House()
    for queue_id in (1, 2, 3, 5):
        house.still.stop(session(queue_id, TenantPlane(queue_id, "t")), FOUND)
    house.words()

    house.still.passed(1, 5, is_short=False)
    house.still.passed(4, 9, is_short=True)
    house.still.forget(4)
    assert house.words() == []
    house.still.passed(1, 6, is_short=False)
    house.still.forget(2)
    house.still.forget_tenant(3)
    house.still.passed(5, 5, is_short=True)

    assert house.words() == [f"-queue_{number}_unreadable" for number in (1, 2, 3, 5)]
    assert len(house.still) == 0


def test_another_record_of_the_queue_is_another_alarm() -> None:
    house = House()
    house.still.stop(session(1), FOUND)
    house.still.stop(session(1), FOUND._replace(position=9))

    assert house.words() == ["queue_1_unreadable", "-queue_1_unreadable", "queue_1_unreadable"]


def test_many_queues_share_an_alarm() -> None:
    """A hub that was downgraded has thousands: those beyond the bound have one together."""
    house = House()
    for queue_id in range(1, MOST_NAMED + 3):
        house.still.stop(session(queue_id), FOUND)

    assert house.words() == [f"queue_{number}_unreadable" for number in range(1, MOST_NAMED + 1)] + [
        "queues_unreadable"
    ]
    house.still.forget(MOST_NAMED + 1)
    assert house.words() == []
    house.still.forget(MOST_NAMED + 2)
    assert house.words() == ["-queues_unreadable"]
