"""The timer wheel, with a time that the test gives."""

from __future__ import annotations

import gc
import math
import random
import weakref

import pytest

from iothub.engine.wheel import Wheel

START = 1234.5


class Item:
    """Something that can be watched."""


def test_item_is_due_at_its_deadline_and_not_before() -> None:
    """Never early, at most one tick late."""
    wheel = Wheel(START)
    wheel.schedule(START + 1.0, "a")
    wheel.schedule(START + 1.05, "b")

    assert wheel.advance(START + 0.95) == []
    assert wheel.advance(START + 1.0) == ["a"]
    assert wheel.advance(START + 1.04) == []
    assert wheel.advance(START + 1.1) == ["b"]
    assert wheel.advance(START + 9e9) == []


def test_items_come_in_the_order_of_their_deadlines() -> None:
    """Over all levels, whatever the order of scheduling, in one jump or in many steps."""
    deadlines = [START + 0.1 * 7**power for power in range(12)]
    shuffled = deadlines[:]
    random.Random(7).shuffle(shuffled)
    wheel = Wheel(START)
    for deadline in shuffled:
        wheel.schedule(deadline, deadline)

    assert wheel.advance(START + 100.0) == deadlines[:4]
    assert wheel.advance(START + 2**32) == deadlines[4:]


def test_past_deadline_is_due_at_the_next_advance() -> None:
    """Also when no tick has passed since."""
    wheel = Wheel(START)
    wheel.advance(START + 50)

    wheel.schedule(START + 10, "late")
    wheel.schedule(START + 50, "now")

    assert wheel.advance(START + 50) == ["late", "now"]


def test_cancelled_timer_never_fires() -> None:
    """Cancelling twice, or after the deadline, does nothing; others in the slot are not disturbed."""
    wheel = Wheel(START)
    timers = [wheel.schedule(START + 5, number) for number in range(10)]
    for number in (9, 0, 3, 3):
        wheel.cancel(timers[number])

    assert len(wheel) == 7
    assert not timers[3].is_pending()
    assert timers[4].is_pending()
    assert sorted(wheel.advance(START + 5)) == [1, 2, 4, 5, 6, 7, 8]
    wheel.cancel(timers[4])
    assert not timers[4].is_pending()
    assert len(wheel) == 0


def test_cancelled_timer_holds_its_item_no_longer() -> None:
    """Neither in the wheel nor in a handle that somebody kept."""
    wheel = Wheel(START)
    item = Item()
    watch = weakref.ref(item)
    timer = wheel.schedule(START + 3600, item)

    wheel.cancel(timer)
    del item
    gc.collect()

    assert watch() is None
    assert timer.item is None


def test_timer_moves_down_and_can_still_be_cancelled() -> None:
    """A deadline of an hour passes several levels."""
    wheel = Wheel(START)
    kept, gone = wheel.schedule(START + 3600, "kept"), wheel.schedule(START + 3600, "gone")

    assert wheel.advance(START + 3590) == []
    wheel.cancel(gone)
    assert kept.is_pending()
    assert wheel.advance(START + 3599.9) == []
    assert wheel.advance(START + 3600) == ["kept"]


def test_clock_that_goes_back_changes_nothing() -> None:
    """What is due later stays due at its time."""
    wheel = Wheel(START)
    wheel.schedule(START + 20, "x")
    wheel.advance(START + 10)

    assert wheel.advance(START - 1000) == []
    wheel.schedule(START + 15, "y")
    assert wheel.advance(START + 15) == ["y"]
    assert wheel.advance(START + 20) == ["x"]


@pytest.mark.parametrize("seconds", [2.0**32, 1e18, math.inf])
def test_deadline_far_away_is_kept(seconds: float) -> None:
    """A Session Expiry Interval of 0xFFFFFFFF and "never" are deadlines like any other."""
    wheel = Wheel(START)
    timer = wheel.schedule(START + seconds, "never")

    assert wheel.advance(START + 2.0**32 - 1) == []
    assert timer.is_pending()


def test_jump_of_hours_costs_only_what_is_scheduled() -> None:
    """A century is three billion ticks: going through them one by one would never end."""
    wheel = Wheel(START)
    for hour in range(1000):
        wheel.schedule(START + hour * 3600.0 + 1, hour)

    assert wheel.advance(START + 3.2e9) == list(range(1000))
    wheel.schedule(START + 3.2e9 + 0.2, "after")
    assert wheel.advance(START + 3.2e9 + 0.3) == ["after"]


def test_hundred_thousand_timers_come_and_go() -> None:
    """Scheduling and cancelling cost the same however many there are."""
    wheel = Wheel(START)
    timers = [wheel.schedule(START + 60, number) for number in range(100_000)]
    for timer in timers[::2]:
        wheel.cancel(timer)

    assert len(wheel) == 50_000
    assert len(wheel.advance(START + 61)) == 50_000
