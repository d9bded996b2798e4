"""A deleted device leaves no session behind: nothing of it waits for a successor of the same name."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, UnavailableError
from iothub_services.quota.names import Quota
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background import device_removal
from iothub_tenants.background.apply_changes import AccountChangeApplier
from iothub_tenants.background.device_removal import DeviceRemoval
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.queue_bounds import QueueBounds
from tests.support.clients import property_names as names
from tests.support.clients.packets import DISCONNECT, PUBLISH
from tests.support.in_process.control_harness import Harness, device, now

KEPT = [(names.SESSION_EXPIRY, 100)]
WILL = ("wills/x", b"gone", 1, False)


def deleted(number: int, device: str = "dev1", tenant_id: int = 7) -> Change:
    return Change(number, tenant_id, ChangeKind.DEVICE_DELETED, device, 0)


class Remembered:
    """Asked to forget devices; `is_down`: the accounts do not say whose they are."""

    def __init__(self) -> None:
        self.forgotten: list[tuple[int, set[str]]] = []
        self.is_down = False

    async def forget(self, tenant_id: int, names: Collection[str]) -> None:
        if self.is_down:
            raise UnavailableError("accounts.db: database is locked")
        self.forgotten.append((tenant_id, set(names)))


def removal_of(harness: Harness) -> DeviceRemoval:
    return DeviceRemoval(harness.hub, Remembered().forget)


def account_changes_of(harness: Harness) -> AccountChangeApplier:
    async def own(_tenant_id: int) -> dict[str, str]:
        return harness.own

    async def nobody(_plan: str) -> list[int]:
        return []

    bounds = QueueBounds(cast("Any", harness.queues), harness.hub.brokers, harness.later)
    return AccountChangeApplier(harness.hub, bounds, own, nobody)


def number(harness: Harness, device_id: int, name: str = "dev1") -> None:
    """Have the device of this name be another one; whoever has its name is let in by the same secret."""
    harness.accounts.add(harness.accounts.tenants["acme"], device(name, id=device_id))
    harness.hub.authenticator.invalidate(7, name)


def end(harness: Harness, removal: DeviceRemoval) -> None:
    now(removal.end_sessions())
    harness.settle()


def test_sessions_end_with_queues_subscriptions_and_reservations(harness: Harness) -> None:
    """Connected or away, kept or not; another device's stay."""
    harness.join("away", props=KEPT).disconnect()
    harness.join("kept", props=KEPT).subscribe(("a", 1))
    harness.join("transient").subscribe(("a", 0))
    other = harness.join("other", username="acme/dev2", props=KEPT)
    removal = removal_of(harness)
    removal.note_deletions([deleted(5)])

    end(harness, removal)

    assert list(harness.acme.plane.sessions) == ["other"]
    assert len(harness.queues.dropped) == 2
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.SUBSCRIPTIONS), harness.used(Quota.CONNECTIONS)) == (
        1,
        0,
        1,
    )
    assert harness.journal.words().count("session.discarded") == 2
    assert (removal.is_pending, removal.done_upto) == (False, 5)
    other.ping()


def test_connections_hear_that_their_credential_is_gone(harness: Harness) -> None:
    """0x87, as after any other revocation."""
    client = harness.join("c", props=KEPT)
    removal = removal_of(harness)
    removal.note_deletions([deleted(1)])

    end(harness, removal)

    assert [each.code for each in client.expect_closed() if each.kind == DISCONNECT] == [0x87]


def test_wills_of_a_deleted_device_are_not_published(harness: Harness) -> None:
    """Neither those of connections nor those that wait for their delay."""
    watcher = harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("wills/#", 0))
    harness.join("transient", will=WILL)
    harness.join("kept", props=KEPT, will=WILL)
    harness.join("waiting", props=KEPT, will=WILL, will_props=[(names.WILL_DELAY, 50)]).close()
    removal = removal_of(harness)
    removal.note_deletions([deleted(1)])

    end(harness, removal)
    harness.pass_time(60.0)

    watcher.ping()
    assert [each for each in watcher.received if each.kind == PUBLISH] == []


def test_what_the_store_refuses_is_tried_again(harness: Harness) -> None:
    """The deletion is not counted as done before; a later one does not hide it."""
    harness.join("c", props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(3)])
    harness.journal.is_down = True
    end(harness, removal)
    removal.note_deletions([deleted(4, "dev2")])
    end(harness, removal)
    assert (removal.is_pending, removal.done_upto) == (True, 2)
    assert "c" in harness.acme.plane.sessions

    harness.journal.is_down = False
    end(harness, removal)

    assert (removal.is_pending, removal.done_upto) == (False, 4)
    assert harness.acme.plane.sessions == {}


def test_turn_is_bounded(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with very many sessions keeps no other change waiting."""
    monkeypatch.setattr(device_removal, "MOST_PER_TURN", 2)
    for name in ("one", "two", "three"):
        harness.join(name, props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(1)])

    end(harness, removal)
    assert len(harness.acme.plane.sessions) == 1
    end(harness, removal)
    assert harness.acme.plane.sessions == {}


def test_device_whose_sessions_cannot_be_ended_holds_up_no_other(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many they are: the next turn begins behind it, and it comes again."""
    monkeypatch.setattr(device_removal, "MOST_PER_TURN", 2)
    for client_id in ("stuck1", "stuck2"):
        harness.join(client_id, props=KEPT).disconnect()
    harness.join("other", username="acme/dev2", props=KEPT).disconnect()
    discard = harness.hub.sessions.discard
    is_failing = True

    async def failing(broker: TenantBroker, client_id: str, *rest: Any) -> None:
        if is_failing and client_id.startswith("stuck"):
            raise BackendError("queues.db: disk full", retryable=True)
        await discard(broker, client_id, *rest)

    monkeypatch.setattr(harness.hub.sessions, "discard", failing)
    removal = removal_of(harness)
    removal.note_deletions([deleted(1), deleted(2, "dev2")])

    end(harness, removal)
    end(harness, removal)
    assert sorted(harness.acme.plane.sessions) == ["stuck1", "stuck2"]
    assert removal.done_upto == 0

    is_failing = False
    end(harness, removal)
    assert (harness.acme.plane.sessions, removal.done_upto) == ({}, 2)


def test_device_of_another_tenant_and_other_changes_mean_nobody_here(harness: Harness) -> None:
    """A tenant that is not here has no sessions."""
    harness.join("c", props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(1, tenant_id=8), Change(2, 7, ChangeKind.DEVICE, "dev1", 0)])

    end(harness, removal)

    assert "c" in harness.acme.plane.sessions
    assert (removal.is_pending, removal.done_upto) == (False, 1)


def test_device_that_comes_back_before_its_record_is_forgotten_finds_the_door_closed(harness: Harness) -> None:
    """Clients come back at once: their old record must not let them begin a session that nobody ends."""
    client = harness.join("c", props=KEPT)
    del harness.accounts.devices[7, "dev1"]
    removal = removal_of(harness)
    removal.note_deletions([deleted(1)])

    end(harness, removal)
    client.expect_closed()

    assert harness.ask("c", props=KEPT).connack.code != 0
    assert harness.acme.plane.sessions == {}


def test_successor_is_not_hit_by_a_deletion_that_a_store_has_delayed(harness: Harness) -> None:
    """The sessions that end are those that were there when the hub read of the deletion."""
    harness.join("old", props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(3)])
    harness.journal.is_down = True
    end(harness, removal)
    successor = harness.join("transient")

    end(harness, removal)
    harness.journal.is_down = False
    harness.join("new", props=KEPT)
    end(harness, removal)

    assert sorted(harness.acme.plane.sessions) == ["new", "transient"]
    assert (removal.is_pending, removal.done_upto) == (False, 3)
    successor.ping()


def test_successor_under_the_same_client_id_is_not_hit(harness: Harness) -> None:
    """While the end of the old session waits for its turn, the successor begins anew under the same Client Identifier."""
    harness.join("c", props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(3)])
    harness.journal.is_held = True
    successor = harness.open_connection()
    successor.send(successor.connect_bytes("c", "acme/dev1", props=KEPT))
    Deferred.fromCoroutine(removal.end_sessions())

    harness.journal.release()
    harness.settle()

    assert successor.expect(2).code == 0
    successor.ping()
    end(harness, removal)
    assert removal.is_pending is False
    successor.ping()


def test_successor_that_came_before_the_deletion_was_heard_of_is_spared(harness: Harness) -> None:
    """Deleted and made anew between two looks at the accounts: both have sessions, only the successor's stay."""
    number(harness, 1)
    harness.join("old", props=KEPT).subscribe(("a", 1))
    number(harness, 2)
    successor = harness.join("new", props=KEPT)
    removal = removal_of(harness)
    removal.note_deletions([deleted(3)])

    end(harness, removal)

    assert list(harness.acme.plane.sessions) == ["new"]
    assert (removal.is_pending, removal.done_upto) == (False, 3)
    successor.ping()


def test_deletion_that_is_heard_of_again_does_no_harm(harness: Harness) -> None:
    """A hub that could not note that it has applied hears of it at its next start; the successor has gone on since."""
    number(harness, 1)
    harness.join("old", props=KEPT).disconnect()
    first = removal_of(harness)
    first.note_deletions([deleted(3)])
    end(harness, first)
    number(harness, 2)
    successor = harness.join("old", props=KEPT)
    harness.journal.words()

    again = removal_of(harness)
    again.note_deletions([deleted(3)])
    end(harness, again)

    assert list(harness.acme.plane.sessions) == ["old"]
    assert (again.is_pending, again.done_upto) == (False, 3)
    assert harness.journal.words() == []
    successor.ping()


def test_nobody_is_ended_while_it_is_not_known_whether_there_is_a_successor(harness: Harness) -> None:
    """The accounts do not answer: later."""
    number(harness, 1)
    harness.join("c", props=KEPT).disconnect()
    removal = removal_of(harness)
    removal.note_deletions([deleted(3)])
    harness.accounts.is_down = True
    end(harness, removal)
    assert (removal.is_pending, removal.done_upto) == (True, 2)

    harness.accounts.is_down = False
    del harness.accounts.devices[7, "dev1"]
    end(harness, removal)

    assert harness.acme.plane.sessions == {}
    assert (removal.is_pending, removal.done_upto) == (False, 3)


def test_what_was_remembered_of_a_device_is_forgotten_when_its_sessions_have_ended(harness: Harness) -> None:
    """By all devices of a tenant at once; what cannot be forgotten now is tried again."""
    remembered = Remembered()
    removal = DeviceRemoval(harness.hub, remembered.forget)
    harness.join("c", props=KEPT).disconnect()
    removal.note_deletions([deleted(3), deleted(4, "dev2"), deleted(5, tenant_id=8)])
    harness.journal.is_down = remembered.is_down = True
    with pytest.raises(UnavailableError):
        end(harness, removal)
    assert removal.done_upto == 2

    harness.journal.is_down = remembered.is_down = False
    end(harness, removal)
    end(harness, removal)

    assert remembered.forgotten == [(7, {"dev1", "dev2"}), (8, {"dev1"})]


def test_device_that_is_deleted_and_made_anew_in_one_look_inherits_nothing(harness: Harness) -> None:
    """Both lines come in one batch; whatever lets in the successor would let in its predecessor, too."""
    harness.own = {"dev1": "session_subscriptions=1"}
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", id=1, limits="session_subscriptions=1"))
    connected, away = harness.join("connected", props=KEPT), harness.join("away", props=KEPT)
    away.subscribe(("a", 1))
    away.disconnect()
    harness.join("p", username="acme/dev2").publish("a", b"old", 1)
    batch = [deleted(3), Change(4, 7, ChangeKind.DEVICE, "dev1", 0)]
    harness.own = {}
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", id=2))
    removal = removal_of(harness)

    removal.note_deletions(batch)
    end(harness, removal)
    now(account_changes_of(harness).apply_changes(batch))
    harness.settle()

    assert [each.code for each in connected.expect_closed() if each.kind == DISCONNECT] == [0x87]
    successor = harness.join("away", clean=False, props=KEPT)
    assert not successor.connack.session_present
    assert successor.subscribe(("b", 1), ("c", 1)).codes == [1, 1]
    assert [each for each in successor.fence() if each.kind == PUBLISH] == []
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.SUBSCRIPTIONS)) == (1, 2)
