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
from tests.support import property_names as names
from tests.support.control_harness import Harness, now, run

KEPT = [(names.SESSION_EXPIRY, 100)]
WILL = ("wills/x", b"gone", 1, False)


class Desk:
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

    def __init__(self, desk: Desk, name: str) -> None:
        self.desk = desk
        self.name = name

    async def drop_tenant(self, tenant_id: int) -> None:
        assert tenant_id in self.desk.deleting(), "the name is let go last"
        self.desk.emptied.append(self.name)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    harness = Harness(tmp_path)
    store = init_store(sqlite_url(tmp_path / "accounts.db"), pepper=bytes(32), clock=harness.clock)
    yield Desk(harness, store)
    store.close()
    harness.close()


def test_tenant_leaves_connections_then_stores_then_accounts(desk: Desk) -> None:
    """Whoever is in is closed, nobody's Will is published, and the name is free when nothing is left of it."""
    guest = desk.harness.join(props=KEPT, will=WILL)
    desk.harness.join("away", props=KEPT).disconnect()
    broker = desk.harness.acme
    desk.delete()

    desk.finish()

    assert guest.expect_closed() != []
    assert desk.emptied == ["queues", "retained", "states", "counters"]
    assert desk.brokers.present(7) is None
    assert broker.plane.counters.drops()["denied"] == 1
    assert not desk.is_known()
    assert desk.harness.ask().connack.code != 0


def test_tenant_whose_stores_fail_keeps_its_name_until_they_are_empty(desk: Desk) -> None:
    """Every step can be repeated."""
    desk.delete()
    desk.is_down = True
    desk.finish()
    assert desk.is_known()

    desk.is_down = False
    desk.finish()

    assert not desk.is_known()


def test_tenants_whose_stores_fail_hold_up_no_others(desk: Desk, capsys: pytest.CaptureFixture[str]) -> None:
    """Neither those without streams nor those with; the log names them, and their own topics are not touched."""
    for name in ("other0", "other2"):
        streams.create(desk.accounts, name, streams.Wanted("telemetry", "#"))
    for name in ("other0", "other1", "other2", "acme"):
        desk.delete(name)
    desk.damaged = {"other0", "other1"}

    desk.finish()
    told = capsys.readouterr().err
    assert all(f"{name}: disk full" in told for name in desk.damaged)
    assert list(desk.deleting().values()) == ["other0", "other1"]
    assert desk.asked == ["other2"]

    desk.damaged = set()
    desk.finish()

    assert (desk.deleting(), desk.asked) == ({}, ["other2", "other0"])


def test_connect_that_had_begun_before_keeps_the_name_for_another_turn(desk: Desk) -> None:
    """Its session would be a successor's otherwise."""
    desk.delete()
    record = desk.harness.accounts.tenants["acme"]
    assert record.state is TenantState.DELETING
    late = desk.queue_admin.drop_tenant

    async def drop(tenant_id: int) -> None:
        await late(tenant_id)
        await desk.brokers.broker(record)

    desk.queue_admin.drop_tenant = drop
    desk.finish()
    assert desk.is_known()

    desk.queue_admin.drop_tenant = late
    desk.finish()

    assert not desk.is_known()
    assert desk.brokers.present(7) is None


def test_deletions_that_wait_for_kafka_hold_up_no_others(desk: Desk) -> None:
    """Kafka is asked once in a turn while it says "not yet", each time for another tenant; stores are emptied once."""
    for name in ("other0", "other1"):
        streams.create(desk.accounts, name, streams.Wanted("telemetry", "#"))
        desk.delete(name)
    desk.delete()
    desk.not_yet = {"other0", "other1"}

    turns = []
    for not_yet in ({"other0", "other1"}, {"other0", "other1"}, {"other0"}, {"other0"}, set[str]()):
        desk.not_yet, desk.asked = not_yet, []
        desk.finish()
        turns.append((desk.asked, list(desk.deleting().values())))

    assert turns == [
        (["other0"], ["other0", "other1"]),
        (["other1"], ["other0", "other1"]),
        (["other0"], ["other0", "other1"]),
        (["other1", "other0"], ["other0"]),
        (["other0"], []),
    ]
    assert sorted(desk.emptied) == sorted(["queues", "retained", "states", "counters"] * 3)


def test_who_comes_while_kafka_is_waited_for_leaves_nothing(desk: Desk) -> None:
    """What a CONNECT that had begun before brought is emptied, too."""
    streams.create(desk.accounts, "acme", streams.Wanted("telemetry", "#"))
    desk.delete()
    desk.not_yet = {"acme"}
    desk.finish()
    now(desk.brokers.broker(desk.harness.accounts.tenants["acme"]))

    desk.finish()
    assert desk.emptied == ["queues", "retained", "states"] * 2
    desk.not_yet = set()
    desk.finish()

    assert (desk.emptied[6:], desk.is_known()) == (["counters"], False)
