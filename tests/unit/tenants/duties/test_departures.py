"""A deleted device leaves no session behind: nothing of it waits for a successor of the same name."""

from __future__ import annotations

import pytest
from twisted.internet.defer import Deferred

from iothub_services.quota.names import Quota
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.duties import departures
from iothub_tenants.duties.departures import Departures
from tests.support import property_names as names
from tests.support.control_house import House, now
from tests.support.packets import DISCONNECT, PUBLISH

KEPT = [(names.SESSION_EXPIRY, 100)]
WILL = ("wills/x", b"gone", 1, False)


def deleted(number: int, device: str = "dev1", tenant_id: int = 7) -> Change:
    return Change(number, tenant_id, ChangeKind.DEVICE_DELETED, device, 0)


def end(house: House, leaving: Departures) -> None:
    now(leaving.turn())
    house.settle()


def test_sessions_end_with_queues_subscriptions_and_reservations(house: House) -> None:
    """Connected or away, kept or not; another device's stay."""
    house.join("away", props=KEPT).disconnect()
    house.join("kept", props=KEPT).subscribe(("a", 1))
    house.join("transient").subscribe(("a", 0))
    other = house.join("other", username="acme/dev2", props=KEPT)
    leaving = Departures(house.hub)
    leaving.note([deleted(5)])

    end(house, leaving)

    assert list(house.acme.plane.sessions) == ["other"]
    assert len(house.queues.dropped) == 2
    assert (house.used(Quota.SESSIONS), house.used(Quota.SUBSCRIPTIONS), house.used(Quota.CONNECTIONS)) == (1, 0, 1)
    assert house.journal.words().count("session.discarded") == 2
    assert (leaving.is_pending, leaving.settled) == (False, 5)
    other.ping()


def test_connections_hear_that_their_credential_is_gone(house: House) -> None:
    """0x87, as after any other revocation."""
    guest = house.join("c", props=KEPT)
    leaving = Departures(house.hub)
    leaving.note([deleted(1)])

    end(house, leaving)

    assert [each.code for each in guest.expect_closed() if each.kind == DISCONNECT] == [0x87]


def test_wills_of_a_deleted_device_are_not_published(house: House) -> None:
    """Neither those of connections nor those that wait for their delay."""
    watcher = house.join("watcher", username="acme/dev2")
    watcher.subscribe(("wills/#", 0))
    house.join("transient", will=WILL)
    house.join("kept", props=KEPT, will=WILL)
    house.join("waiting", props=KEPT, will=WILL, will_props=[(names.WILL_DELAY, 50)]).close()
    leaving = Departures(house.hub)
    leaving.note([deleted(1)])

    end(house, leaving)
    house.pass_time(60.0)

    watcher.ping()
    assert [each for each in watcher.received if each.kind == PUBLISH] == []


def test_what_the_store_refuses_is_tried_again(house: House) -> None:
    """The deletion is not settled before; a later one does not hide it."""
    house.join("c", props=KEPT).disconnect()
    leaving = Departures(house.hub)
    leaving.note([deleted(3)])
    house.journal.is_down = True
    end(house, leaving)
    leaving.note([deleted(4, "dev2")])
    end(house, leaving)
    assert (leaving.is_pending, leaving.settled) == (True, 2)
    assert "c" in house.acme.plane.sessions

    house.journal.is_down = False
    end(house, leaving)

    assert (leaving.is_pending, leaving.settled) == (False, 4)
    assert house.acme.plane.sessions == {}


def test_turn_is_bounded(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device with very many sessions keeps no other change waiting."""
    monkeypatch.setattr(departures, "PER_TURN", 2)
    for name in ("one", "two", "three"):
        house.join(name, props=KEPT).disconnect()
    leaving = Departures(house.hub)
    leaving.note([deleted(1)])

    end(house, leaving)
    assert len(house.acme.plane.sessions) == 1
    end(house, leaving)
    assert house.acme.plane.sessions == {}


def test_device_of_another_tenant_and_other_changes_mean_nobody_here(house: House) -> None:
    """A tenant that is not here has no sessions."""
    house.join("c", props=KEPT).disconnect()
    leaving = Departures(house.hub)
    leaving.note([deleted(1, tenant_id=8), Change(2, 7, ChangeKind.DEVICE, "dev1", 0)])

    end(house, leaving)

    assert "c" in house.acme.plane.sessions
    assert (leaving.is_pending, leaving.settled) == (False, 1)


def test_device_that_comes_back_before_its_record_is_forgotten_finds_the_door_closed(house: House) -> None:
    """Clients come back at once: their old record must not let them begin a session that nobody ends."""
    guest = house.join("c", props=KEPT)
    del house.accounts.devices[7, "dev1"]
    leaving = Departures(house.hub)
    leaving.note([deleted(1)])

    end(house, leaving)
    guest.expect_closed()

    assert house.ask("c", props=KEPT).connack.code != 0
    assert house.acme.plane.sessions == {}


def test_successor_is_not_hit_by_a_deletion_that_a_store_has_delayed(house: House) -> None:
    """The sessions that end are those that were there when the hub heard of the deletion."""
    house.join("old", props=KEPT).disconnect()
    leaving = Departures(house.hub)
    leaving.note([deleted(3)])
    house.journal.is_down = True
    end(house, leaving)
    successor = house.join("transient")

    end(house, leaving)
    house.journal.is_down = False
    house.join("new", props=KEPT)
    end(house, leaving)

    assert sorted(house.acme.plane.sessions) == ["new", "transient"]
    assert (leaving.is_pending, leaving.settled) == (False, 3)
    successor.ping()


def test_successor_under_the_same_client_id_is_not_hit(house: House) -> None:
    """While the end of the old session waits for its turn, the successor begins anew under the same Client Identifier."""
    house.join("c", props=KEPT).disconnect()
    leaving = Departures(house.hub)
    leaving.note([deleted(3)])
    house.journal.is_held = True
    successor = house.stranger()
    successor.send(successor.connect_bytes("c", "acme/dev1", props=KEPT))
    Deferred.fromCoroutine(leaving.turn())

    house.journal.release()
    house.settle()

    assert successor.expect(2).code == 0
    successor.ping()
    end(house, leaving)
    assert leaving.is_pending is False
    successor.ping()
