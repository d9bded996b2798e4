"""Rates and budgets under random arrivals: never above the bound, never starved."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.engine.buckets import Meter
from tests.support.night import by_day

START = 777.7


def most_in(times: list[tuple[float, int]], seconds: float) -> int:
    """Return the most units in any interval of that length."""
    most = total = first = 0
    for time, units in times:
        total += units
        while times[first][0] <= time - seconds:
            total -= times[first][1]
            first += 1
        most = max(most, total)
    return most


arrivals = st.lists(
    st.tuples(st.sampled_from([0.0, 0.001, 0.01, 0.05, 0.3, 2.0, 15.0]), st.integers(1, 40)), min_size=1, max_size=60
)


@settings(max_examples=by_day(75, 150), deadline=None)
@given(st.integers(1, 200), arrivals)
def test_rate_never_exceeds_its_bound_in_any_ten_seconds(limit: int, pattern: list[tuple[float, int]]) -> None:
    """Bursts and pauses in any order: at most 4 % and one message above ten seconds' worth, 2 % in the first ten."""
    meter = Meter([(limit, 1.0)], START)
    now = START
    passed: list[tuple[float, int]] = []
    for gap, count in pattern:
        now += gap
        passed += [(now, 1) for _ in range(count) if meter.take(1, now) == 0.0]

    assert most_in(passed, 10.0) <= 10.4 * limit + 1.001
    assert sum(units for time, units in passed if time < START + 10.0) <= max(10.2 * limit, 10 * limit + 1)


@settings(max_examples=by_day(50, 100), deadline=None)
@given(st.integers(100, 100_000), st.lists(st.integers(1, 400_000), min_size=1, max_size=60))
def test_byte_rate_is_kept_on_average_with_packets_of_any_size(limit: int, sizes: list[int]) -> None:
    """A packet that is bigger than the window's room passes, and what it took too much is paid off before the next."""
    meter = Meter([(limit, 1.0)], START)
    now, before_last = START, 0
    for size in sizes:
        wait = meter.take(size, now)
        while wait > 0.0:
            now += wait
            wait = meter.take(size, now)
        assert before_last <= limit * (now - START) + 0.4 * limit + 1
        before_last += size

    assert now - START <= before_last / limit + 1


@settings(max_examples=25, deadline=None)
@given(st.integers(1, 200), st.lists(st.floats(0.0, 0.2), min_size=1, max_size=50))
def test_demand_above_the_rate_gets_the_rate(limit: int, late: list[float]) -> None:
    """Who waits and comes back up to 0.2 s late gets at least 95 % of it, whatever the pattern of arrivals."""
    meter = Meter([(limit, 1.0)], START)
    now, passed, waits = START, 0, 0
    while now < START + 20.0:
        wait = meter.take(1, now)
        if wait == 0.0:
            passed += 1
        else:
            now += wait + late[waits % len(late)]
            waits += 1

    assert passed >= 0.95 * 20 * limit - 1


@settings(max_examples=by_day(75, 150), deadline=None)
@given(st.integers(1, 50), arrivals, st.sampled_from([60.0, 600.0]))
def test_budget_is_never_exceeded_in_any_window(limit: int, pattern: list[tuple[float, int]], seconds: float) -> None:
    """Not by one unit, wherever the window is laid."""
    meter = Meter([(limit, seconds)], START)
    now = START
    passed: list[tuple[float, int]] = []
    for gap, count in pattern:
        now += gap * seconds / 20
        passed += [(now, 1) for _ in range(count) if meter.take(1, now) == 0.0]

    assert most_in(passed, seconds) <= limit
    assert sum(units for _, units in passed) >= min(limit, sum(count for _, count in pattern))


@settings(max_examples=by_day(50, 100), deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 300), st.sampled_from([1.0, 2.0, 60.0])), max_size=3),
    st.lists(st.tuples(st.floats(0, 5), st.integers(0, 500)), max_size=40),
)
def test_take_takes_all_or_nothing_and_the_wait_is_positive(
    windows: list[tuple[int, float]], pattern: list[tuple[float, int]]
) -> None:
    """`wait` foretells `take`; a refused `take` changes nothing."""
    meter = Meter(windows, START)
    now = START
    for gap, units in pattern:
        now += gap
        expected = meter.wait(units, now)
        first = meter.take(units, now)
        assert first == expected >= 0.0
        if first > 0.0:
            assert meter.take(units, now) == pytest.approx(first)
