"""Rates of a tenant and of its devices."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.quota.names import Quota
from iothub_services.quota.rates import IDLE_DEVICES, RateRegistry, Rates, SlidingWindow
from iothub_services.quota.resolve import resolve_texts
from iothub_services.quota.usage import Usage, UsageStore


@dataclass
class Recorder:
    refusals: list[Quota] = field(default_factory=list)
    trials: list[Quota] = field(default_factory=list)

    def refused(self, tenant_id: int, quota: Quota) -> None:
        self.refusals.append(quota)

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        self.trials.append(quota)

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        raise AssertionError


class Harness:
    """The rates of one tenant with everything around them."""

    def __init__(self, path: Path) -> None:
        self.clock = ManualClock()
        self.recorder = Recorder()
        self.store = UsageStore(path / "usage.db", self.clock, lambda name, text: None)
        self.book = RateRegistry(1, Usage(self.store, self.clock), self.clock, self.recorder)

    def tenant(self, limits: str) -> Rates:
        self.book.tenant.set_limits(resolve_texts(limits))
        return self.book.tenant


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.store.close()


def test_window_passes_its_limit_at_once_and_then_no_more() -> None:
    """A fleet of fifty may connect at the same moment under 50/1s."""
    window = SlidingWindow(50, 1)
    passed = 0
    for _ in range(80):
        if window.wait(1, 100.0) == 0.0:
            window.spend(1, 100.0)
            passed += 1

    assert passed == 50
    assert 0.9 < window.wait(1, 100.0) <= 1.1
    assert window.wait(1, 100.0 + window.wait(1, 100.0)) == 0.0


@pytest.mark.parametrize("rate", [60, 75, 400])
def test_window_is_exact_within_five_per_cent(rate: int) -> None:
    """Never above the limit in any window, and at least 95 % of it under constant demand."""
    window = SlidingWindow(50, 1)
    passed: list[float] = []
    for number in range(rate * 20):
        now = 1000.0 + number / rate
        if window.wait(1, now) == 0.0:
            window.spend(1, now)
            passed.append(now)

    for at in range(1000, 1019):
        assert sum(at <= moment < at + 1.0 for moment in passed) <= 50
    settled = sum(1005.0 <= moment < 1015.0 for moment in passed)
    assert 475 <= settled <= 525


def test_window_forgets_what_is_old() -> None:
    """Memory is bounded by its slots."""
    window = SlidingWindow(1_000_000, 1)
    for number in range(10_000):
        window.wait(1, number / 100)
        window.spend(1, number / 100)

    assert len(window._spent) <= 52


def test_refusing_rate_tells_the_observer(harness: Harness) -> None:
    """Each refusal once; nothing is spent by it."""
    rates = harness.tenant("connects=2/1s,3/1m")

    assert [rates.take(Quota.CONNECTS) == 0.0 for _ in range(4)] == [True, True, False, False]
    assert harness.recorder.refusals == [Quota.CONNECTS] * 2
    harness.clock.advance(1.1)
    assert [rates.take(Quota.CONNECTS) == 0.0 for _ in range(4)] == [True, False, False, False]


def test_unlimited_rate_passes_everything(harness: Harness) -> None:
    """And nothing is kept for it."""
    rates = harness.tenant("")

    assert all(rates.take(Quota.CONNECTS) == 0.0 for _ in range(100))
    assert rates.meter(Quota.PUBLISH_MESSAGES) is None
    assert rates.day(Quota.PUBLISH_MESSAGES) is None
    assert rates.rate(Quota.PUBLISH_MESSAGES) is None


def test_refusing_rate_enforces_calendar_windows(harness: Harness) -> None:
    """-1.0: not before the window ends."""
    rates = harness.tenant("connects=2/1d")

    assert [rates.take(Quota.CONNECTS) for _ in range(3)] == [0.0, 0.0, -1.0]


def test_engine_gets_short_windows_and_calendar_windows_apart(harness: Harness) -> None:
    """As the plane has a place for each."""
    rates = harness.tenant("publish_messages=5/10s,9/1m,12/1d deliver_messages=5/1s publish_bytes=100/1h")

    meter = rates.meter(Quota.PUBLISH_MESSAGES)
    assert meter is not None
    now = harness.clock.monotonic()
    assert sum(meter.take(1, now) == 0.0 for _ in range(9)) < 9  # it knows 5/10s
    assert sum(meter.take(1, now + 100 + number) == 0.0 for number in range(0, 60, 3)) == 9  # and 9/1m
    assert rates.day(Quota.PUBLISH_MESSAGES) is not None
    assert rates.meter(Quota.PUBLISH_BYTES) is None
    assert rates.day(Quota.DELIVER_MESSAGES) is None


def test_whole_rate_takes_from_all_windows_or_from_none(harness: Harness) -> None:
    """For places of the engine that have room for one meter."""
    rates = harness.tenant("publish_messages=2/1m,3/1d deliver_messages=1/1s deliver_bytes=1/1d")
    rate = rates.rate(Quota.PUBLISH_MESSAGES)
    assert rate is not None

    now = harness.clock.monotonic()
    assert [rate.take(1, now) for _ in range(2)] == [0.0, 0.0]
    assert rate.take(1, now) > 0.0
    assert rate.take(1, now + 100) == 0.0
    assert rate.take(1, now + 100) == -1.0
    assert rates.rate(Quota.DELIVER_MESSAGES) is rates.meter(Quota.DELIVER_MESSAGES)
    assert rates.rate(Quota.DELIVER_BYTES) is rates.day(Quota.DELIVER_BYTES)


def test_changed_limits_are_no_new_allowance(harness: Harness) -> None:
    """Meters are the same objects; what is spent stays spent."""
    rates = harness.tenant("connects=2/1m publish_messages=10/1m")
    meter = rates.meter(Quota.PUBLISH_MESSAGES)
    assert meter is not None
    meter.take(10, harness.clock.monotonic())
    rates.take(Quota.CONNECTS, 2)

    harness.tenant("connects=3/1m publish_messages=12/1m")

    assert rates.meter(Quota.PUBLISH_MESSAGES) is meter
    assert [meter.take(1, harness.clock.monotonic()) == 0.0 for _ in range(3)] == [True, True, False]
    assert [rates.take(Quota.CONNECTS) == 0.0 for _ in range(2)] == [True, False]
    harness.tenant("")
    assert rates.meter(Quota.PUBLISH_MESSAGES) is None


def test_trial_is_only_told(harness: Harness) -> None:
    """Every unit that passes and would not have: by those who refuse, and by those who hold back."""
    rates = harness.tenant("connects=5/1s dry-run:connects=2/1s dry-run:publish_messages=100/1s")

    assert all(rates.take(Quota.CONNECTS) == 0.0 for _ in range(4))
    assert harness.recorder.trials == [Quota.CONNECTS] * 2
    assert rates.rate(Quota.DELIVER_MESSAGES) is None
    harness.recorder.trials.clear()
    assert pass_units(rates.meter(Quota.PUBLISH_MESSAGES), harness, 90) == 900
    assert not harness.recorder.trials
    assert pass_units(rates.meter(Quota.PUBLISH_MESSAGES), harness, 200) == 2000
    assert harness.recorder.trials.count(Quota.PUBLISH_MESSAGES) == pytest.approx(1000, rel=0.05)
    assert not harness.recorder.refusals


def test_trial_behind_an_enforced_rate_hears_what_passed(harness: Harness) -> None:
    """What the enforced limit held back is no news."""
    rates = harness.tenant("deliver_messages=50/1s,1000/1d dry-run:deliver_messages=20/1s")

    assert pass_units(rates.rate(Quota.DELIVER_MESSAGES), harness, 100) == pytest.approx(500, rel=0.05)
    assert harness.recorder.trials.count(Quota.DELIVER_MESSAGES) == pytest.approx(300, rel=0.07)


def pass_units(meter: object, harness: Harness, rate: int) -> int:
    """Ask for so many units a second, evenly, over ten seconds; returns how many passed."""
    passed = 0
    for _ in range(10 * rate):
        harness.clock.advance(1 / rate)
        passed += meter.take(1, harness.clock.monotonic()) == 0.0  # type: ignore[attr-defined]
    return passed


def test_sessions_of_a_device_share_its_rates(harness: Harness) -> None:
    """At the same time and one after the other: a reconnect is no new allowance."""
    limits = resolve_texts("device_publish_messages=5/1m publish_messages=1/1m")
    first = harness.book.join("dev1", limits)
    assert first is not None

    assert harness.book.join("dev1", limits) is first
    assert first.meter(Quota.PUBLISH_MESSAGES) is None
    harness.book.leave("dev1")
    harness.book.leave("dev1")
    assert harness.book.join("dev1", limits) is first
    assert harness.book.join("dev2", limits) is not first


def test_device_without_limits_costs_nothing(harness: Harness) -> None:
    """Most devices of most plans."""
    assert harness.book.join("dev1", resolve_texts("publish_messages=5/1s")) is None
    harness.book.leave("dev1")


def test_device_that_loses_its_limits_is_metered_no_more(harness: Harness) -> None:
    """`quota unset` is applied by the sessions that are there."""
    rates = harness.book.join("dev1", resolve_texts("device_publish_messages=5/1s"))
    assert rates is not None

    harness.book.leave("dev1")
    assert harness.book.join("dev1", resolve_texts("")) is None


def test_remembered_devices_are_bounded(harness: Harness) -> None:
    """The longest gone is forgotten first."""
    limits = resolve_texts("device_publish_messages=5/1m")
    first = harness.book.join("dev", limits)
    harness.book.leave("dev")
    for number in range(IDLE_DEVICES):
        harness.book.join(f"dev{number}", limits)
        harness.book.leave(f"dev{number}")

    assert harness.book.join("dev", limits) is not first


def test_deleted_device_leaves_nothing_to_another_one_of_its_name(harness: Harness) -> None:
    """What it has spent is gone; sessions that share rates now go on sharing them."""
    limits = resolve_texts("device_publish_messages=5/1m")
    first = harness.book.join("dev1", limits)
    harness.book.forget("dev1")
    assert harness.book.join("dev1", limits) is first
    harness.book.leave("dev1")
    harness.book.leave("dev1")

    harness.book.forget("dev1")

    assert harness.book.join("dev1", limits) is not first


def test_book_is_rested_when_a_new_one_would_allow_no_more(harness: Harness) -> None:
    """While nobody uses it: what has been spent of tenant and devices must be back."""
    harness.tenant("connects=5/2m publish_messages=5/1s")
    seen = [harness.book.is_idle]
    rates = harness.book.join("dev1", resolve_texts("device_publish_messages=5/1m"))
    assert rates is not None
    meter = rates.meter(Quota.DEVICE_PUBLISH_MESSAGES)
    assert meter is not None
    seen.append(harness.book.is_idle)
    meter.take(1, harness.clock.monotonic())
    harness.book.leave("dev1")
    seen.append(harness.book.is_idle)
    harness.book.tenant.take(Quota.CONNECTS)
    harness.clock.advance(65)
    seen.append(harness.book.is_idle)
    harness.clock.advance(60)
    seen.append(harness.book.is_idle)

    assert seen == [True, False, False, False, True]
