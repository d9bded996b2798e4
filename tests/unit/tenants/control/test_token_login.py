"""Tokens through the whole control plane: who gets in, what ends the connection, and what outlives it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest

from iothub_services.auth.port import CredentialKind, DeviceRecord, TenantRecord
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.broker.queue_bounds import QueueBounds
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import DISCONNECT
from tests.support.in_process.control_harness import EVERYTHING, Harness, device, now
from tests.support.tokens import issuer, token

ROBOT = DeviceRecord("robot", "", CredentialKind.JWT)


@pytest.fixture
def scenario(harness: Harness) -> Scenario:
    return Scenario(harness)


class Scenario:
    """A harness whose tenant trusts an issuer, and what applies changes of its accounts."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.record = TenantRecord(7, "acme", rules=(EVERYTHING,), token_issuers=(issuer(),))
        harness.accounts.add(self.record, ROBOT, device("dev1"))
        self.account_changes = AccountChangeApplier(
            harness.hub, QueueBounds(cast("Any", harness.queues), harness.hub.brokers, harness.later), _none, _nobody
        )

    def token(self, lasts_s: float = 60.0, **claims: Any) -> bytes:
        shown: dict[str, Any] = {"sub": "robot", "exp": self.harness.clock.wall() + lasts_s}
        return token(**shown | claims)

    def ask(self, shown: bytes, client_id: str = "c", version: int = 5, **options: Any) -> Client:
        return self.harness.ask(client_id, version, "acme/robot", password=shown, **options)

    def join(self, client_id: str = "c", version: int = 5, lasts_s: float = 60.0, **options: Any) -> Client:
        client = self.ask(self.token(lasts_s), client_id, version, **options)
        assert client.connack.code == 0
        return client

    def change(self, kind: ChangeKind, subject: str, **facts: Any) -> None:
        """Replace facts of the tenant's record, then tell of a change."""
        self.record = replace(self.record, version=self.record.version + 1, **facts)
        self.harness.accounts.add(self.record)
        now(self.account_changes.apply_changes([Change(self.record.version, 7, kind, subject, 0)]))
        self.harness.settle()


async def _none(_tenant_id: int) -> dict[str, str]:
    return {}


async def _nobody(_plan: str) -> list[int]:
    return []


def codes(client: Client) -> list[int]:
    return [each.code for each in client.expect_closed() if each.kind == DISCONNECT]


@pytest.mark.parametrize("version", [3, 4, 5])
def test_expired_token_ends_its_connection(scenario: Scenario, version: int) -> None:
    """5.0 is told 0x87; nobody else is touched."""
    client, other = scenario.join("a", version, lasts_s=10.0), scenario.harness.join("b")

    scenario.harness.pass_time(9.9)
    client.ping()
    scenario.harness.pass_time(0.5)

    assert codes(client) == ([0x87] if version == 5 else [])
    other.ping()


def test_wall_clock_that_jumps_ends_no_connection(scenario: Scenario) -> None:
    """A live connection goes by monotonic time; a new one by the wall clock of its CONNECT."""
    client, shown = scenario.join(lasts_s=10.0), scenario.token(10.0)

    scenario.harness.clock.jump_wall(86_400)
    scenario.harness.pass_time(5.0)
    client.ping()
    assert scenario.ask(shown, "d").connack.code == 0x87
    scenario.harness.clock.jump_wall(-86_400)
    assert scenario.ask(shown, "d").connack.code == 0

    scenario.harness.pass_time(5.5)
    assert codes(client) == [0x87]


def test_session_outlives_its_token(scenario: Scenario) -> None:
    """Back with a new token: it is resumed. The will is published as after any other loss."""
    watcher = scenario.harness.join("w", username="acme/dev1")
    watcher.subscribe(("gone", 0))
    client = scenario.join("c", lasts_s=10.0, clean=False, props=[(0x11, 3600)], will=("gone", b"by time", 0, False))
    scenario.harness.pass_time(10.5)

    assert codes(client) == [0x87]
    assert watcher.payloads() == [b"by time"]
    assert scenario.join("c", clean=False, props=[(0x11, 3600)]).connack.session_present


def test_connection_that_left_is_not_waited_for(scenario: Scenario) -> None:
    """By itself, or taken over by one with a newer token, which stays until that ends."""
    scenario.join("a").disconnect()
    first = scenario.join("b", lasts_s=10.0)
    second = scenario.join("b", lasts_s=60.0)

    assert codes(first) == [0x8E]
    assert len(scenario.harness.hub.token_ends) == 1
    scenario.harness.pass_time(20.0)
    second.ping()


def test_device_with_a_secret_is_never_waited_for(scenario: Scenario) -> None:
    scenario.harness.join()

    assert len(scenario.harness.hub.token_ends) == 0


def test_removed_issuer_closes_whom_it_let_in(scenario: Scenario) -> None:
    """Not the others; and nobody comes back with its tokens."""
    client, other = scenario.join("a"), scenario.harness.join("b")
    scenario.change(ChangeKind.TOKEN_ISSUER, "fleet", token_issuers=())

    assert codes(client) == [0x87]
    other.ping()
    assert scenario.ask(scenario.token(), "c").connack.code == 0x87


def test_replaced_key_closes_those_of_the_old_one_alone(scenario: Scenario) -> None:
    """Two keys while they change over; then the old one goes."""
    old, new = issuer(kid="old"), issuer(kid="new", number=1)
    both = replace(old, keys=(*old.keys, *new.keys))
    scenario.change(ChangeKind.TOKEN_ISSUER, "fleet", token_issuers=(both,))
    first, second = scenario.ask(scenario.token(kid="old"), "a"), scenario.ask(scenario.token(kid="new", number=1), "b")
    scenario.change(ChangeKind.TOKEN_ISSUER, "fleet", token_issuers=(replace(both, keys=new.keys),))

    assert codes(first) == [0x87]
    second.ping()


def test_other_changes_keep_the_connection_and_its_end(scenario: Scenario) -> None:
    """New rules are applied; the token still ends when it ends."""
    client = scenario.join(lasts_s=10.0)
    scenario.change(ChangeKind.ACL, "*", rules=())
    denied = client.publish("a", b"x", 1)

    assert denied is not None
    assert denied.code == 0x87
    scenario.harness.pass_time(10.5)
    assert codes(client) == [0x87]


@pytest.mark.parametrize("fate", ["disabled", "password", "deleted"])
def test_device_that_changed_is_closed(scenario: Scenario, fate: str) -> None:
    client = scenario.join()
    accounts = scenario.harness.accounts
    if fate == "deleted":
        del accounts.devices[7, "robot"]
    else:
        changed = replace(ROBOT, is_enabled=False) if fate == "disabled" else device("robot")
        accounts.add(scenario.record, changed)
    scenario.change(ChangeKind.DEVICE, "robot")

    assert codes(client) == [0x87]
    assert len(scenario.harness.hub.token_ends) == 0


def test_keys_of_one_tenant_open_nothing_of_another(scenario: Scenario) -> None:
    """The same device name, the same issuer's name, other keys."""
    scenario.harness.accounts.add(
        TenantRecord(8, "beta", rules=(EVERYTHING,), token_issuers=(issuer(number=1),)), ROBOT
    )
    ours, theirs = scenario.token(), scenario.token(number=1)

    assert scenario.harness.ask("a", 5, "beta/robot", password=theirs).connack.code == 0
    assert scenario.harness.ask("b", 5, "beta/robot", password=ours).connack.code == 0x87
    assert scenario.ask(theirs, "c").connack.code == 0x87
    assert scenario.harness.recorder.causes == ["token_signature", "token_signature"]
    named = scenario.token(sub="acme/robot", number=1)
    assert scenario.harness.ask("d", 5, "beta/robot", password=named).connack.code == 0x87
