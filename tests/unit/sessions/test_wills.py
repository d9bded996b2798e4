"""When the Will of a session is sent, and when not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from iothub_services.auth.port import Action, Effect, Rule, Scope
from iothub_services.sessions.firing import WAIT_S
from iothub_services.sessions.wills import will_id
from iothub_tenants.broker.wills import Wills as PublishedWills
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import CONNACK
from tests.support.in_process.control_harness import EVERYTHING, Harness
from tests.support.in_process.kept_sessions import KEPT, WILL, keen_on_wills, keep, payloads

NO_WILLS = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")


def test_will_is_sent_at_once_when_the_connection_breaks(harness: Harness, watcher: Client) -> None:
    """[MQTT-3.1.2-8]."""
    keep(harness, will=WILL).drop()
    harness.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]
    assert "will.cleared" in harness.journal.words()
    harness.pass_time(200)
    assert payloads(watcher) == []


def test_will_is_not_sent_after_a_normal_disconnect(harness: Harness, watcher: Client) -> None:
    """[MQTT-3.1.2-10]."""
    keep(harness, will=WILL).disconnect()
    harness.pass_time(200)

    assert payloads(watcher) == []


def test_will_is_sent_when_disconnect_asks_for_it(harness: Harness, watcher: Client) -> None:
    """Reason Code 0x04 [MQTT-3.14.4-3]."""
    keep(harness, will=WILL).disconnect(0x04)
    harness.pass_time(0.1)

    assert payloads(watcher) == [b"gone"]


def test_delayed_will_waits(harness: Harness, watcher: Client) -> None:
    """[MQTT-3.1.3-9]."""
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    harness.pass_time(9)
    assert payloads(watcher) == []

    harness.pass_time(1)
    assert payloads(watcher) == [b"gone"]


def test_delayed_will_is_cancelled_by_a_reconnect(harness: Harness, watcher: Client) -> None:
    """[MQTT-3.1.3-9]."""
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    harness.pass_time(5)
    client = keep(harness)
    harness.pass_time(50)
    client.disconnect()
    harness.pass_time(50)

    assert payloads(watcher) == []


def test_delayed_will_comes_with_the_end_of_the_session(harness: Harness, watcher: Client) -> None:
    """Whichever is first: the delay is longer than the session lives."""
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 1000)]).drop()
    harness.pass_time(100)

    assert payloads(watcher) == [b"gone"]


def test_clean_start_sends_a_will_that_waits(harness: Harness, watcher: Client) -> None:
    """The session that it belonged to has ended."""
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    keep(harness, clean=True)

    assert payloads(watcher) == [b"gone"]


def test_will_of_a_device_that_may_not_publish_there_any_more_is_dropped(harness: Harness, watcher: Client) -> None:
    """Checked again when it fires."""
    client = keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)])
    client.drop()
    harness.accounts.add(replace(harness.accounts.tenants["acme"], rules=(NO_WILLS, EVERYTHING), version=2))
    harness.hub.authenticator.invalidate(7)
    harness.pass_time(10)

    assert payloads(watcher) == []
    assert harness.acme.plane.counters.drops()["denied"] == 1


def test_log_has_a_will_until_it_is_stored(harness: Harness) -> None:
    """After a crash in between, the next start finds the Will in the log and sends it again."""
    sleeper = keep(harness, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    harness.journal.words()
    harness.is_store_held = True

    keep(harness, will=WILL).drop()
    harness.pass_time(0.1)
    assert "will.cleared" not in harness.journal.words()

    harness.is_store_held = False
    harness.settle()
    assert harness.journal.words() == ["will.cleared"]


def held_will(harness: Harness) -> None:
    """A Will has fired, and the store does not take it yet."""
    sleeper = keep(harness, "sleeper", username="acme/dev2")
    sleeper.subscribe(("w/#", 1))
    sleeper.disconnect()
    harness.is_store_held = True
    keep(harness, will=WILL).drop()
    harness.pass_time(0.1)
    harness.journal.words()


def test_client_waits_until_the_will_of_its_last_connection_is_stored(harness: Harness) -> None:
    """Its CONNECT puts another Will into the log, and a crash would lose this one."""
    held_will(harness)

    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", clean=False, props=KEPT, will=WILL))
    harness.settle()
    assert harness.journal.words() == []
    harness.is_store_held = False
    harness.settle()

    assert harness.journal.words() == ["will.cleared", "session.resumed", "will.set", "session.connected"]
    assert client.expect(CONNACK).code == 0
    assert harness.sessions.wills_overtaken == 0


def overtake(harness: Harness, **options: Any) -> None:
    """A client that has waited long enough for its Will connects."""
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", clean=False, props=KEPT, **options))
    harness.pass_time(WAIT_S)
    assert client.expect(CONNACK).code == 0
    assert harness.sessions.wills_overtaken == 1


def test_will_on_its_way_stays_in_the_log_when_its_session_comes_back(harness: Harness) -> None:
    """Until it is stored; then it is cleared with the epoch of now, which the fold does not ignore."""
    held_will(harness)

    overtake(harness)

    assert harness.journal.words() == ["session.resumed", "session.connected"]
    harness.is_store_held = False
    harness.settle()
    (cleared,) = harness.journal.events
    assert (cleared.type.value, cleared.epoch) == ("will.cleared", harness.acme.plane.sessions["c"].epoch)


def test_will_on_its_way_does_not_clear_the_next_one(harness: Harness) -> None:
    """The next connection's Will has taken its place in the log."""
    held_will(harness)

    overtake(harness, will=WILL)

    assert harness.journal.words() == ["session.resumed", "will.set", "session.connected"]
    harness.is_store_held = False
    harness.settle()
    assert harness.journal.words() == []


def test_will_without_delay_is_sent_before_the_next_connection_comes(harness: Harness, watcher: Client) -> None:
    """Taken over, or back at once: the old connection was closed, and there was nothing to wait for [MQTT-3.1.2-8] [MQTT-3.1.4-3]."""
    keep(harness, will=WILL)
    keep(harness, will=WILL).drop()
    keep(harness)

    assert payloads(watcher) == [b"gone", b"gone"]


def test_will_of_a_transient_session_is_under_way_until_it_is_stored(harness: Harness) -> None:
    """A hub that stops waits for it: no log remembers it."""
    keen_on_wills(harness)
    client = harness.join(will=WILL)
    harness.is_store_held = True
    client.drop()
    assert harness.sessions.wills_under_way == 1

    harness.is_store_held = False
    harness.settle()

    assert harness.sessions.wills_under_way == 0


def test_wills_of_two_transient_connections_differ(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """A queue that knows the message id of the first one would drop the second."""
    ids: list[bytes] = []
    monkeypatch.setattr(PublishedWills, "fire", lambda *arguments: ids.append(arguments[2].message_id))

    for _ in range(20):
        harness.join(will=WILL).drop()

    assert len(set(ids)) == 20


def test_will_keeps_its_message_id_whatever_epoch_its_session_has(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another hub may have sent it before a CONNECT that failed has claimed the queue: a queue must recognise it."""
    ids: list[bytes] = []
    monkeypatch.setattr(PublishedWills, "fire", lambda *arguments: ids.append(arguments[2].message_id))
    keep(harness, will=WILL, will_props=[(names.WILL_DELAY, 10)]).drop()
    session = harness.session("c")
    expected = will_id(session, session.control.will)

    session.epoch += 1
    harness.pass_time(10)

    assert ids == [expected]
