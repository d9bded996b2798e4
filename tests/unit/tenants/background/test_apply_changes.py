"""A running hub applies changed accounts: who may not stay is closed, who may gets the new rights and limits."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.hooks import Attempt
from iothub_services.auth.port import Action, Ban, BanKind, DeviceRecord, Effect, Rule, Scope, TenantState
from iothub_services.quota.names import Quota
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background import apply_changes
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.broker.queue_bounds import QueueBounds
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import DISCONNECT
from tests.support.in_process.control_harness import Harness, device, now, plugged


class Scenario:
    """AccountChangeApplier over a harness whose accounts change."""

    def __init__(self, harness: Harness) -> None:
        self.harness = harness
        self.plans = {"standard": [7]}
        self.are_plans_down = False
        bounds = QueueBounds(cast("Any", harness.queues), harness.hub.brokers, harness.later)
        self.account_changes = AccountChangeApplier(harness.hub, bounds, self._own, self._on_plan)
        self.seq = 0

    async def _own(self, _tenant_id: int) -> dict[str, str]:
        return self.harness.own

    async def _on_plan(self, plan: str) -> list[int]:
        if self.are_plans_down:
            raise BackendError("accounts.db: database is locked", retryable=True)
        return self.plans.get(plan, [])

    def change(self, kind: ChangeKind, subject: str = "*", tenant_id: int = 7, **facts: Any) -> None:
        """Replace facts of the tenant's record, then tell of a change."""
        record = self.harness.accounts.tenants["acme"]
        self.harness.accounts.add(replace(record, version=record.version + 1, **facts))
        self.seq += 1
        now(self.account_changes.apply_changes([Change(self.seq, tenant_id, kind, subject, 0)]))
        self.harness.settle()


@pytest.fixture
def scenario(harness: Harness) -> Scenario:
    return Scenario(harness)


def codes(client: Client) -> list[int]:
    return [each.code for each in client.expect_closed() if each.kind == DISCONNECT]


def test_suspended_tenant_is_closed(scenario: Scenario) -> None:
    """0x98."""
    client = scenario.harness.join()
    scenario.change(ChangeKind.TENANT, state=TenantState.SUSPENDED)

    assert codes(client) == [0x98]


def test_deleted_tenant_is_closed(scenario: Scenario) -> None:
    client = scenario.harness.join()
    scenario.change(ChangeKind.TENANT, state=TenantState.DELETING)

    assert len(codes(client)) == 1


def test_device_with_another_secret_is_closed_alone(scenario: Scenario) -> None:
    one, two = scenario.harness.join("one"), scenario.harness.join("two", username="acme/dev2")
    scenario.harness.accounts.add(
        scenario.harness.accounts.tenants["acme"], replace(device("dev1"), credential="other")
    )
    scenario.change(ChangeKind.DEVICE, "dev1")

    assert codes(one) == [0x87]
    two.ping()


def test_banned_device_is_closed(scenario: Scenario) -> None:
    client = scenario.harness.join()
    scenario.change(ChangeKind.BAN, bans=(Ban(BanKind.CLIENT_ID, "c"),))

    assert codes(client) == [0x98]


def test_new_rules_are_in_force_at_once(scenario: Scenario) -> None:
    """The connection stays; what it subscribed to before is no right."""
    client = scenario.harness.join()
    client.subscribe(("a", 0))
    scenario.change(ChangeKind.ACL, rules=(Rule(Scope.TENANT, "", Effect.ALLOW, Action.BOTH, "b"),))
    denied, allowed = client.publish("a", b"x", 1), client.publish("b", b"x", 1)

    assert denied is not None
    assert allowed is not None
    assert (denied.code, allowed.code >= 0x80) == (0x87, False)
    assert client.subscribe(("a", 0)).codes == [0x87]


def test_new_limits_are_in_force_at_once(scenario: Scenario) -> None:
    """Those of the plan as well."""
    scenario.harness.join()
    scenario.change(ChangeKind.PLAN, "standard", plan_limits="connections=1")

    assert scenario.harness.ask("d").connack.code == 0x97
    assert scenario.harness.recorder.refusals == [Quota.CONNECTIONS]


def test_change_that_cannot_be_read_is_kept(scenario: Scenario) -> None:
    """Accounts down: nobody is closed, and the next look does it."""
    client = scenario.harness.join()
    scenario.harness.accounts.is_down = True
    scenario.change(ChangeKind.TENANT, state=TenantState.SUSPENDED)
    client.ping()

    scenario.harness.accounts.is_down = False
    now(scenario.account_changes.apply_changes([]))
    scenario.harness.settle()

    assert codes(client) == [0x98]


def test_devices_of_many_sessions_are_read_with_one_question(scenario: Scenario) -> None:
    """However many are connected: whoever publishes over the API waits for no more than that."""
    clients = [scenario.harness.join(f"c{number}", username=f"acme/dev{number % 2 + 1}") for number in range(5)]
    scenario.harness.accounts.questions.clear()
    scenario.change(ChangeKind.ACL, rules=(Rule(Scope.TENANT, "", Effect.DENY, Action.BOTH, "#"),))

    assert scenario.harness.accounts.questions == ["acme", "7/dev1,dev2"]
    assert [client.subscribe(("a", 0)).codes for client in clients] == 5 * [[0x87]]


def test_more_sessions_than_one_question_may_name_are_read_with_several(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(apply_changes, "SLICE", 1)
    for number in (1, 2):
        scenario.harness.join(f"c{number}", username=f"acme/dev{number}")
    scenario.harness.accounts.questions.clear()
    applied = Deferred.fromCoroutine(scenario.account_changes.apply_changes([Change(1, 7, ChangeKind.ACL, "*", 0)]))
    scenario.harness.pass_time(0)

    assert applied.called
    assert scenario.harness.accounts.questions == ["acme", "7/dev1", "7/dev2"]


def test_change_while_the_devices_are_read_is_in_force(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read before it decides nothing."""
    one, two = scenario.harness.join("one"), scenario.harness.join("two", username="acme/dev2")
    accounts = scenario.harness.accounts
    find = accounts.find_devices

    def find_and_change(tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        found = find(tenant_id, names)
        monkeypatch.setattr(accounts, "find_devices", find)
        accounts.add(accounts.tenants["acme"], replace(device("dev2"), is_enabled=False))
        scenario.account_changes.note_changes([Change(2, 7, ChangeKind.DEVICE, "dev2", 0)])
        return found

    monkeypatch.setattr(accounts, "find_devices", find_and_change)
    scenario.change(ChangeKind.ACL)

    assert codes(two) == [0x87]
    one.ping()


def test_tenant_without_a_broker_costs_nothing(scenario: Scenario) -> None:
    scenario.change(ChangeKind.TENANT, tenant_id=8)

    assert len(scenario.harness.hub.brokers) == 0


def test_plan_that_cannot_be_looked_up_loses_no_change(scenario: Scenario) -> None:
    """Neither its own nor those that came with it."""
    client = scenario.harness.join()
    scenario.are_plans_down = True
    record = scenario.harness.accounts.tenants["acme"]
    scenario.harness.accounts.add(
        replace(record, version=2, bans=(Ban(BanKind.CLIENT_ID, "c"),), plan_limits="connections=1")
    )
    changes = [Change(1, 0, ChangeKind.PLAN, "standard", 0), Change(2, 7, ChangeKind.BAN, "client_id:c", 0)]
    now(scenario.account_changes.apply_changes(changes))
    scenario.harness.settle()
    assert codes(client) == [0x98]

    scenario.are_plans_down = False
    scenario.harness.accounts.add(replace(record, version=3, plan_limits="connections=1"))
    now(scenario.account_changes.apply_changes([]))

    scenario.harness.join("d")
    assert scenario.harness.ask("e").connack.code == 0x97


def test_queues_that_cannot_be_bounded_now_hold_up_nothing(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """The disk is full: rights are withdrawn within a second all the same."""
    gate: Deferred[None] = Deferred()

    async def wait(_tenant_id: int, _messages: int, _bytes: int) -> None:
        await gate

    monkeypatch.setattr(scenario.harness.queues, "set_tenant_limits", wait)
    scenario.harness.join()
    scenario.change(ChangeKind.QUOTA, limits="session_queued_messages=5")
    scenario.change(ChangeKind.TENANT, state=TenantState.SUSPENDED)
    assert scenario.harness.ask("d").connack.code >= 0x80

    gate.callback(None)


def test_change_that_comes_while_a_session_is_opened_is_applied(scenario: Scenario) -> None:
    """The CONNECT was proven before, and its session is not there yet when all sessions are looked at."""
    scenario.harness.journal.is_held = True
    client = scenario.harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=[(names.SESSION_EXPIRY, 100)]))
    known = scenario.harness.accounts.devices[7, "dev1"]
    scenario.harness.accounts.add(scenario.harness.accounts.tenants["acme"], replace(known, is_enabled=False))
    scenario.change(ChangeKind.DEVICE, "dev1")

    scenario.harness.journal.release()
    scenario.harness.settle()

    assert [each.code for each in client.expect_closed()] == [0x87]
    assert (scenario.harness.acme.plane.sessions, scenario.harness.queues.owners) == ({}, {})
    assert [scenario.harness.used(quota) for quota in (Quota.CONNECTIONS, Quota.SESSIONS)] == [0, 0]


def test_rights_that_change_while_a_session_is_opened_are_in_force(scenario: Scenario) -> None:
    """It may come in, and has the rights of now."""
    scenario.harness.journal.is_held = True
    client = scenario.harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=[(names.SESSION_EXPIRY, 100)]))
    scenario.change(ChangeKind.ACL, rules=(Rule(Scope.TENANT, "", Effect.DENY, Action.BOTH, "#"),))

    scenario.harness.journal.release()
    scenario.harness.settle()

    assert client.expect(2).code == 0
    assert client.subscribe(("a", 1)).codes == [0x87]


def test_device_that_only_a_plug_in_knows_stays_when_others_change(make_harness: Callable[..., Harness]) -> None:
    """It has no row in the accounts, so nothing of it was revoked; new rights are in force at once."""

    async def yes(_attempt: Attempt) -> bool:
        return True

    harness = make_harness(hooks=plugged(authenticate=yes))
    scenario = Scenario(harness)
    client = harness.join("c", username="acme/unknown")

    scenario.change(ChangeKind.ACL, rules=(Rule(Scope.TENANT, "", Effect.DENY, Action.BOTH, "#"),))
    assert client.subscribe(("a", 1)).codes == [0x87]

    harness.accounts.add(harness.accounts.tenants["acme"], device("unknown"))
    scenario.change(ChangeKind.DEVICE, "unknown")
    assert codes(client) == [0x87]
