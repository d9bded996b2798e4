"""Sessions come, are taken over, resumed, replaced and end; their Wills are sent once or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest

from iothub_services.quota.names import Quota
from iothub_services.sessions.manager import EPOCH_BITS
from tests.support import property_names as names
from tests.support.control_house import House, device
from tests.support.kept_sessions import KEPT, WILL, keep, payloads
from tests.support.packets import DISCONNECT
from tests.support.party import Guest


def test_transient_session_ends_with_its_connection(house: House) -> None:
    """It has no queue and no events of a kept session."""
    guest = house.join()
    assert not guest.connack.session_present
    guest.disconnect()

    assert "c" not in house.acme.plane.sessions
    assert house.queues.owners == {}


def test_persistent_session_is_resumed_with_a_higher_epoch(house: House) -> None:
    """Its subscriptions and its queue are still there [MQTT-3.1.2-5]."""
    guest = keep(house)
    guest.subscribe(("a", 1))
    session = house.session("c")
    epoch, queue_id = session.epoch, session.queue_id
    assert epoch >> EPOCH_BITS == queue_id
    guest.disconnect()
    house.join("p").publish("a", b"x", 1)

    again = keep(house)

    assert again.connack.session_present
    assert house.session("c") is session
    assert (session.queue_id, session.epoch > epoch) == (queue_id, True)
    assert [packet.payload for packet in again.get()] == [b"x"]


def test_creation_of_a_kept_session_is_durable_before_connack(house: House) -> None:
    house.journal.is_held = True
    guest = house.stranger()
    guest.send(guest.connect_bytes("c", "acme/dev1", props=KEPT))
    with pytest.raises(TimeoutError):
        guest.expect(2)

    house.journal.release()

    assert guest.expect(2).code == 0
    assert "session.created" in house.journal.words()


def test_take_over_closes_the_older_connection(house: House, watcher: Guest) -> None:
    """0x8E, its Will is sent, and the newer one has the session [MQTT-3.1.4-3]."""
    first = keep(house, will=WILL)
    second = keep(house)

    assert [packet.code for packet in first.expect_closed() if packet.kind == DISCONNECT] == [0x8E]
    assert second.connack.session_present
    second.ping()
    assert house.used(Quota.CONNECTIONS) == 2
    assert "session.taken_over" in house.journal.words()


def test_take_over_of_a_transient_session_begins_anew(house: House, watcher: Guest) -> None:
    """The old session has ended, so its Will is due at once."""
    house.join(will=WILL, will_props=[(names.WILL_DELAY, 60)])
    again = house.join(clean=False)

    assert not again.connack.session_present
    assert payloads(watcher) == [b"gone"]


def test_clean_start_replaces_the_incarnation(house: House) -> None:
    """New queue, epochs above all that were, nothing of the old one is left [MQTT-3.1.2-4]."""
    guest = keep(house)
    guest.subscribe(("a", 1))
    old = house.session("c")
    old_epoch, old_queue = old.epoch, old.queue_id
    guest.disconnect()

    again = keep(house, clean=True)

    new = house.session("c")
    assert not again.connack.session_present
    assert (new.epoch > old_epoch, new.queue_id != old_queue, old.is_discarded) == (True, True, True)
    assert new.subscriptions == {}
    assert house.queues.dropped == [old_queue]
    assert (house.used(Quota.SESSIONS), house.used(Quota.SUBSCRIPTIONS)) == (1, 0)


def test_session_whose_queue_is_lost_begins_anew(house: House) -> None:
    """Session Present 0 says so."""
    keep(house).disconnect()
    house.queues.owners.clear()

    again = keep(house)

    assert not again.connack.session_present
    assert house.used(Quota.SESSIONS) == 1
    again.ping()


def test_session_that_could_not_be_made_durable_leaves_no_queue(house: House) -> None:
    """What was created for it is dropped again."""
    house.journal.is_down = True

    house.ask(props=KEPT)

    assert (house.queues.owners, house.queues.dropped) == ({}, [1])


@pytest.mark.parametrize("is_online", [True, False])
def test_session_whose_queue_is_lost_ends_where_somebody_finds_out(house: House, is_online: bool) -> None:
    """Nobody waits for its client: what is for it would be acknowledged, and stored nowhere. Told twice, it ends once."""
    client = keep(house)
    if not is_online:
        client.disconnect()
    session = house.session("c")
    house.queues.owners.clear()

    for _ in range(2):
        house.sessions.queue_lost(house.acme, session)
    house.settle()

    assert "c" not in house.acme.plane.sessions
    ends = [event.facts["reason"] for event in house.journal.events if event.type.value == "session.discarded"]
    assert ends == ["queue_lost"]
    assert house.queues.dropped == [session.queue_id]
    if is_online:
        client.refused(0x98)
    assert not keep(house).connack.session_present


def test_session_whose_queue_is_there_after_all_lives_on(house: House) -> None:
    """The claim that says so is a new reader's: the client comes again, and reads on."""
    client = keep(house)

    house.sessions.queue_lost(house.acme, house.session("c"))
    house.settle()

    client.refused(0x97)
    assert house.ask("c", clean=False).connack.session_present


def test_end_of_a_session_without_a_queue_that_fails_comes_at_the_next_loss(house: House) -> None:
    """The store does not answer just now."""
    keep(house)
    session = house.session("c")
    house.queues.is_silent = True
    house.sessions.queue_lost(house.acme, session)
    house.settle()
    assert house.session("c") is session

    house.queues.is_silent = False
    house.queues.owners.clear()
    house.sessions.queue_lost(house.acme, session)

    assert "c" not in house.acme.plane.sessions


def test_session_that_could_not_be_resumed_is_as_it_was(house: House, watcher: Guest) -> None:
    """Its Will still comes, it still expires when its own time has come; the Will of the refused CONNECT is nobody's."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 50)]).drop()
    house.pass_time(10)
    house.journal.is_down = True
    assert house.ask("c", clean=False, will=("w/c", b"of the refused", 1, False)).connack.code == 0x88
    house.journal.is_down = False

    house.pass_time(39)
    assert payloads(watcher) == []
    house.pass_time(2)
    assert payloads(watcher) == [b"gone"]
    house.pass_time(48)
    assert "c" in house.acme.plane.sessions
    house.pass_time(2)
    assert "c" not in house.acme.plane.sessions


def test_queue_that_is_made_while_its_limits_change_gets_the_new_ones(house: House) -> None:
    """Who looked at the sessions did not see it; whoever is stored first finds the limits of now."""
    house.journal.is_held = True
    guest = house.stranger()
    guest.send(guest.connect_bytes("c", "acme/dev1", props=KEPT))
    record = replace(house.accounts.tenants["acme"], limits="session_queued_messages=5", version=2)
    assert house.queues.limits[1].messages != 5

    house.acme.apply_record(record, {})
    house.journal.release()

    assert house.queues.limits[1].messages == 5


def number(house: House, device_id: int) -> None:
    """Have `dev1` be another device of this name."""
    house.accounts.add(house.accounts.tenants["acme"], device("dev1", id=device_id))
    house.hub.authenticator.invalidate(7, "dev1")


@pytest.mark.parametrize("is_there", [True, False])
def test_successor_of_a_device_does_not_resume_its_session(house: House, watcher: Guest, is_there: bool) -> None:
    """Deleted and made anew before the hub has heard of it: neither subscriptions nor messages, and the old Will is nobody's."""
    number(house, 1)
    old = keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)])
    old.subscribe(("a", 1))
    if not is_there:
        old.drop()
    house.join("p", username="acme/dev2").publish("a", b"old", 1)
    number(house, 2)

    new = keep(house)
    house.pass_time(50)

    assert not new.connack.session_present
    assert house.session("c").subscriptions == {}
    assert payloads(watcher) == payloads(new) == []
    assert (house.used(Quota.SESSIONS), house.used(Quota.CONNECTIONS)) == (1, 3)
    assert len(house.queues.dropped) == 1
    if is_there:
        assert [packet.code for packet in old.expect_closed() if packet.kind == DISCONNECT] == [0x87]


def test_session_of_a_device_that_got_its_number_later_is_its_own(house: House) -> None:
    """A plug-in has let it in before it was in the accounts; from now on the session is of this device alone."""
    keep(house).disconnect()
    number(house, 1)

    assert keep(house).connack.session_present

    created, resumed = (
        event for event in house.journal.events if event.type.value in ("session.created", "session.resumed")
    )
    assert ("device_id" in created.facts, resumed.facts["device_id"]) == (False, 1)


def test_predecessor_does_not_get_the_session_of_its_successor(house: House) -> None:
    """Its record is still in memory here."""
    number(house, 2)
    keep(house).disconnect()
    number(house, 1)

    assert house.ask("c", clean=False, props=KEPT).connack.code == 0x87
    assert house.session("c").control.device_id == 2
