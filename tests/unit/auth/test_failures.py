"""Bans that failures earn."""

from __future__ import annotations

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.auth.failures import FailureBan, Failures, FailureSettings, source_of

WHO = ("acme", "dev1", "192.0.2.1")


def test_ten_failures_in_a_minute_ban_for_fifteen() -> None:
    """Exactly the tenth bans; the ban ends."""
    clock = ManualClock()
    failures = Failures(FailureSettings(), clock)

    assert [failures.count(*WHO) for _ in range(10)] == [False] * 9 + [True]
    assert failures.is_banned(*WHO)
    assert failures.banned() == 1
    clock.advance(899.9)
    assert failures.is_banned(*WHO)
    clock.advance(0.1)
    assert not failures.is_banned(*WHO)


def test_ban_hits_the_source_alone() -> None:
    """Nobody can lock out another."""
    failures = Failures(FailureSettings(failures=1), ManualClock())
    failures.count(*WHO)

    assert not failures.is_banned("acme", "dev1", "192.0.2.2")
    assert not failures.is_banned("acme", "dev2", "192.0.2.1")
    assert not failures.is_banned("bmce", "dev1", "192.0.2.1")


def test_failures_spread_over_time_do_not_ban() -> None:
    """A window is a window."""
    clock = ManualClock()
    failures = Failures(FailureSettings(failures=3), clock)
    for _ in range(6):
        failures.count(*WHO)
        clock.advance(30.0)

    assert not failures.is_banned(*WHO)


def test_success_clears_the_count() -> None:
    """Typing errors of the past do not add up."""
    failures = Failures(FailureSettings(failures=2), ManualClock())
    failures.count(*WHO)
    failures.clear(*WHO)

    assert not failures.count(*WHO)


def test_failures_that_began_before_a_ban_do_not_lift_it() -> None:
    """A slow check that ends long after the window changes nothing."""
    clock = ManualClock()
    failures = Failures(FailureSettings(failures=2), clock)
    failures.count(*WHO)
    failures.count(*WHO)
    clock.advance(100.0)

    assert not failures.count(*WHO)
    assert failures.is_banned(*WHO)
    clock.advance(900.0)
    assert not failures.count(*WHO)
    assert failures.count(*WHO)


def test_memory_is_bounded() -> None:
    """Made-up names push out the longest untouched record, never more than the bound is kept."""
    failures = Failures(FailureSettings(entries=5), ManualClock())
    for number in range(100):
        failures.count("acme", f"dev{number}", "192.0.2.1")

    assert len(failures) == 5


@pytest.mark.parametrize(
    ("address", "source"),
    [
        ("192.0.2.1", "192.0.2.1"),
        ("::ffff:192.0.2.1", "192.0.2.1"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("unix", "unix"),
    ],
)
def test_source_is_what_one_host_has_to_itself(address: str, source: str) -> None:
    """An IPv6 host cannot evade by changing its address within its /64."""
    assert source_of(address) == source


def test_failures_of_a_deleted_device_are_forgotten() -> None:
    """From every address; another tenant's device of that name is another one."""
    failures = Failures(FailureSettings(failures=1), ManualClock())
    others = [("acme", "dev2", "192.0.2.1"), ("beta", "dev1", "192.0.2.1")]
    for who in (WHO, ("acme", "dev1", "192.0.2.9"), *others):
        failures.count(*who)

    failures.forget_devices("acme", {"dev1"})

    assert not failures.is_banned(*WHO)
    assert all(failures.is_banned(*who) for who in others)
    assert len(failures) == 2


def test_failures_of_a_deleted_tenant_are_not_its_successors() -> None:
    failures = Failures(FailureSettings(failures=1), ManualClock())
    failures.count(*WHO)
    failures.count("beta", "dev1", "192.0.2.1")
    failures.forget_tenant("acme")

    assert not failures.is_banned(*WHO)
    assert failures.is_banned("beta", "dev1", "192.0.2.1")


def test_bans_of_a_tenant_are_told_and_lifted() -> None:
    """By device and address; who only failed is not among them, and the count of who is let in again begins anew."""
    clock = ManualClock()
    failures = Failures(FailureSettings(failures=2, ban_s=900.0), clock)
    for device, address in (("dev2", "b"), ("dev1", "b"), ("dev1", "a")):
        failures.count("acme", device, address)
        failures.count("acme", device, address)
    failures.count("acme", "dev3", "a")
    failures.count("beta", "dev1", "a")
    clock.advance(100.0)

    assert failures.bans("acme") == [
        FailureBan("dev1", "a", 800.0),
        FailureBan("dev1", "b", 800.0),
        FailureBan("dev2", "b", 800.0),
    ]
    assert failures.lift("acme", "dev1", "b") == 1
    assert failures.lift("acme", "dev1") == 1
    assert failures.lift("acme", "dev3") == 0
    assert not failures.count("acme", "dev1", "a")
    assert [ban.device for ban in failures.bans("acme")] == ["dev2"]


def test_ban_is_over_when_its_time_has_passed() -> None:
    """At that very moment, in every answer, and the next failures are counted from nothing."""
    clock = ManualClock()
    failures = Failures(FailureSettings(failures=2, window_s=1000.0, ban_s=10.0), clock)
    failures.count(*WHO)
    failures.count(*WHO)
    assert failures.banned() == 1

    clock.advance(10.0)

    assert not failures.is_banned(*WHO)
    assert failures.bans("acme") == []
    assert failures.banned() == 0
    assert not failures.count(*WHO)
    assert failures.count(*WHO)


def test_settings_that_are_replaced_judge_the_next_failure() -> None:
    failures = Failures(FailureSettings(failures=10), ManualClock())
    failures.count(*WHO)

    failures.apply(FailureSettings(failures=2))

    assert failures.count(*WHO)


def test_ban_of_another_hub_is_kept_within_the_same_bound_and_shortens_none() -> None:
    failures = Failures(FailureSettings(failures=1, entries=2), ManualClock())
    failures.count(*WHO)
    failures.ban(*WHO, 1.0)
    [ban] = failures.bans(WHO[0])
    for number in range(3):
        failures.ban("acme", f"d{number}", "192.0.2.1", 10.0)

    assert (ban.left_s, len(failures)) == (900.0, 2)
