"""The rights of a device that is not connected come from the accounts, as they are now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iothub.hooks import Client
from iothub_services.auth.port import TenantState
from iothub_tenants.broker.absent import rights_of
from tests.support import property_names as names
from tests.support.control_house import House, now, plugged


def leave_a_session(house: House) -> None:
    house.accounts.add(house.accounts.tenants["acme"], replace(house.accounts.devices[7, "dev1"], id=3))
    house.join("c", clean=False, props=[(names.SESSION_EXPIRY, 100)]).disconnect()


def rights(house: House) -> Any:
    broker = house.hub.brokers.present(7)
    assert broker is not None
    return now(rights_of(house.hub, broker.record, broker.plane.sessions["c"]))


def test_device_may_do_what_the_rules_say(house: House) -> None:
    leave_a_session(house)

    assert rights(house).may_publish(b"a")


@pytest.mark.parametrize(
    "change", ["disabled", "suspended", "deleted", "another device of that name", "another tenant of that name"]
)
def test_device_that_may_not_come_in_may_do_nothing(house: House, change: str) -> None:
    leave_a_session(house)
    tenant, device = house.accounts.tenants["acme"], house.accounts.devices[7, "dev1"]
    if change == "disabled":
        house.accounts.add(tenant, replace(device, is_enabled=False))
    elif change == "suspended":
        house.accounts.add(replace(tenant, state=TenantState.SUSPENDED))
    elif change == "deleted":
        del house.accounts.devices[7, "dev1"]
    elif change == "another device of that name":
        house.accounts.add(tenant, replace(device, id=device.id + 1))
    else:
        house.accounts.add(replace(tenant, id=8))
    house.hub.authenticator.invalidate(7)

    assert rights(house) is None


def test_plug_in_is_asked_too(make_house: Callable[..., House]) -> None:
    """It hears of a client without an address."""
    asked: list[Client] = []

    def authorise(client: Client, _action: str, _topic: str) -> bool:
        asked.append(client)
        return False

    house = make_house(hooks=plugged(authorise=authorise))
    leave_a_session(house)
    asked.clear()

    assert not rights(house).may_publish(b"a")
    assert [(client.device, client.peer) for client in asked] == [("dev1", "")]
