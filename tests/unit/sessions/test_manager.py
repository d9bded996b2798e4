"""Sessions come, are taken over, resumed, replaced and end; their Wills are sent once or not at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from iothub_services.quota.names import Quota
from iothub_services.sessions.manager import EPOCH_BITS
from iothub_services.sessions.port import SessionRequest
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import DISCONNECT
from tests.support.in_process.control_harness import Harness, device
from tests.support.in_process.kept_sessions import KEPT, WILL, keep, payloads


def test_transient_session_ends_with_its_connection(harness: Harness) -> None:
    """It has no queue and no events of a kept session."""
    client = harness.join()
    assert not client.connack.session_present
    client.disconnect()

    assert "c" not in harness.acme.plane.sessions
    assert harness.queues.owners == {}


@pytest.mark.parametrize(("expiry_s", "client_id", "is_opened"), [(0, "c", True), (9, "c", False), (0, "there", False)])
def test_only_a_new_transient_session_is_opened_at_once(
    harness: Harness, expiry_s: int, client_id: str, is_opened: bool
) -> None:
    """A persistent one waits for its queue, and a Client Identifier that is there for the end of its connection."""
    keep(harness, "there")
    request = SessionRequest(client_id, "dev1", 5, is_clean_start=True, expiry_s=expiry_s)

    opened = harness.hub.sessions.open_at_once(harness.acme, request)

    assert (opened is not None, client_id in harness.acme.plane.sessions) == (
        is_opened,
        client_id == "there" or is_opened,
    )
    assert harness.session("there").connection is not None


def test_persistent_session_is_resumed_with_a_higher_epoch(harness: Harness) -> None:
    """Its subscriptions and its queue are still there [MQTT-3.1.2-5]."""
    client = keep(harness)
    client.subscribe(("a", 1))
    session = harness.session("c")
    epoch, queue_id = session.epoch, session.queue_id
    assert epoch >> EPOCH_BITS == queue_id
    client.disconnect()
    harness.join("p").publish("a", b"x", 1)

    again = keep(harness)

    assert again.connack.session_present
    assert harness.session("c") is session
    assert (session.queue_id, session.epoch > epoch) == (queue_id, True)
    assert [packet.payload for packet in again.get()] == [b"x"]


def test_creation_of_a_kept_session_is_durable_before_connack(harness: Harness) -> None:
    harness.journal.is_held = True
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    with pytest.raises(TimeoutError):
        client.expect(2)

    harness.journal.release()

    assert client.expect(2).code == 0
    assert "session.created" in harness.journal.words()


def test_take_over_closes_the_older_connection(harness: Harness, watcher: Client) -> None:
    """0x8E, its Will is sent, and the newer one has the session [MQTT-3.1.4-3]."""
    first = keep(harness, will=WILL)
    second = keep(harness)

    assert [packet.code for packet in first.expect_closed() if packet.kind == DISCONNECT] == [0x8E]
    assert second.connack.session_present
    second.ping()
    assert harness.used(Quota.CONNECTIONS) == 2
    assert "session.taken_over" in harness.journal.words()


def test_take_over_of_a_transient_session_begins_anew(harness: Harness, watcher: Client) -> None:
    """The old session has ended, so its Will is due at once."""
    harness.join(will=WILL, will_props=[(names.WILL_DELAY, 60)])
    again = harness.join(clean=False)

    assert not again.connack.session_present
    assert payloads(watcher) == [b"gone"]


def test_clean_start_replaces_the_incarnation(harness: Harness) -> None:
    """New queue, epochs above all that were, nothing of the old one is left [MQTT-3.1.2-4]."""
    client = keep(harness)
    client.subscribe(("a", 1))
    old = harness.session("c")
    old_epoch, old_queue = old.epoch, old.queue_id
    client.disconnect()

    again = keep(harness, clean=True)

    new = harness.session("c")
    assert not again.connack.session_present
    assert (new.epoch > old_epoch, new.queue_id != old_queue, old.is_discarded) == (True, True, True)
    assert new.subscriptions == {}
    assert harness.queues.dropped == [old_queue]
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.SUBSCRIPTIONS)) == (1, 0)


def test_session_whose_queue_is_lost_begins_anew(harness: Harness) -> None:
    """Session Present 0 says so."""
    keep(harness).disconnect()
    harness.queues.owners.clear()

    again = keep(harness)

    assert not again.connack.session_present
    assert harness.used(Quota.SESSIONS) == 1
    again.ping()


def test_session_that_could_not_be_made_durable_leaves_no_queue(harness: Harness) -> None:
    """What was created for it is dropped again."""
    harness.journal.is_down = True

    harness.ask(props=KEPT)

    assert (harness.queues.owners, harness.queues.dropped) == ({}, [1])


@pytest.mark.parametrize("is_online", [True, False])
def test_session_whose_queue_is_lost_ends_where_somebody_finds_out(harness: Harness, is_online: bool) -> None:
    """Nobody waits for its client: what is for it would be acknowledged, and stored nowhere. Told twice, it ends once."""
    client = keep(harness)
    if not is_online:
        client.disconnect()
    session = harness.session("c")
    harness.queues.owners.clear()

    with capture_logs() as lines:
        for _ in range(2):
            harness.sessions.queue_lost(harness.acme, session)
        harness.settle()

    assert "c" not in harness.acme.plane.sessions
    (line,) = (line for line in lines if line["event"] == "session ended because its queue is lost")
    assert (line["tenant"], line["client_id"], line["queue"]) == ("acme", "c", session.queue_id)
    ends = [event.facts["reason"] for event in harness.journal.events if event.type.value == "session.discarded"]
    assert ends == ["queue_lost"]
    assert harness.queues.dropped == [session.queue_id]
    if is_online:
        client.refused(0x98)
    assert not keep(harness).connack.session_present


def test_session_whose_queue_is_there_after_all_lives_on(harness: Harness) -> None:
    """The claim that says so is a new reader's: the client comes again, and reads on."""
    client = keep(harness)

    harness.sessions.queue_lost(harness.acme, harness.session("c"))
    harness.settle()

    client.refused(0x97)
    assert harness.ask("c", clean=False).connack.session_present


def test_end_of_a_session_without_a_queue_that_fails_comes_at_the_next_loss(harness: Harness) -> None:
    """The store does not answer just now."""
    keep(harness)
    session = harness.session("c")
    harness.queues.is_silent = True
    harness.sessions.queue_lost(harness.acme, session)
    harness.settle()
    assert harness.session("c") is session

    harness.queues.is_silent = False
    harness.queues.owners.clear()
    harness.sessions.queue_lost(harness.acme, session)

    assert "c" not in harness.acme.plane.sessions


def test_session_that_could_not_be_resumed_is_as_it_was(harness: Harness, watcher: Client) -> None:
    """Its Will still comes, it still expires when its own time has come; the Will of the refused CONNECT is nobody's."""
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 50)]).drop()
    harness.pass_time(10)
    harness.journal.is_down = True
    assert harness.ask("c", clean=False, will=("w/c", b"of the refused", 1, False)).connack.code == 0x88
    harness.journal.is_down = False

    harness.pass_time(39)
    assert payloads(watcher) == []
    harness.pass_time(2)
    assert payloads(watcher) == [b"gone"]
    harness.pass_time(48)
    assert "c" in harness.acme.plane.sessions
    harness.pass_time(2)
    assert "c" not in harness.acme.plane.sessions


def test_queue_that_is_made_while_its_limits_change_gets_the_new_ones(harness: Harness) -> None:
    """Who looked at the sessions did not see it; whoever is stored first finds the limits of now."""
    harness.journal.is_held = True
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    record = replace(harness.accounts.tenants["acme"], limits="session_queued_messages=5", version=2)
    assert harness.queues.limits[1].messages != 5

    harness.acme.apply_record(record, {})
    harness.journal.release()

    assert harness.queues.limits[1].messages == 5


def number(harness: Harness, device_id: int) -> None:
    """Have `dev1` be another device of this name."""
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", id=device_id))
    harness.hub.authenticator.invalidate(7, "dev1")


@pytest.mark.parametrize("is_there", [True, False])
def test_successor_of_a_device_does_not_resume_its_session(harness: Harness, watcher: Client, is_there: bool) -> None:
    """Deleted and made anew before the hub has heard of it: neither subscriptions nor messages, and the old Will is nobody's."""
    number(harness, 1)
    old = keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)])
    old.subscribe(("a", 1))
    if not is_there:
        old.drop()
    harness.join("p", username="acme/dev2").publish("a", b"old", 1)
    number(harness, 2)

    new = keep(harness)
    harness.pass_time(50)

    assert not new.connack.session_present
    assert harness.session("c").subscriptions == {}
    assert payloads(watcher) == payloads(new) == []
    assert (harness.used(Quota.SESSIONS), harness.used(Quota.CONNECTIONS)) == (1, 3)
    assert len(harness.queues.dropped) == 1
    if is_there:
        assert [packet.code for packet in old.expect_closed() if packet.kind == DISCONNECT] == [0x87]


def test_session_of_a_device_that_got_its_number_later_is_its_own(harness: Harness) -> None:
    """A plug-in has let it in before it was in the accounts; from now on the session is of this device alone."""
    keep(harness).disconnect()
    number(harness, 1)

    assert keep(harness).connack.session_present

    created, resumed = (
        event for event in harness.journal.events if event.type.value in ("session.created", "session.resumed")
    )
    assert ("device_id" in created.facts, resumed.facts["device_id"]) == (False, 1)


def test_predecessor_does_not_get_the_session_of_its_successor(harness: Harness) -> None:
    """Its record is still in memory here."""
    number(harness, 2)
    keep(harness).disconnect()
    number(harness, 1)

    assert harness.ask("c", clean=False, props=KEPT).connack.code == 0x87
    assert harness.session("c").control.device_id == 2
