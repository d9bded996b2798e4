"""A hub follows its accounts: deletions and changes, over a real accounts database and a control plane of doubles."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import Any, cast

import pytest
from sqlalchemy import delete
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, UnavailableError
from iothub_services.auth.change_watermark import ChangeWatermark
from iothub_services.auth.port import TenantRecord
from iothub_tenants.accounts import changes, devices, tenants
from iothub_tenants.accounts.changes import ChangeWatcher
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import change_log
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.background.device_removal import DeviceRemoval
from iothub_tenants.background.following import AccountFollower
from iothub_tenants.broker.queue_bounds import QueueBounds
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import DISCONNECT
from tests.support.in_process.control_harness import EVERYTHING, Harness, device, now

KEPT = [(names.SESSION_EXPIRY, 100)]


class AppliedMark:
    """The last change that a hub has saved; `is_full`: nothing can be saved."""

    def __init__(self) -> None:
        self.mark: int | None = None
        self.is_full = False

    def read_applied(self) -> int | None:
        return self.mark

    def write_applied(self, change: int) -> None:
        if self.is_full:
            raise UnavailableError("applied-changes.json cannot be written: disk full")
        self.mark = change


class Scenario:
    """A hub's accounts with tenant `acme` (id 7, as in the harness) and its device `dev1`; `start` begins another life of the hub.

    `gates`: calls, by name, that have no answer before these have fired.
    """

    def __init__(self, harness: Harness, store: AccountStore) -> None:
        self.harness = harness
        self.gates: dict[str, list[Deferred[None]]] = defaultdict(list)
        self.store = store
        self.marks = AppliedMark()
        for number in range(6):
            tenants.create(store, f"other{number}")
        assert tenants.create(store, "acme").id == 7
        self.make()
        self.follower = self.start()

    def make(self) -> None:
        """Make `dev1`, with the secret that the harness knows."""
        devices.create(self.store, "acme", "dev1", password="secret")
        known = Registry(self.store).find_device(7, "dev1")
        assert known is not None
        self.harness.accounts.add(self.harness.accounts.tenants["acme"], known)

    def delete(self) -> None:
        devices.delete(self.store, "acme", "dev1")
        del self.harness.accounts.devices[7, "dev1"]

    def start(self) -> AccountFollower:
        hub, harness = self.harness.hub, self.harness
        queues = cast("Any", harness.queues)
        bounds = QueueBounds(queues, hub.brokers, harness.later)
        follower = AccountFollower(
            self.store,
            cast("Any", self._run),
            self.marks,
            harness.later,
            DeviceRemoval(hub, self._nothing),
            AccountChangeApplier(hub, bounds, self._own_limits, self._nothing),
        )
        self.watermark = ChangeWatermark(self.store.clock, 60.0)
        now(follower.begin(ChangeWatcher(self.store), self.watermark))
        return follower

    async def _run(self, name: str, call: Any, *args: Any, **kwargs: Any) -> Any:
        for gate in self.gates[name]:
            await gate
        return call(*args, **kwargs)

    async def _own_limits(self, tenant_id: int) -> dict[str, str]:
        for gate in self.gates[f"limits of {tenant_id}"]:
            await gate
        return {}

    async def _nothing(self, *_: object) -> Any:
        return {}

    def look(self) -> None:
        now(self.follower.follow_changes())
        self.harness.settle()

    def disable(self, tenant: str, name: str) -> None:
        record = self.harness.accounts.tenants[tenant]
        known = self.harness.accounts.devices[record.id, name]
        self.harness.accounts.add(record, replace(known, is_enabled=False))
        devices.disable(self.store, tenant, name)

    def add(self, tenant: str, name: str) -> None:
        """Make a device of a tenant that only SQL has."""
        devices.create(self.store, tenant, name, password="secret")
        record = TenantRecord(tenants.show(self.store, tenant).id, tenant, rules=(EVERYTHING,))
        self.harness.accounts.add(record, device(name))

    @property
    def last_change(self) -> int:
        return ChangeWatcher(self.store).after


@pytest.fixture
def scenario(harness: Harness, store: AccountStore) -> Scenario:
    return Scenario(harness, store)


def test_start_notes_where_it_begins(scenario: Scenario) -> None:
    """Deletions before it are nobody's business any more."""
    assert scenario.marks.mark == scenario.last_change


def test_watermark_is_moved_by_every_read(scenario: Scenario) -> None:
    """What lies in a shared cache is compared with what was seen, from the start on."""
    before = scenario.watermark.as_of()
    assert before.change == scenario.last_change
    assert scenario.watermark.has_device(7, "dev1", before)

    scenario.delete()
    assert scenario.watermark.as_of() == before
    scenario.look()

    assert scenario.watermark.as_of().change == scenario.last_change
    assert not scenario.watermark.has_device(7, "dev1", before)
    assert scenario.watermark.has_device(7, "dev1", scenario.watermark.as_of())


def test_deletion_is_noted_when_its_sessions_have_ended(scenario: Scenario) -> None:
    """Not while a store refuses their end."""
    scenario.harness.join("c", props=KEPT).disconnect()
    scenario.delete()
    scenario.harness.journal.is_down = True
    before = scenario.marks.mark
    scenario.look()
    assert scenario.marks.mark == before

    scenario.harness.journal.is_down = False
    scenario.look()

    assert scenario.harness.acme.plane.sessions == {}
    assert scenario.marks.mark == scenario.last_change


def test_deletion_that_could_not_be_noted_spares_the_successor_at_the_next_start(scenario: Scenario) -> None:
    """The disk is full when it was applied; the device was made anew and has a session when the hub hears of it again."""
    scenario.harness.join("c", props=KEPT).disconnect()
    scenario.marks.is_full = True
    scenario.delete()
    scenario.look()
    assert scenario.harness.acme.plane.sessions == {}
    scenario.make()
    scenario.look()
    successor = scenario.harness.join("c", props=KEPT)

    scenario.start()
    assert list(scenario.harness.acme.plane.sessions) == ["c"]
    scenario.marks.is_full = False
    scenario.start()

    assert list(scenario.harness.acme.plane.sessions) == ["c"]
    assert scenario.marks.mark == scenario.last_change
    successor.ping()


def _put_back(store: AccountStore, after: int) -> None:
    """As a backup would: the lines behind this one were never written."""
    with store.write() as writer:
        writer.connection.execute(delete(change_log).where(change_log.c.id > after))


def test_accounts_that_were_put_back_are_looked_at_anew(scenario: Scenario) -> None:
    """Under a running hub, and what is changed from then on has numbers that it has seen already."""
    before = scenario.last_change
    devices.create(scenario.store, "acme", "dev2")
    scenario.look()
    client, seen = scenario.harness.join("c"), scenario.watermark.as_of()
    _put_back(scenario.store, before)
    scenario.harness.accounts.devices.pop((7, "dev1"))

    scenario.look()

    client.expect_closed()
    assert scenario.watermark.as_of().change == scenario.last_change == before
    assert not scenario.watermark.has_device(7, "dev1", seen)
    devices.create(scenario.store, "acme", "dev3")
    scenario.look()
    assert scenario.watermark.as_of().change == scenario.last_change


def test_look_at_everything_that_fails_is_done_by_the_next_look(
    scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server goes away in the middle of it."""
    before = scenario.last_change
    devices.create(scenario.store, "acme", "dev2")
    scenario.look()
    client = scenario.harness.join("c")
    _put_back(scenario.store, before)
    scenario.harness.accounts.devices.pop((7, "dev1"))
    with monkeypatch.context() as patched:
        patched.setattr("iothub_tenants.background.following.latest", _fail)
        with pytest.raises(BackendError):
            scenario.look()

    scenario.look()

    client.expect_closed()
    assert scenario.watermark.as_of().change == before


def _fail(*_: object) -> None:
    raise BackendError("the accounts database does not answer", retryable=True)


def test_deletion_is_applied_although_accounts_that_are_gone_were_further(scenario: Scenario) -> None:
    """What this hub has noted is of the log before the accounts were put back."""
    scenario.harness.join("c", props=KEPT).disconnect()
    scenario.marks.mark = scenario.last_change + 100
    scenario.delete()

    scenario.start()

    assert scenario.harness.acme.plane.sessions == {}


def test_mark_that_could_not_be_written_is_tried_again_at_the_next_look(scenario: Scenario) -> None:
    """Without another change."""
    scenario.marks.is_full = True
    scenario.delete()
    scenario.look()
    scenario.marks.is_full = False

    scenario.look()

    assert scenario.marks.mark == scenario.last_change


def test_deletion_of_the_meantime_is_not_missed_when_nothing_was_ever_noted(scenario: Scenario) -> None:
    """The folder could never be written: the log of changes has it all the same."""
    scenario.harness.join("c", props=KEPT).disconnect()
    scenario.marks.mark, scenario.marks.is_full = None, True
    scenario.delete()
    scenario.make()

    scenario.start()

    assert scenario.harness.acme.plane.sessions == {}


def closed(client: Client) -> list[int]:
    return [each.code for each in client.expect_closed() if each.kind == DISCONNECT]


def begin(scenario: Scenario) -> Deferred[None]:
    """Changes are applied; what takes long is not waited for."""
    look = Deferred.fromCoroutine(scenario.follower.follow_changes())
    scenario.harness.pass_time(1.0)
    scenario.harness.pass_time(1.0)
    return look


def test_nobody_gets_in_by_what_was_remembered_while_a_deletion_waits_for_a_disk(scenario: Scenario) -> None:
    """It was forgotten when the change was heard of, before anything is waited for."""
    devices.create(scenario.store, "acme", "dev2")
    scenario.look()
    scenario.harness.join("c", props=KEPT)
    scenario.harness.join("d", username="acme/dev2").disconnect()
    scenario.harness.journal.is_held = True
    scenario.delete()
    scenario.disable("acme", "dev2")

    look = Deferred.fromCoroutine(scenario.follower.follow_changes())

    assert not look.called
    assert scenario.harness.ask("d", username="acme/dev2").connack.code == 0x87


def test_mark_on_a_disk_that_hangs_keeps_nobody_connected(scenario: Scenario) -> None:
    """Rights that others lose wait for no disk."""
    client = scenario.harness.join("d", username="acme/dev2")
    devices.create(scenario.store, "acme", "dev2")
    scenario.look()
    gate = Deferred[None]()
    scenario.gates["housekeeping.applied"].append(gate)
    scenario.delete()
    assert begin(scenario).called
    scenario.disable("acme", "dev2")

    scenario.look()

    assert closed(client) == [0x87]
    gate.callback(None)
    assert scenario.marks.mark is not None


def test_sessions_of_one_tenant_keep_up_no_other_tenants(scenario: Scenario) -> None:
    """Many sessions, or accounts that answer slowly: what others change meanwhile is heard of and applied."""
    scenario.add("other0", "dev1")
    scenario.harness.join("c")
    client = scenario.harness.join("o", username="other0/dev1")
    gate = Deferred[None]()
    scenario.gates["limits of 7"].append(gate)
    tenants.suspend(scenario.store, "acme")
    assert begin(scenario).called

    scenario.disable("other0", "dev1")
    scenario.look()

    assert closed(client) == [0x87]


def test_device_is_put_out_while_all_sessions_of_its_tenant_are_looked_at(scenario: Scenario) -> None:
    """By a round of its own, and what the other one has read before decides nothing."""
    client = scenario.harness.join("c")
    before, after = Deferred[None](), Deferred[None]()
    scenario.gates["limits of 7"].append(before)
    tenants.update(scenario.store, "acme", tenants.Settings(display_name="Acme"))
    assert begin(scenario).called
    scenario.gates["limits of 7"] = [after]
    scenario.disable("acme", "dev1")
    assert begin(scenario).called

    after.callback(None)
    scenario.harness.settle()
    assert closed(client) == [0x87]
    before.callback(None)

    assert begin(scenario).called


def test_all_that_was_changed_is_heard_of_at_once(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """However much it is: the last change waits for no other look."""
    monkeypatch.setattr(changes, "BATCH", 3)
    monkeypatch.setattr("iothub_tenants.background.following.BATCH", 3)
    client = scenario.harness.join("c")
    for number in range(7):
        devices.create(scenario.store, "acme", f"new{number}")
    scenario.disable("acme", "dev1")

    scenario.look()

    assert closed(client) == [0x87]
    assert scenario.watermark.as_of().change == scenario.last_change


def test_looks_follow_one_another(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    """`device delete` waits until its change is applied, also while the hub applies those before it."""
    devices.create(scenario.store, "acme", "dev2")
    scenario.look()
    client = scenario.harness.join("d", username="acme/dev2")
    reads: list[ChangeWatcher] = []
    poll = ChangeWatcher.poll
    monkeypatch.setattr(ChangeWatcher, "poll", lambda watcher: reads.append(watcher) or poll(watcher))
    scenario.gates["housekeeping.applied"].append(Deferred())
    scenario.delete()
    first = Deferred.fromCoroutine(scenario.follower.follow_changes())
    scenario.disable("acme", "dev2")
    second = Deferred.fromCoroutine(scenario.follower.follow_changes())
    assert (first.called, second.called, len(reads)) == (False, False, 1)

    scenario.harness.pass_time(1.0)
    scenario.harness.pass_time(1.0)

    assert (first.called, second.called, len(reads)) == (True, True, 2)
    assert closed(client) == [0x87]


def test_look_that_fails_does_not_hold_up_the_next(scenario: Scenario, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr(ChangeWatcher, "poll", _fail)
        with pytest.raises(BackendError):
            scenario.look()
    client = scenario.harness.join("c")
    scenario.disable("acme", "dev1")

    scenario.look()

    assert closed(client) == [0x87]
