"""Rates and budgets, under a simulated clock."""

from __future__ import annotations

import pytest

from iothub.engine.buckets import Meter

START = 5000.25


def accepted(meter: Meter, demand_per_s: float, seconds: float, units: int = 1, begin: float = START) -> list[float]:
    """Offer units at a steady pace; return the times at which they passed."""
    times = [begin + number / demand_per_s for number in range(int(demand_per_s * seconds))]
    return [time for time in times if meter.take(units, time) == 0.0]


def busiest(times: list[float], seconds: float) -> int:
    """Return the most that passed in any window of that length."""
    most = first = 0
    for last, time in enumerate(times):
        while times[first] <= time - seconds:
            first += 1
        most = max(most, last - first + 1)
    return most


@pytest.mark.parametrize("limit", [5, 10, 50, 500])
def test_rate_is_within_five_percent_over_ten_seconds_from_the_start(limit: int) -> None:
    """Driven at 1.5 times the limit, as a black box would see it."""
    times = accepted(Meter([(limit, 1.0)], START), limit * 1.5, 60)

    first = sum(1 for time in times if time < START + 10)
    assert 0.95 * limit * 10 <= first <= 1.05 * limit * 10
    assert busiest(times, 10.0) <= 1.05 * limit * 10 + 1
    assert len(times) >= 0.95 * limit * 60


@pytest.mark.parametrize("limit", [1, 2, 3, 5, 50, 1000])
def test_rate_is_kept_by_who_waits_and_comes_late(limit: int) -> None:
    """A paused publisher is woken up to two ticks late; what it may send does not shrink by that."""
    meter = Meter([(limit, 1.0)], START)
    now, passed = START, 0
    while now < START + 20:
        wait = meter.take(1, now)
        if wait > 0.0:
            now += wait + 0.19
        else:
            passed += 1

    assert 0.95 * limit * 20 <= passed <= 1.05 * limit * 20 + 1


def test_rate_after_idleness_is_no_bigger_burst() -> None:
    """Ten idle seconds are not saved up."""
    meter = Meter([(100, 1.0)], START)

    times = accepted(meter, 150, 10, begin=START + 1000)

    assert len(times) <= 105 * 10


def test_wait_is_exact() -> None:
    """Nothing is taken while waiting, and after the wait there is enough."""
    meter = Meter([(10, 1.0)], START)
    while meter.take(1, START) == 0.0:
        pass

    wait = meter.take(1, START)
    assert 0.0 < wait <= 0.1
    assert meter.take(1, START + wait / 2) == pytest.approx(wait / 2)
    assert meter.take(1, START + wait) == 0.0
    assert meter.take(1, START + wait) > 0.0


def test_minute_window_lets_its_burst_pass_and_no_more_in_any_minute() -> None:
    """10/1m is ten at once, if you like; then none until they are a minute old."""
    meter = Meter([(10, 60.0)], START)

    times = accepted(meter, 20, 600)

    assert times[:10] == [START + number / 20 for number in range(10)]
    assert times[10] >= START + 60
    assert busiest(times, 60.0) == 10
    assert len(times) >= 0.95 * 100


def test_minute_window_says_when_to_come_again() -> None:
    """At the earliest; a slot's length later than the spending at most."""
    meter = Meter([(10, 60.0)], START)
    for number in range(10):
        assert meter.take(1, START + number) == 0.0

    wait = meter.take(5, START + 10)

    assert START + 64 <= START + 10 + wait <= START + 64 + 2.4
    assert meter.take(5, START + 10 + wait) == 0.0


def test_several_windows_hold_at_once() -> None:
    """The short one shapes, the long one bounds; who is refused by one takes from none."""
    meter = Meter([(10, 1.0), (100, 60.0)], START)

    times = accepted(meter, 50, 120)

    assert busiest(times, 10.0) <= 105
    assert busiest(times, 60.0) <= 100
    assert 190 <= len(times) <= 200
    assert meter.wait(1, START + 120) > 1.0


def test_packet_bigger_than_the_limit_passes_and_is_paid_off() -> None:
    """It would never fit; it passes when the window is rested, and the average stays the limit."""
    for seconds in (1.0, 60.0):
        meter = Meter([(1000, seconds)], START)
        assert meter.take(3000, START) == 0.0
        assert meter.take(1, START + 0.1) > 0.0
        assert meter.take(1, START + 1.9 * seconds) > 0.0
        times = accepted(meter, 50 / seconds, 30 * seconds, units=3000, begin=START)

        assert 9 <= len(times) <= 10


def test_time_that_stands_still_or_goes_back_gives_nothing() -> None:
    """The clock is monotonic; if it is not, no harm is done."""
    for windows in ([(5, 1.0)], [(5, 60.0)]):
        meter = Meter(windows, START)
        while meter.take(1, START) == 0.0:
            pass

        assert meter.take(1, START - 100) > 0.0
        assert meter.take(1, START - 50) > 0.0


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_limit_of_zero_lets_nothing_pass(seconds: float) -> None:
    """Come again after a window: the limit may have changed."""
    meter = Meter([(0, seconds)], START)

    assert meter.take(1, START) == seconds
    assert meter.take(1, START + 1000) == seconds


def test_meter_without_windows_lets_everything_pass() -> None:
    """No limit is no limit."""
    assert Meter([], START).take(1 << 40, START) == 0.0


@pytest.mark.parametrize("seconds", [1.0, 60.0])
def test_changed_limits_keep_what_is_spent(seconds: float) -> None:
    """A quota that is set again and again is no source of bursts; a longer window keeps its debt too."""
    meter = Meter([(20, seconds)], START)
    passed = 0
    for step in range(1000):
        meter.set_windows([(20 + step % 2, seconds)], START + step / 1000)
        while meter.take(1, START + step / 1000) == 0.0:
            passed += 1

    assert passed <= 26


def test_changed_window_length_keeps_debt_and_a_new_one_begins_fresh() -> None:
    """From 1 s to 2 s the debt stays; a window of a minute that was not there knows nothing of the past."""
    meter = Meter([(100, 1.0)], START)
    assert meter.take(300, START) == 0.0

    meter.set_windows([(200, 2.0), (1000, 60.0)], START)

    assert meter.take(1, START) == pytest.approx(2.81)
    meter.set_windows([], START)
    assert meter.take(1, START) == 0.0


def test_lowered_budget_waits_until_enough_has_left_the_window() -> None:
    """What was spent under the old limit counts against the new one."""
    meter = Meter([(100, 60.0)], START)
    assert meter.take(100, START) == 0.0

    meter.set_windows([(10, 60.0)], START + 30)

    assert meter.take(1, START + 59) > 0.0
    assert meter.take(10, START + 62.5) == 0.0
    assert meter.take(1, START + 62.5) > 0.0
