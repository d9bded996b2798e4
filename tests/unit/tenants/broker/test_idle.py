"""A tenant whom nobody uses is put away, but not what it has spent: disconnecting must not buy a new allowance."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from iothub_services.quota.names import Quota
from iothub_tenants.broker.allowance import Allowance
from tests.support.control_house import House, device

TENANT = 7


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


def visited(house: House, limits: str) -> Allowance:
    """Give `acme` limits, let a client come and go, and return what the tenant may use."""
    house.limit(limits)
    house.join().disconnect()
    return house.acme.allowance


def is_kept(house: House, after_s: float) -> bool:
    """Whether `acme` is still there so much later, looked at as often as the hub does."""
    for _ in range(int(after_s // 60)):
        house.pass_time(60)
        house.hub.brokers.drop_idle()
    return house.hub.brokers.present(TENANT) is not None


def test_tenant_without_rates_is_put_away_at_once(house: House) -> None:
    """An idle tenant costs nothing."""
    visited(house, "")

    assert house.hub.brokers.drop_idle() == 1


def test_tenant_is_kept_until_its_connects_are_forgotten(house: House) -> None:
    """Three in thirty minutes are three, whoever disconnects in between."""
    visited(house, "connects=3/30m")
    house.join().disconnect()
    house.join().disconnect()

    assert is_kept(house, 29 * 60)
    assert house.ask().connack.code == 0x9F
    assert not is_kept(house, 3 * 60)
    house.join()


@pytest.mark.parametrize(("limits", "minutes"), [("publish_messages=20/5m", 5), ("publish_messages=9/1s,20/30m", 30)])
def test_tenant_is_kept_until_its_budget_is_whole_again(house: House, limits: str, minutes: int) -> None:
    """And no longer: what is kept goes with the last unit's window."""
    meter = visited(house, limits).rates.tenant.meter(Quota.PUBLISH_MESSAGES)
    assert meter is not None
    assert meter.take(1, house.clock.monotonic()) == 0.0

    assert is_kept(house, (minutes - 1) * 60)
    assert house.acme.allowance.rates.tenant.meter(Quota.PUBLISH_MESSAGES) is meter
    assert not is_kept(house, 3 * 60)


def test_tenant_is_kept_until_its_debt_is_paid(house: House) -> None:
    """One message above the whole rate passes and is paid off: by the tenant that is there, and by the one that has gone."""
    meter = visited(house, "publish_bytes=1KiB/1s").rates.tenant.meter(Quota.PUBLISH_BYTES)
    assert meter is not None
    assert meter.take(300 << 10, house.clock.monotonic()) == 0.0

    assert is_kept(house, 4 * 60)
    assert not is_kept(house, 2 * 60)


def test_tenant_is_kept_while_a_device_has_spent(house: House) -> None:
    """Devices share their tenant's fate."""
    house.accounts.add(house.accounts.tenants["acme"], device("dev1", limits="device_publish_messages=5/10m"))
    guest = house.join()
    meters = house.session("c").meters
    assert meters is not None
    assert meters.inbound_messages.take(5, house.clock.monotonic()) == 0.0
    guest.disconnect()

    assert is_kept(house, 9 * 60)
    assert not is_kept(house, 3 * 60)


@pytest.mark.parametrize("limits", ["dry-run:publish_messages=5/10m", "dry-run:connects=5/10m"])
def test_trial_is_remembered_too(house: House, limits: str) -> None:
    """What it reports must be what the limit would have done."""
    rates = visited(house, limits).rates.tenant
    meter = rates.meter(Quota.PUBLISH_MESSAGES)
    if meter is not None:
        meter.take(1, house.clock.monotonic())

    assert is_kept(house, 9 * 60)
    assert not is_kept(house, 3 * 60)
