"""A tenant whom nobody uses is put away, but not what it has spent: disconnecting must not buy a new allowance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub_services.quota.names import Quota
from iothub_tenants.broker.allowance import Allowance
from tests.support.in_process.control_harness import Harness, device

TENANT = 7


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.close()


def visited(harness: Harness, limits: str) -> Allowance:
    """Give `acme` limits, let a client come and go, and return what the tenant may use."""
    harness.limit(limits)
    harness.join().disconnect()
    return harness.acme.allowance


def is_kept(harness: Harness, after_s: float) -> bool:
    """Whether `acme` is still there so much later, looked at as often as the hub does."""
    for _ in range(int(after_s // 60)):
        harness.pass_time(60)
        harness.hub.brokers.drop_idle()
    return harness.hub.brokers.present(TENANT) is not None


def test_tenant_without_rates_is_put_away_at_once(harness: Harness) -> None:
    """An idle tenant costs nothing."""
    visited(harness, "")

    assert harness.hub.brokers.drop_idle() == 1


def test_tenant_is_kept_until_its_connects_are_forgotten(harness: Harness) -> None:
    """Three in thirty minutes are three, whoever disconnects in between."""
    visited(harness, "connects=3/30m")
    harness.join().disconnect()
    harness.join().disconnect()

    assert is_kept(harness, 29 * 60)
    assert harness.ask().connack.code == 0x9F
    assert not is_kept(harness, 3 * 60)
    harness.join()


@pytest.mark.parametrize(("limits", "minutes"), [("publish_messages=20/5m", 5), ("publish_messages=9/1s,20/30m", 30)])
def test_tenant_is_kept_until_its_budget_is_whole_again(harness: Harness, limits: str, minutes: int) -> None:
    """And no longer: what is kept goes with the last unit's window."""
    meter = visited(harness, limits).rates.tenant.meter(Quota.PUBLISH_MESSAGES)
    assert meter is not None
    assert meter.take(1, harness.clock.monotonic()) == 0.0

    assert is_kept(harness, (minutes - 1) * 60)
    assert harness.acme.allowance.rates.tenant.meter(Quota.PUBLISH_MESSAGES) is meter
    assert not is_kept(harness, 3 * 60)


def test_tenant_is_kept_until_its_debt_is_paid(harness: Harness) -> None:
    """One message above the whole rate passes and is paid off: by the tenant that is there, and by the one that has gone."""
    meter = visited(harness, "publish_bytes=1KiB/1s").rates.tenant.meter(Quota.PUBLISH_BYTES)
    assert meter is not None
    assert meter.take(300 << 10, harness.clock.monotonic()) == 0.0

    assert is_kept(harness, 4 * 60)
    assert not is_kept(harness, 2 * 60)


def test_tenant_is_kept_while_a_device_has_spent(harness: Harness) -> None:
    """Devices share their tenant's fate."""
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", limits="device_publish_messages=5/10m"))
    client = harness.join()
    meters = harness.session("c").meters
    assert meters is not None
    assert meters.inbound_messages.take(5, harness.clock.monotonic()) == 0.0
    client.disconnect()

    assert is_kept(harness, 9 * 60)
    assert not is_kept(harness, 3 * 60)


@pytest.mark.parametrize("limits", ["dry-run:publish_messages=5/10m", "dry-run:connects=5/10m"])
def test_trial_is_remembered_too(harness: Harness, limits: str) -> None:
    """What it reports must be what the limit would have done."""
    rates = visited(harness, limits).rates.tenant
    meter = rates.meter(Quota.PUBLISH_MESSAGES)
    if meter is not None:
        meter.take(1, harness.clock.monotonic())

    assert is_kept(harness, 9 * 60)
    assert not is_kept(harness, 3 * 60)
