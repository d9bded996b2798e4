"""CONNECT: a refusal touches nothing, and the CONNACK of an accepted one says what was agreed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from iothub.config.sections import Auth, Config, Mqtt
from iothub_services.auth.port import Action, ClientIdPolicy, Effect, Rule, Scope, TenantRecord, TenantState
from iothub_services.quota.names import Quota
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import CONNACK
from tests.support.in_process.control_harness import EVERYTHING, Harness, now

KEPT = [(names.SESSION_EXPIRY, 100)]
NO_WILLS = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")


def nothing_is_taken(harness: Harness) -> bool:
    return (harness.used(Quota.CONNECTIONS), harness.used(Quota.SESSIONS), harness.acme.plane.sessions) == (0, 0, {})


@pytest.mark.parametrize(
    ("username", "password"),
    [("acme/dev1", "wrong"), ("acme/nobody", "secret"), ("nowhere/dev1", "secret"), ("dev1", "secret"), (None, None)],
)
def test_wrong_credentials_are_all_answered_alike(harness: Harness, username: str | None, password: str | None) -> None:
    """0x87 in 5.0, 5 in 3.1.1, then closed [MQTT-3.2.2-7]."""
    for version, code in ((5, 0x87), (4, 5)):
        client = harness.open_connection(version)
        assert client.connect("c", username, password).code == code
        assert client.expect_closed() == []

    assert nothing_is_taken(harness)


@pytest.mark.parametrize(
    ("username", "cause"),
    [("acme/nobody", "unknown_device"), ("dev1", "malformed_username"), (None, "malformed_username")],
)
def test_refused_login_is_told_with_its_cause(harness: Harness, username: str | None, cause: str) -> None:
    """The client gets a plain refusal; log and metric say what is wrong with its username."""
    assert harness.open_connection().connect("c", username, "secret" if username else None).code == 0x87

    assert harness.recorder.causes == [cause]


def test_refusal_leaves_a_fixed_time_after_its_connect(make_harness: Callable[..., Harness]) -> None:
    """B69: the answer's time says nothing about the cause."""
    harness = make_harness(settings=Config(auth=Auth(failure_reply_ms=250)))
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", "wrong"))
    harness.pass_time(0.2)
    with pytest.raises(TimeoutError):
        client.expect(2)

    harness.pass_time(0.06)

    assert client.expect(2).code == 0x87


def test_version_that_is_switched_off_is_refused(make_harness: Callable[..., Harness]) -> None:
    """5.0 by 0x84, 3.1.1 by 1."""
    harness = make_harness(settings=Config(mqtt=Mqtt(versions=("3.1.1",)), auth=Auth(failure_reply_ms=0)))

    assert harness.ask(version=5).connack.code == 0x84
    assert harness.ask(version=4).connack.code == 0


def test_suspended_tenant_is_told_by_a_code_that_connack_has(harness: Harness) -> None:
    harness.accounts.add(TenantRecord(7, "acme", state=TenantState.SUSPENDED))

    assert harness.ask(version=5).connack.code in (0x87, 0x8A)
    assert harness.ask(version=4).connack.code == 5


def test_accounts_that_are_down_let_nobody_in(harness: Harness) -> None:
    """0x88 and 3."""
    harness.accounts.is_down = True

    assert harness.ask(version=5).connack.code == 0x88
    assert harness.ask(version=4).connack.code == 3


def test_client_identifier_is_assigned(harness: Harness) -> None:
    """[MQTT-3.1.3-6] [MQTT-3.1.3-7]."""
    first, second = harness.join(""), harness.join("")

    names_given = {str(client.connack.property(names.ASSIGNED_CLIENT_ID)) for client in (first, second)}
    assert names_given == set(harness.acme.plane.sessions)
    assert len(names_given) == 2


@pytest.mark.parametrize(
    ("policy", "client_id", "code"),
    [
        (ClientIdPolicy.EQUAL, "dev1", 0),
        (ClientIdPolicy.EQUAL, "c", 0x87),
        (ClientIdPolicy.EQUAL, "", 0x87),
        (ClientIdPolicy.PREFIX, "dev1/x", 0),
        (ClientIdPolicy.PREFIX, "dev12", 0x87),
        (ClientIdPolicy.OWNER, "", 0),
    ],
)
def test_client_identifier_follows_the_policy(
    harness: Harness, policy: ClientIdPolicy, client_id: str, code: int
) -> None:
    harness.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING,), client_id_policy=policy))

    assert harness.ask(client_id).connack.code == code


def test_session_of_another_device_cannot_be_taken(harness: Harness) -> None:
    """Its owner goes on undisturbed."""
    owner = harness.join("c", props=KEPT)

    assert harness.ask("c", username="acme/dev2").connack.code == 0x87
    owner.ping()


def test_session_that_was_opened_while_a_connect_waited_for_it_keeps_its_owner(harness: Harness) -> None:
    """Two devices ask for a new Client Identifier at the same time: it belongs to nobody when both are checked, and to one of them afterwards."""
    harness.journal.is_held = True
    first, second = harness.open_connection(), harness.open_connection()
    first.send(first.connect_bytes("c", "acme/dev1", props=KEPT))
    second.send(second.connect_bytes("c", "acme/dev2", clean=False, props=KEPT))
    assert harness.journal.waiting != []

    harness.journal.release()
    harness.settle()

    assert second.expect(CONNACK).code == 0x87
    assert second.expect_closed() == []
    assert first.expect(CONNACK).code == 0
    first.ping()
    assert harness.session("c").device == "dev1"
    assert (harness.used(Quota.CONNECTIONS), harness.used(Quota.SESSIONS)) == (1, 1)


@pytest.mark.parametrize("client_id", ["c", ""])
def test_connack_above_the_clients_maximum_packet_size_is_not_sent(harness: Harness, client_id: str) -> None:
    """The connection ends without an answer, and nothing was opened for it; of just that size it is sent [MQTT-3.1.2-24]."""
    first = harness.open_connection()
    first.send(first.connect_bytes(client_id, "acme/dev1"))
    size = len(first.stream.recv(65536))
    first.disconnect()

    client = harness.open_connection()
    client.send(client.connect_bytes(client_id, "acme/dev1", props=[*KEPT, (names.MAXIMUM_PACKET_SIZE, size - 1)]))

    assert client.expect_closed() == []
    assert nothing_is_taken(harness)
    assert harness.recorder.answers[-1] == "packet_too_large"
    last = harness.open_connection()
    last.send(last.connect_bytes(client_id, "acme/dev1", props=[(names.MAXIMUM_PACKET_SIZE, size)]))
    assert len(last.stream.recv(65536)) == size


def test_refusal_above_the_clients_maximum_packet_size_is_not_sent(harness: Harness) -> None:
    """A CONNACK with a Reason Code has five bytes [MQTT-3.1.2-24]."""
    for size, codes in ((5, [0x87]), (4, [])):
        client = harness.open_connection()
        client.send(client.connect_bytes("c", "acme/dev1", "wrong", props=[(names.MAXIMUM_PACKET_SIZE, size)]))

        assert [packet.code for packet in client.expect_closed()] == codes


@pytest.mark.parametrize(
    ("limits", "options", "code"),
    [
        ("connections=0", {}, 0x97),
        ("sessions=0", {"props": KEPT}, 0x97),
        ("packet_bytes=64", {"client_id": "c" * 50}, 0x95),
        ("will_bytes=3", {"will": ("w", b"1234", 0, False)}, 0x95),
        ("topic_levels=2", {"will": ("w/x/y", b"", 0, False)}, 0x90),
        ("topic_levels=unlimited", {"will": ("/" * 1024, b"", 0, False)}, 0x90),
        ("user_properties=1", {"props": [(names.USER_PROPERTY, ("a", "b"))] * 2}, 0x97),
        (
            "user_properties=1",
            {"will": ("w", b"", 0, False), "will_props": [(names.USER_PROPERTY, ("a", "b"))] * 2},
            0x97,
        ),
    ],
)
def test_limit_refuses(harness: Harness, limits: str, options: dict[str, Any], code: int) -> None:
    """And nothing stays reserved."""
    harness.limit(limits)

    assert harness.ask(**options).connack.code == code
    assert nothing_is_taken(harness)


def test_connects_have_a_rate(harness: Harness) -> None:
    """0x9F; what is refused does not count."""
    harness.limit("connects=1/1h")
    harness.join("a")

    assert harness.ask("b").connack.code == 0x9F
    assert harness.used(Quota.CONNECTIONS) == 1


def test_will_needs_the_right_to_publish(harness: Harness) -> None:
    harness.accounts.add(TenantRecord(7, "acme", rules=(EVERYTHING, NO_WILLS)))

    assert harness.ask(will=("w/x", b"", 0, False)).connack.code == 0x87
    assert harness.ask(will=("v/x", b"", 0, False)).connack.code == 0


def test_connack_says_what_differs_from_what_was_asked(harness: Harness) -> None:
    """[MQTT-3.2.2-21]: the client uses the Server Keep Alive."""
    harness.limit("session_expiry_s=10 receive_maximum=5 topic_aliases=3 packet_bytes=1000 keep_alive_min_s=30")
    connack = harness.join(props=KEPT, keep_alive=20).connack

    assert dict(connack.properties) == {
        names.SESSION_EXPIRY: 10,
        names.RECEIVE_MAXIMUM: 5,
        names.TOPIC_ALIAS_MAXIMUM: 3,
        names.MAXIMUM_PACKET_SIZE: 1000,
        names.SERVER_KEEP_ALIVE: 30,
    }
    assert harness.session("c").control.expiry_s == 10


def test_session_that_could_not_be_made_durable_gives_everything_back(harness: Harness) -> None:
    """0x88, and the next CONNECT finds nothing in its way."""
    harness.journal.is_down = True
    assert harness.ask(props=KEPT).connack.code == 0x88
    assert (harness.used(Quota.CONNECTIONS), harness.used(Quota.SESSIONS)) == (0, 0)

    harness.journal.is_down = False
    assert harness.ask(props=KEPT).connack.code == 0


def test_units_of_other_hubs_are_asked_for_before_they_are_reserved(harness: Harness) -> None:
    """The rate first, then a connection, and a session unless there is one; a connection that is taken over has its own."""
    others = harness.share_quota()

    first = harness.join(props=KEPT)
    harness.join(clean=False, props=KEPT)
    first.expect_closed()

    rate = ((Quota.CONNECTS, 1),)
    assert others.asked == [
        rate,
        ((Quota.CONNECTIONS, 1), (Quota.SESSIONS, 1)),
        rate,
        ((Quota.CONNECTIONS, 0), (Quota.SESSIONS, 0)),
    ]
    others.is_silent = True
    assert harness.ask("d").connack.code == 0x88


def test_client_that_leaves_while_its_session_is_opened_keeps_the_session(harness: Harness) -> None:
    """But no place among the connections."""
    harness.journal.is_held = True
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    client.drop()

    harness.journal.release()
    harness.settle()

    assert harness.session("c").connection is None
    assert (harness.used(Quota.CONNECTIONS), harness.used(Quota.SESSIONS)) == (0, 1)
    harness.pass_time(100)
    assert nothing_is_taken(harness)


def test_accounts_that_change_meanwhile_are_asked_again(harness: Harness) -> None:
    """Who waited for the session's lock, or for the session, is checked anew: the device is disabled now."""
    harness.journal.is_held = True
    first, second = harness.open_connection(), harness.open_connection()
    first.send(first.connect_bytes("c", "acme/dev1", props=KEPT))
    second.send(second.connect_bytes("c", "acme/dev1", props=KEPT))
    known = harness.accounts.devices[7, "dev1"]
    harness.accounts.add(harness.accounts.tenants["acme"], replace(known, is_enabled=False))
    harness.hub.authenticator.invalidate(7, "dev1")

    harness.journal.release()
    harness.settle()

    assert second.expect(2).code == 0x87
    assert first.expect(2).code == 0x87
    assert nothing_is_taken(harness)


def test_session_of_a_device_whose_rights_cannot_be_read_again_does_not_come_into_force(harness: Harness) -> None:
    """The accounts are down just when they have changed: the client tries again later."""
    harness.journal.is_held = True
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    harness.hub.authenticator.invalidate(7, "dev1")
    harness.accounts.is_down = True

    harness.journal.release()
    harness.settle()

    assert client.expect(2).code == 0x88
    assert nothing_is_taken(harness)


def test_queue_ids_beyond_the_block_are_waited_for(harness: Harness) -> None:
    harness.ids.is_empty = True

    assert harness.ask(props=KEPT).connack.code == 0
    assert harness.ids.last == 1


def wait_in_vain(harness: Harness, client: Client, **options: Any) -> None:
    """Send CONNECT while the log does not answer, until the hub has had its time."""
    harness.journal.is_held = True
    client.send(client.connect_bytes("c", "acme/dev1", **options))
    harness.clock.advance(9.1)
    now(harness.control.connect_timeouts.reject_overdue())
    harness.settle()


@pytest.mark.parametrize(("version", "code"), [(4, 3), (5, 0x88)])
def test_connect_that_a_store_keeps_waiting_is_refused_in_time(harness: Harness, version: int, code: int) -> None:
    """Before the client's patience, and the connect timeout, end; its place is free at once (§3.2.2.2)."""
    client = harness.open_connection(version)

    wait_in_vain(harness, client, clean=False, props=KEPT if version == 5 else None)

    assert [packet.code for packet in client.expect_closed()] == [code]
    assert harness.recorder.answers == ["server_unavailable"]
    assert harness.used(Quota.CONNECTIONS) == 0


def test_connect_that_was_kept_waiting_is_logged_with_its_client(harness: Harness) -> None:
    """Whose it was is known, though no store has answered."""
    with capture_logs() as lines:
        wait_in_vain(harness, harness.open_connection(), props=KEPT)
        harness.connection_log.write()

    (line,) = [line for line in lines if line["event"] == "client refused"]
    assert (line["device"], line["client_id"], line["rule"]) == ("dev1", "c", "not_answered_in_time")


def test_ill_formed_connect_whose_answer_waits_too_long_is_refused_in_time(
    make_harness: Callable[..., Harness],
) -> None:
    """Where failures are answered later than a store may take."""
    harness = make_harness(settings=Config(auth=Auth(failure_reply_ms=20_000)))
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=[(names.RECEIVE_MAXIMUM, 0)]))

    harness.clock.advance(9.1)
    now(harness.control.connect_timeouts.reject_overdue())
    harness.settle()

    assert client.expect(CONNACK).code == 0x88


def test_session_of_a_refused_connect_does_not_come_into_force_later(harness: Harness) -> None:
    """The event was written after all: the next CONNECT finds no session, and no Will was sent in between [MQTT-3.2.2-2]."""
    watcher = harness.join("watcher", username="acme/dev2")
    watcher.subscribe(("w/#", 0))
    client = harness.open_connection()
    wait_in_vain(harness, client, clean=False, props=KEPT, will=("w/c", b"gone", 0, False))

    harness.journal.release()
    harness.settle()

    assert harness.recorder.answers == ["accepted", "server_unavailable"]
    assert harness.journal.words()[-1] == "session.discarded"
    assert "c" not in harness.acme.plane.sessions
    assert (harness.queues.owners, harness.used(Quota.SESSIONS)) == ({}, 0)
    assert not harness.join("c", clean=False, props=KEPT).connack.session_present
    assert watcher.fence() == []


def test_session_that_a_refused_connect_resumed_is_as_it_was(harness: Harness) -> None:
    """Session Present tells the truth, and the terms are those of the last CONNECT that was accepted."""
    first = harness.join("c", clean=False, props=KEPT)
    first.subscribe(("a", 1))
    first.disconnect()
    wait_in_vain(
        harness, harness.open_connection(), clean=False, props=[(names.SESSION_EXPIRY, 5)], will=("w/c", b"x", 1, False)
    )

    harness.journal.release()
    harness.settle()

    control = harness.session("c").control
    assert (control.expiry_s, control.will, harness.session("c").connection) == (100, None, None)
    assert harness.journal.words()[-2:] == ["session.resumed", "will.cleared"]
    assert harness.join("c", clean=False, props=KEPT).connack.session_present


def test_connect_that_waits_for_its_turn_is_refused_in_time_too(harness: Harness) -> None:
    """Somebody else's CONNECT with this Client Identifier is under way for ever; nothing of the second one happens when that ends."""
    first, second = harness.open_connection(), harness.open_connection()
    harness.journal.is_held = True
    first.send(first.connect_bytes("c", "acme/dev1", props=KEPT))
    harness.clock.advance(5)
    wait_in_vain(harness, second, clean=False, props=KEPT)
    assert [packet.code for packet in first.expect_closed()] == [0x88]
    assert [packet.code for packet in second.expect_closed()] == [0x88]

    harness.journal.release()
    harness.settle()

    assert nothing_is_taken(harness)
    assert len(harness.control.connect_timeouts) == 0
