"""Sessions come, are taken over, resumed, replaced and end; their Wills are sent once or not at all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from twisted.internet.defer import Deferred

from iothub_services.auth.port import Action, Effect, Rule, Scope
from iothub_services.quota.names import Quota
from iothub_services.sessions.manager import EPOCH_BITS
from tests.support import property_names as names
from tests.support.control_house import EVERYTHING, House, device, now
from tests.support.packets import DISCONNECT
from tests.support.party import Guest

WILL = ("w/c", b"gone", 1, False)
NO_WILLS = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")
KEPT = [(names.SESSION_EXPIRY, 100)]


def keep(house: House, client_id: str = "c", **options: Any) -> Guest:
    """Connect with a session that outlives its connection by 100 s."""
    return house.join(client_id, props=KEPT, **{"clean": False} | options)


def payloads(guest: Guest) -> list[bytes]:
    return [packet.payload for packet in guest.fence()]


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


def test_will_is_sent_at_once_when_the_connection_breaks(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.2-8]."""
    keep(house, will=WILL).drop()
    house.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]
    assert "will.cleared" in house.journal.words()
    house.pass_time(200)
    assert payloads(watcher) == []


def test_will_is_not_sent_after_a_normal_disconnect(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.2-10]."""
    keep(house, will=WILL).disconnect()
    house.pass_time(200)

    assert payloads(watcher) == []


def test_will_is_sent_when_disconnect_asks_for_it(house: House, watcher: Guest) -> None:
    """Reason Code 0x04 [MQTT-3.14.4-3]."""
    keep(house, will=WILL).disconnect(0x04)
    house.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]


def test_delayed_will_waits(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.3-9]."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    house.pass_time(9)
    assert payloads(watcher) == []

    house.pass_time(1)
    assert payloads(watcher) == [b"gone"]


def test_delayed_will_is_cancelled_by_a_reconnect(house: House, watcher: Guest) -> None:
    """[MQTT-3.1.3-9]."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    house.pass_time(5)
    guest = keep(house)
    house.pass_time(50)
    guest.disconnect()
    house.pass_time(50)

    assert payloads(watcher) == []


def test_delayed_will_comes_with_the_end_of_the_session(house: House, watcher: Guest) -> None:
    """Whichever is first: the delay is longer than the session lives."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 1000)]).drop()
    house.pass_time(100)

    assert payloads(watcher) == [b"gone"]


def test_clean_start_sends_a_will_that_waits(house: House, watcher: Guest) -> None:
    """The session that it belonged to has ended."""
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    keep(house, clean=True)

    assert payloads(watcher) == [b"gone"]


def test_session_expires(house: House) -> None:
    """Its queue is dropped, its places are given back, the event is written."""
    guest = keep(house)
    guest.subscribe(("a", 1))
    guest.disconnect()
    house.pass_time(99)
    assert "c" in house.acme.plane.sessions
    house.journal.words()

    house.pass_time(1)

    assert "c" not in house.acme.plane.sessions
    assert house.queues.owners == {}
    assert house.journal.words() == ["session.expired"]
    assert (house.used(Quota.SESSIONS), house.used(Quota.SUBSCRIPTIONS)) == (0, 0)


def test_session_of_a_connected_client_does_not_expire(house: House) -> None:
    keep(house).disconnect()
    guest = keep(house)
    house.pass_time(200)

    assert "c" in house.acme.plane.sessions
    guest.ping()


def test_disconnect_changes_the_expiry(house: House) -> None:
    """§3.14.2.2.2."""
    keep(house).disconnect(0, props=[(names.SESSION_EXPIRY, 5)])
    house.pass_time(5)

    assert "c" not in house.acme.plane.sessions


def test_session_of_3_1_1_never_expires_by_itself(house: House) -> None:
    house.join(version=4, clean=False).disconnect()
    house.pass_time(10_000_000)

    assert house.join(version=4, clean=False).connack.session_present


def test_operator_discards_a_connected_session(house: House, watcher: Guest) -> None:
    """The client is told, its Will is sent, nothing is left; a second time there is nothing to discard."""
    guest = keep(house, will=WILL)

    assert now(house.sessions.discard(house.acme, "c", "operator"))
    house.settle()

    guest.expect_closed()
    assert "c" not in house.acme.plane.sessions
    assert house.queues.owners == {}
    assert payloads(watcher) == [b"gone"]
    assert not now(house.sessions.discard(house.acme, "c", "operator"))
    assert house.used(Quota.CONNECTIONS) == 1


def test_will_of_a_device_that_may_not_publish_there_any_more_is_dropped(house: House, watcher: Guest) -> None:
    """Checked again when it fires."""
    guest = keep(house, will=WILL, will_props=[(names.WILL_DELAY, 10)])
    guest.drop()
    house.accounts.add(replace(house.accounts.tenants["acme"], rules=(NO_WILLS, EVERYTHING), version=2))
    house.hub.authenticator.invalidate(7)
    house.pass_time(10)

    assert payloads(watcher) == []
    assert house.acme.plane.counters.drops()["denied"] == 1


def test_log_has_a_will_until_it_is_stored(house: House) -> None:
    """A hub that dies in between finds it there, and sends it again (storage page, section 7)."""
    sleeper = keep(house, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    house.journal.words()
    house.is_store_held = True

    keep(house, will=WILL).drop()
    house.pass_time(0.1)
    assert "will.cleared" not in house.journal.words()

    house.is_store_held = False
    house.settle()
    assert house.journal.words() == ["will.cleared"]


def held_will(house: House) -> None:
    """A Will has fired, and the store does not take it yet."""
    sleeper = keep(house, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    house.is_store_held = True
    keep(house, will=WILL).drop()
    house.pass_time(0.1)
    house.journal.words()


def test_will_on_its_way_stays_in_the_log_when_its_session_comes_back(house: House) -> None:
    """Until it is stored; then it is cleared with the epoch of now, which the fold does not ignore."""
    held_will(house)

    keep(house)

    assert house.journal.words() == ["session.resumed", "session.connected"]
    house.is_store_held = False
    house.settle()
    (cleared,) = house.journal.events
    assert (cleared.type.value, cleared.epoch) == ("will.cleared", house.acme.plane.sessions["c"].epoch)


def test_will_on_its_way_does_not_clear_the_next_one(house: House) -> None:
    """The next connection's Will has taken its place in the log."""
    held_will(house)

    keep(house, will=WILL)

    assert house.journal.words() == ["session.resumed", "will.set", "session.connected"]
    house.is_store_held = False
    house.settle()
    assert house.journal.words() == []


def test_will_without_delay_is_sent_before_the_next_connection_comes(house: House, watcher: Guest) -> None:
    """Taken over, or back at once: the old connection was closed, and there was nothing to wait for [MQTT-3.1.2-8] [MQTT-3.1.4-3]."""
    keep(house, will=WILL)
    keep(house, will=WILL).drop()
    keep(house)

    assert payloads(watcher) == [b"gone", b"gone"]


def test_session_that_could_not_be_made_durable_leaves_no_queue(house: House) -> None:
    """What was created for it is dropped again."""
    house.journal.is_down = True

    house.ask(props=KEPT)

    assert (house.queues.owners, house.queues.dropped) == ({}, [1])


def test_queue_without_a_session_is_dropped_when_the_store_lets_us(house: House) -> None:
    """A drop that fails is tried again, not forgotten."""
    house.journal.is_down = house.queues.is_down = True
    house.ask(props=KEPT)
    assert list(house.queues.owners) == [1]

    house.queues.is_down = False
    house.pass_time(0.2)

    assert house.queues.owners == {}


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


def test_session_whose_end_could_not_be_made_durable_ends_later(house: House) -> None:
    """It is neither forgotten nor kept for ever."""
    keep(house).disconnect()
    house.journal.is_down = True
    house.pass_time(100)
    assert "c" in house.acme.plane.sessions

    house.journal.is_down = False
    house.pass_time(0.2)

    assert "c" not in house.acme.plane.sessions
    assert house.used(Quota.SESSIONS) == 0


def keen_on_wills(house: House) -> None:
    """Somebody who is away is subscribed to Wills, so that these go through the store."""
    guest = house.join("away", version=4, username="acme/dev2", clean=False)
    guest.subscribe(("w/#", 1))
    guest.disconnect()
    house.journal.words()


def test_end_of_a_session_waits_until_its_will_is_stored(house: House) -> None:
    """A hub that dies in between sends it at its next start: the log has the session and its Will [MQTT-3.1.2-8]."""
    keen_on_wills(house)
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 50)]).drop()
    house.journal.words()
    house.is_store_held = True
    answers: list[bool] = []
    Deferred.fromCoroutine(house.sessions.discard(house.acme, "c", "operator")).addCallback(answers.append)
    house.settle()
    assert (answers, house.journal.words(), house.sessions.wills_under_way) == ([], [], 1)

    house.is_store_held = False
    house.settle()

    assert (answers, house.sessions.wills_under_way) == ([True], 0)
    assert house.journal.words() == ["will.cleared", "session.discarded"]


def test_session_does_not_expire_before_the_will_that_has_just_fired_is_stored(house: House) -> None:
    """The Will is under way when the session's own time comes."""
    keen_on_wills(house)
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    house.is_store_held = True
    house.pass_time(99.5)
    house.pass_time(1)
    assert "session.expired" not in house.journal.words()

    house.is_store_held = False
    house.settle()

    assert house.journal.words() == ["will.cleared", "session.expired"]


def test_will_of_a_transient_session_is_under_way_until_it_is_stored(house: House) -> None:
    """A hub that stops waits for it: no log remembers it."""
    keen_on_wills(house)
    guest = house.join(will=WILL)
    house.is_store_held = True
    guest.drop()
    assert house.sessions.wills_under_way == 1

    house.is_store_held = False
    house.settle()

    assert house.sessions.wills_under_way == 0


def test_log_that_does_not_answer_holds_up_no_will(house: House, watcher: Guest) -> None:
    """Sessions end beside one another."""
    keep(house, "slow").disconnect()
    keep(house, will=WILL, will_props=[(names.WILL_DELAY, 99)]).drop()
    house.pass_time(1)
    house.journal.is_held = True
    house.pass_time(99)

    assert payloads(watcher) == [b"gone"]
    assert sorted(house.acme.plane.sessions) == ["c", "slow", "watcher"]
    house.journal.release()
    assert sorted(house.acme.plane.sessions) == ["watcher"]


def sleeper_with_messages(house: House, *filters: tuple[str, int]) -> None:
    """Two messages wait for `c`, which is away."""
    guest = keep(house)
    guest.subscribe(*filters)
    guest.disconnect()
    publisher = house.join("p", username="acme/dev2")
    for packet_id in (1, 2):
        publisher.publish("a", b"x", 1, packet_id)
    publisher.disconnect()


def test_messages_of_a_session_that_expires_are_counted(house: House) -> None:
    """Nothing is dropped without a name."""
    sleeper_with_messages(house, ("a", 1))

    house.pass_time(100)

    assert house.acme.plane.counters.drops()["session_ended"] == 2


def test_messages_of_a_session_that_an_operator_discards_are_counted_as_purged(house: House) -> None:
    sleeper_with_messages(house, ("a", 1))

    assert now(house.sessions.discard(house.acme, "c", "operator"))

    drops = house.acme.plane.counters.drops()
    assert (drops["purged"], drops["session_ended"]) == (2, 0)


def test_messages_that_went_to_another_member_are_not_lost(house: House) -> None:
    """A shared group hands on what its member did not acknowledge [MQTT-4.8.2-4]."""
    sleeper_with_messages(house, ("$share/g/a", 1))
    heir = house.join("heir", username="acme/dev2")
    heir.subscribe(("$share/g/a", 1))

    house.pass_time(100)

    assert [packet.payload for packet in heir.get(2)] == [b"x", b"x"]
    assert house.acme.plane.counters.drops()["session_ended"] == 0


def test_queue_that_is_made_while_its_limits_change_gets_the_new_ones(house: House) -> None:
    """Who looked at the sessions did not see it; whoever is stored first finds the limits of now."""
    house.journal.is_held = True
    guest = house.stranger()
    guest.send(guest.connect_bytes("c", "acme/dev1", props=KEPT))
    record = replace(house.accounts.tenants["acme"], limits="session_queued_messages=5", version=2)
    assert house.queues.limits[1].messages != 5

    house.acme.obey(record, {})
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
