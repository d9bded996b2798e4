"""The rights of a device that is not connected come from the accounts, as they are now."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iothub.hooks import Client
from iothub_services.auth.port import TenantState
from iothub_tenants.broker.offline_rights import rights_of
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness, now, plugged


def leave_a_session(harness: Harness) -> None:
    harness.accounts.add(harness.accounts.tenants["acme"], replace(harness.accounts.devices[7, "dev1"], id=3))
    harness.join("c", clean=False, props=[(names.SESSION_EXPIRY, 100)]).disconnect()


def rights(harness: Harness) -> Any:
    broker = harness.hub.brokers.present(7)
    assert broker is not None
    return now(rights_of(harness.hub, broker.record, broker.plane.sessions["c"]))


def test_device_may_do_what_the_rules_say(harness: Harness) -> None:
    leave_a_session(harness)

    assert rights(harness).may_publish(b"a")


@pytest.mark.parametrize(
    "change", ["disabled", "suspended", "deleted", "another device of that name", "another tenant of that name"]
)
def test_device_that_may_not_come_in_may_do_nothing(harness: Harness, change: str) -> None:
    leave_a_session(harness)
    tenant, device = harness.accounts.tenants["acme"], harness.accounts.devices[7, "dev1"]
    if change == "disabled":
        harness.accounts.add(tenant, replace(device, is_enabled=False))
    elif change == "suspended":
        harness.accounts.add(replace(tenant, state=TenantState.SUSPENDED))
    elif change == "deleted":
        del harness.accounts.devices[7, "dev1"]
    elif change == "another device of that name":
        harness.accounts.add(tenant, replace(device, id=device.id + 1))
    else:
        harness.accounts.add(replace(tenant, id=8))
    harness.hub.authenticator.invalidate(7)

    assert rights(harness) is None


def test_plug_in_is_asked_too(make_harness: Callable[..., Harness]) -> None:
    """It hears of a client without an address."""
    asked: list[Client] = []

    def authorise(client: Client, _action: str, _topic: str) -> bool:
        asked.append(client)
        return False

    harness = make_harness(hooks=plugged(authorise=authorise))
    leave_a_session(harness)
    asked.clear()

    assert not rights(harness).may_publish(b"a")
    assert [(client.device, client.peer) for client in asked] == [("dev1", "")]
