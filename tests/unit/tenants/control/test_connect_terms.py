"""CONNECT at the edges: limits to the byte, what is given back and when, and which of the CONNACK's terms are said."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from iothub.base.reasons import Reason
from iothub.config.sections import Auth, Config
from iothub.engine.state import Connection
from iothub_services.auth.authenticator import FAILED_REPLY_S
from iothub_services.auth.port import Action, ClientIdPolicy, Effect, Rule, Scope, TenantRecord
from iothub_services.quota.names import Quota
from iothub_services.sessions.port import SingleHub
from iothub_tenants.broker.hub import Hub
from iothub_tenants.control.connect import reject_overload, reject_timed_out
from tests.support.clients import property_names as names
from tests.support.clients.packets import CONNACK
from tests.support.in_process.control_harness import EVERYTHING, Harness, device

KEPT = [(names.SESSION_EXPIRY, 100)]


def padded_to(harness: Harness, body_bytes: int) -> bytes:
    """A CONNECT whose Remaining Length is this."""
    padding, largest = 0, 60_000
    while True:
        whole, rest = divmod(padding, largest)
        values = [(names.USER_PROPERTY, ("p", "x" * size)) for size in [*[largest] * whole, rest]]
        wire = harness.open_connection().connect_bytes("c", "acme/dev1", "secret", props=values)
        size = len(wire) - 1 - next(at for at in range(1, 5) if wire[at] < 0x80)
        if size == body_bytes:
            return wire
        padding += body_bytes - size


@pytest.mark.parametrize("body_bytes", [127, 128, 16_383, 16_384])
def test_size_of_a_connect_is_that_of_the_whole_packet(harness: Harness, body_bytes: int) -> None:
    """Where the Remaining Length gets another byte (§2.1.4): the limit itself is allowed."""
    wire = padded_to(harness, body_bytes)

    for limit, code in ((len(wire) - 1, 0x95), (len(wire), 0)):
        harness.limit(f"packet_bytes={limit} user_properties=unlimited")
        harness.hub.authenticator.invalidate(7)
        harness.acme.apply_record(harness.accounts.tenants["acme"], {})
        client = harness.open_connection()
        client.send(wire)
        assert client.expect(CONNACK).code == code


@pytest.mark.parametrize(
    ("limits", "options", "code", "quota"),
    [
        ("packet_bytes=64", {"client_id": "c" * 50}, 0x95, Quota.PACKET_BYTES),
        ("will_bytes=3", {"will": ("w", b"1234", 0, False)}, 0x95, Quota.WILL_BYTES),
        ("user_properties=1", {"props": [(names.USER_PROPERTY, ("a", "b"))] * 2}, 0x97, Quota.USER_PROPERTIES),
    ],
)
def test_refusal_by_a_limit_is_counted(
    harness: Harness, limits: str, options: dict[str, Any], code: int, quota: Quota
) -> None:
    """The operator sees which limit it was."""
    harness.limit(limits)

    assert harness.ask(**options).connack.code == code
    assert harness.recorder.refusals == [quota]


def test_limits_themselves_are_allowed(harness: Harness) -> None:
    harness.limit("will_bytes=3 user_properties=1")

    harness.join(will=("w", b"123", 0, False), props=[(names.USER_PROPERTY, ("a", "b"))])


def test_limit_of_the_devices_own_record_counts(harness: Harness) -> None:
    """Its override comes with the record that proved it."""
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", limits="will_bytes=3"))

    assert harness.ask(will=("w", b"1234", 0, False)).connack.code == 0x95
    assert harness.ask(username="acme/dev2", will=("w", b"1234", 0, False)).connack.code == 0


def test_limits_of_a_device_meter_its_session(harness: Harness) -> None:
    """From the first packet on; one whose limits are the tenant's alone has no meters."""
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", limits="device_publish_messages=5/1s"))

    harness.join("c")
    harness.join("d", username="acme/dev2")

    assert harness.session("c").meters is not None
    assert harness.session("d").meters is None


def test_client_identifier_that_is_refused_uses_up_no_rate(harness: Harness) -> None:
    """It is checked before the rate is taken, and again once the session's lock is held."""
    harness.accounts.add(
        TenantRecord(7, "acme", rules=(EVERYTHING,), client_id_policy=ClientIdPolicy.EQUAL, limits="connects=1/1h")
    )

    assert harness.ask("c").connack.code == 0x87
    assert harness.ask("dev1").connack.code == 0


@pytest.mark.parametrize(("device_id", "code"), [(1, 0x87), (4, 0x87), (5, 0), (6, 0), (0, 0)])
def test_session_of_a_later_device_of_the_same_name_is_not_its_own(harness: Harness, device_id: int, code: int) -> None:
    """A record that was read before its device was deleted and made again; 0: a plug-in has proven it."""
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", id=5))
    harness.join("c", props=KEPT).disconnect()
    harness.accounts.add(harness.accounts.tenants["acme"], device("dev1", id=device_id))
    harness.hub.authenticator.invalidate(7, "dev1")

    assert harness.ask("c", clean=False, props=KEPT).connack.code == code


def test_accounts_that_never_stand_still_refuse_in_the_end(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """0x88: the client tries again later, and was let in by no record that may be old."""
    monkeypatch.setattr(harness.hub.authenticator, "is_current", lambda _login: False)

    assert harness.ask().connack.code == 0x88


def test_rights_that_change_while_a_session_is_opened_hold_from_its_start(harness: Harness) -> None:
    harness.journal.is_held = True
    client = harness.open_connection()
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    denial = Rule(Scope.TENANT, "", Effect.DENY, Action.PUBLISH, "w/#")
    harness.accounts.add(replace(harness.accounts.tenants["acme"], version=2, rules=(EVERYTHING, denial)))
    harness.hub.authenticator.invalidate(7)

    harness.journal.release()
    harness.settle()

    assert client.expect(CONNACK).code == 0
    session = harness.session("c")
    assert not session.policy.may_publish(b"w/x")


@pytest.mark.parametrize("is_changed", [False, True])
def test_place_of_a_connect_that_failed_is_free_before_its_answer(
    make_harness: Callable[..., Harness], is_changed: bool
) -> None:
    """The answer waits for its time; the next CONNECT does not have to."""
    harness = make_harness(settings=Config(auth=Auth(failure_reply_ms=250)))
    client = harness.open_connection()
    harness.journal.is_held = is_changed
    harness.journal.is_down = not is_changed
    client.send(client.connect_bytes("c", "acme/dev1", props=KEPT))
    if is_changed:
        harness.hub.authenticator.invalidate(7, "dev1")
        harness.accounts.is_down = True
        harness.journal.release()

    assert harness.used(Quota.CONNECTIONS) == 0
    assert [at - harness.clock.monotonic() for at, _ in harness.laters] == [pytest.approx(0.25, abs=1e-5)]
    harness.pass_time(0.26)
    assert client.expect(CONNACK).code == 0x88


def test_kept_session_that_a_passing_one_replaces_gives_its_unit_back(harness: Harness) -> None:
    harness.join("c", props=KEPT).disconnect()
    assert harness.used(Quota.SESSIONS) == 1

    harness.join("c")

    assert harness.used(Quota.SESSIONS) == 0


def test_every_connect_is_an_event(harness: Harness) -> None:
    harness.join("c")

    assert "session.connected" in harness.journal.words()


def test_connack_of_3_1_1_is_two_bytes_long(harness: Harness) -> None:
    """Session Present and the code, without properties [MQTT3-3.2.2-2]."""
    for answer in (b"\x20\x02\x00\x00", b"\x20\x02\x01\x00"):
        client = harness.open_connection(4)
        client.send(client.connect_bytes("c", "acme/dev1", clean=False))
        assert client.stream.recv(100) == answer
        client.disconnect()


def test_clean_session_of_3_1_1_ends_with_its_connection(harness: Harness) -> None:
    harness.join("c", version=4)

    assert harness.session("c").control.expiry_s == 0


def test_will_without_a_delay_has_none(harness: Harness) -> None:
    harness.join("c", will=("w", b"x", 0, False))

    assert harness.session("c").control.will.delay_s == 0


def test_connack_leaves_out_what_the_client_knows(harness: Harness) -> None:
    """The expiry that it asked for, and a Receive Maximum of 65,535, which is the protocol's default."""
    harness.limit("receive_maximum=65535")

    told = dict(harness.join(props=KEPT).connack.properties)

    assert names.SESSION_EXPIRY not in told
    assert names.RECEIVE_MAXIMUM not in told


def test_connack_says_the_largest_values_that_are_not_the_default(harness: Harness) -> None:
    """A Maximum Packet Size that a Remaining Length can just express."""
    harness.limit("receive_maximum=65534 packet_bytes=268435455")

    told = dict(harness.join().connack.properties)

    assert told[names.RECEIVE_MAXIMUM] == 65_534
    assert told[names.MAXIMUM_PACKET_SIZE] == 268_435_455


def test_connect_that_ends_before_its_protocol_level_is_not_answered(harness: Harness) -> None:
    """Nobody knows in which version; so it counts for none."""
    client = harness.open_connection()
    client.send(b"\x10\x06\x00\x04MQTT")

    assert client.expect_closed() == []
    assert harness.recorder.answers == []


def test_overload_closes_a_connect_without_protocol_level(harness: Harness) -> None:
    client = harness.open_connection()
    connection: Any = client.stream.connection  # type: ignore[attr-defined]

    reject_overload(harness.hub, connection, b"\x00\x04MQTT")
    harness.settle()

    assert client.expect_closed() == []


@pytest.mark.parametrize("reject", [reject_overload, reject_timed_out])
def test_connect_of_a_connection_that_closes_is_not_rejected_too(
    harness: Harness, reject: Callable[[Hub, Connection, bytes], None]
) -> None:
    """Its reason is told once."""
    client = harness.open_connection()
    connection: Any = client.stream.connection  # type: ignore[attr-defined]
    harness.plane.close(connection, Reason.ADMINISTRATIVE)

    reject(harness.hub, connection, client.connect_bytes("c", "acme/dev1")[2:])

    assert harness.recorder.answers == []


def test_refusal_waits_longer_while_checks_queue_up(
    make_harness: Callable[..., Harness], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two seconds more than is configured, for a wrong secret as for an unknown device."""
    harness = make_harness(settings=Config(auth=Auth(failure_reply_ms=500)))
    monkeypatch.setattr(harness.hub.authenticator.checks, "reply_after_s", lambda: FAILED_REPLY_S + 2.0)
    clients = [harness.open_connection(), harness.open_connection()]
    for client, device_name in zip(clients, ("dev1", "nobody"), strict=True):
        client.send(client.connect_bytes("c", f"acme/{device_name}", "wrong"))

    assert [at - harness.clock.monotonic() for at, _ in harness.laters] == [pytest.approx(2.5, abs=1e-5)] * 2


class CaughtUp(SingleHub):
    """Another hub that has opened sessions meanwhile."""

    is_alone = False

    def __init__(self) -> None:
        self.asked = 0

    async def catch_up(self, ago_s: float = 0.0) -> None:
        self.asked += 1


def test_connect_catches_up_with_the_other_hubs(make_harness: Callable[..., Harness]) -> None:
    """A session that another hub has opened just now is seen before one is opened here."""
    others = CaughtUp()

    make_harness(cluster=others).join("c")

    assert others.asked == 1
