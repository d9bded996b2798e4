"""How a deleted tenant leaves a running hub: in which order, and what a late CONNECT changes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError
from iothub.hub.tenant_deletion import TenantDeletion
from iothub_services.auth.port import TenantState
from iothub_services.quota.usage import Usage
from iothub_services.state.service import DropTenant
from iothub_tenants.accounts import streams, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness, now, run

KEPT = [(names.SESSION_EXPIRY, 100)]
WILL = ("wills/x", b"gone", 1, False)


class Scenario:
    """The parts of a hub with tenant `acme` (id 7), and a list of what was emptied, in order.

    `is_down`: the states do not answer. `damaged`: tenants whose states cannot be emptied.

    `asked`: whose topics Kafka was to delete, in order; it does not, yet, for those in `not_yet`.
    """

    def __init__(self, harness: Harness, store: AccountStore) -> None:
        self.harness = harness
        self.emptied: list[str] = []
        self.is_down = False
        self.damaged: set[str] = set()
        self.asked: list[str] = []
        self.not_yet: set[str] = set()
        for number in range(6):
            tenants.create(store, f"other{number}")
        tenants.create(store, "acme")
        self.accounts = store
        self.authenticator = harness.hub.authenticator
        self.brokers = harness.hub.brokers
        self.plane = harness.plane
        self.sessions = harness.sessions
        self.usage = Usage(harness.usage_store, harness.clock)
        self.queue_admin = cast("Any", Emptied(self, "queues"))
        self.retained_admin = cast("Any", Emptied(self, "retained"))
        self.journal_thread = self
        self.deletions = TenantDeletion(
            cast("Any", self), cast("Any", run), lambda _tenant_id: self.emptied.append("counters"), self.delete_topics
        )

    async def delete_topics(self, _tenant_id: int, tenant: str) -> bool:
        self.asked.append(tenant)
        return tenant not in self.not_yet

    def submit(self, op: DropTenant, callback: Callable[[object], None]) -> None:
        name = self.deleting()[op.tenant_id]
        is_failing = self.is_down or name in self.damaged
        if not is_failing:
            self.emptied.append("states")
        callback(BackendError(f"state.db: {name}: disk full", retryable=True) if is_failing else 1)

    def delete(self, tenant: str = "acme") -> None:
        tenants.delete(self.accounts, tenant)
        record = Registry(self.accounts).find_tenant(tenant)
        assert record is not None
        self.harness.accounts.add(record)

    def finish(self) -> None:
        now(self.deletions.finish())
        self.harness.settle()

    def is_known(self) -> bool:
        return "acme" in {tenant.name for tenant in tenants.list_all(self.accounts)}

    def deleting(self) -> dict[int, str]:
        return {each.tenant_id: each.name for each in tenants.pending_deletions(self.accounts)}


class Emptied:
    """A store of one tenant's things."""

    def __init__(self, scenario: Scenario, name: str) -> None:
        self.scenario = scenario
        self.name = name

    async def drop_tenant(self, tenant_id: int) -> None:
        assert tenant_id in self.scenario.deleting(), "the name is let go last"
        self.scenario.emptied.append(self.name)


@pytest.fixture
def scenario(tmp_path: Path) -> Iterator[Scenario]:
    harness = Harness(tmp_path)
    store = init_store(sqlite_url(tmp_path / "accounts.db"), pepper=bytes(32), clock=harness.clock)
    yield Scenario(harness, store)
    store.close()
    harness.close()


def test_tenant_leaves_connections_then_stores_then_accounts(scenario: Scenario) -> None:
    """Whoever is in is closed, nobody's Will is published, and the name is free when nothing is left of it."""
    client = scenario.harness.join(props=KEPT, will=WILL)
    scenario.harness.join("away", props=KEPT).disconnect()
    broker = scenario.harness.acme
    scenario.delete()

    scenario.finish()

    assert client.expect_closed() != []
    assert scenario.emptied == ["queues", "retained", "states", "counters"]
    assert scenario.brokers.present(7) is None
    assert broker.plane.counters.drops()["denied"] == 1
    assert not scenario.is_known()
    assert scenario.harness.ask().connack.code != 0


def test_tenant_whose_stores_fail_keeps_its_name_until_they_are_empty(scenario: Scenario) -> None:
    """Every step can be repeated."""
    scenario.delete()
    scenario.is_down = True
    scenario.finish()
    assert scenario.is_known()

    scenario.is_down = False
    scenario.finish()

    assert not scenario.is_known()


def test_tenants_whose_stores_fail_hold_up_no_others(scenario: Scenario, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither those without streams nor those with; the log names them, and their own topics are not touched."""
    for name in ("other0", "other2"):
        streams.create(scenario.accounts, name, streams.Wanted("telemetry", "#"))
    for name in ("other0", "other1", "other2", "acme"):
        scenario.delete(name)
    scenario.damaged = {"other0", "other1"}

    scenario.finish()
    output = capsys.readouterr().err
    assert all(f"{name}: disk full" in output for name in scenario.damaged)
    assert list(scenario.deleting().values()) == ["other0", "other1"]
    assert scenario.asked == ["other2"]

    scenario.damaged = set()
    scenario.finish()

    assert (scenario.deleting(), scenario.asked) == ({}, ["other2", "other0"])


def test_connect_that_had_begun_before_keeps_the_name_for_another_turn(scenario: Scenario) -> None:
    """Its session would be a successor's otherwise."""
    scenario.delete()
    record = scenario.harness.accounts.tenants["acme"]
    assert record.state is TenantState.DELETING
    late = scenario.queue_admin.drop_tenant

    async def drop(tenant_id: int) -> None:
        await late(tenant_id)
        await scenario.brokers.broker(record)

    scenario.queue_admin.drop_tenant = drop
    scenario.finish()
    assert scenario.is_known()

    scenario.queue_admin.drop_tenant = late
    scenario.finish()

    assert not scenario.is_known()
    assert scenario.brokers.present(7) is None


def test_deletions_that_wait_for_kafka_hold_up_no_others(scenario: Scenario) -> None:
    """Kafka is asked once in a turn while it says "not yet", each time for another tenant; stores are emptied once."""
    for name in ("other0", "other1"):
        streams.create(scenario.accounts, name, streams.Wanted("telemetry", "#"))
        scenario.delete(name)
    scenario.delete()
    scenario.not_yet = {"other0", "other1"}

    turns = []
    for not_yet in ({"other0", "other1"}, {"other0", "other1"}, {"other0"}, {"other0"}, set[str]()):
        scenario.not_yet, scenario.asked = not_yet, []
        scenario.finish()
        turns.append((scenario.asked, list(scenario.deleting().values())))

    assert turns == [
        (["other0"], ["other0", "other1"]),
        (["other1"], ["other0", "other1"]),
        (["other0"], ["other0", "other1"]),
        (["other1", "other0"], ["other0"]),
        (["other0"], []),
    ]
    assert sorted(scenario.emptied) == sorted(["queues", "retained", "states", "counters"] * 3)


def test_who_comes_while_kafka_is_waited_for_leaves_nothing(scenario: Scenario) -> None:
    """What a CONNECT that had begun before brought is emptied, too."""
    streams.create(scenario.accounts, "acme", streams.Wanted("telemetry", "#"))
    scenario.delete()
    scenario.not_yet = {"acme"}
    scenario.finish()
    now(scenario.brokers.broker(scenario.harness.accounts.tenants["acme"]))

    scenario.finish()
    assert scenario.emptied == ["queues", "retained", "states"] * 2
    scenario.not_yet = set()
    scenario.finish()

    assert (scenario.emptied[6:], scenario.is_known()) == (["counters"], False)
