"""Plug-ins prove devices: in one step, or with an Authentication Method in as many as it wants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from iothub.hooks import Attempt, Challenge, Proof
from iothub_services.quota.names import Quota
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import AUTH, CONNACK, Properties, packet, properties
from tests.support.in_process.control_harness import Harness, now, plugged

METHOD = "riddle"


def riddle(attempt: Attempt) -> bool | Challenge | Proof | None:
    """Two steps: name, then the answer to what was asked."""
    if attempt.method != METHOD:
        return None
    if "asked" not in attempt.memory:
        attempt.memory["asked"] = attempt.data
        return Challenge(b"what is 6 x 7?")
    return Proof(b"welcome") if attempt.data == b"42" else False


def auth(code: int, data: bytes | None, method: str = METHOD) -> bytes:
    said: Properties = [(names.AUTH_METHOD, method)]
    if data is not None:
        said.append((names.AUTH_DATA, data))
    return packet(0xF0, bytes((code,)) + properties(said))


def start(harness: Harness, method: str = METHOD) -> Client:
    client = harness.open_connection()
    props: Properties = [(names.AUTH_METHOD, method), (names.AUTH_DATA, b"dev1")]
    client.send(client.connect_bytes("c", "acme/dev1", None, props=props))
    return client


@pytest.fixture
def harness(make_harness: Callable[..., Harness]) -> Harness:
    return make_harness(hooks=plugged(authenticate=riddle))


def test_method_is_walked_step_by_step(harness: Harness) -> None:
    """AUTH 0x18 and CONNACK repeat the method; the last data comes with CONNACK [MQTT-4.12.0-2] [MQTT-4.12.0-5]."""
    client = start(harness)
    challenge = client.expect(AUTH)
    assert (challenge.code, challenge.property(names.AUTH_METHOD)) == (0x18, METHOD)
    assert challenge.property(names.AUTH_DATA) == b"what is 6 x 7?"

    client.send(auth(0x18, b"42"))

    connack = client.expect(CONNACK)
    assert (connack.code, connack.property(names.AUTH_METHOD)) == (0, METHOD)
    assert connack.property(names.AUTH_DATA) == b"welcome"
    client.ping()


def test_wrong_answer_is_refused(harness: Harness) -> None:
    """[MQTT-4.12.0-4]."""
    client = start(harness)
    client.send(auth(0x18, b"43"))

    assert client.expect(CONNACK).code == 0x87
    client.expect_closed()


def test_unknown_method_is_refused(harness: Harness) -> None:
    """[MQTT-4.12.0-1]."""
    assert start(harness, "SCRAM-SHA-1").expect(CONNACK).code == 0x8C


def test_client_that_takes_its_time_between_two_steps_is_not_told_of_a_store(harness: Harness) -> None:
    """The hub waits for it, not the other way round."""
    client = start(harness)
    client.expect(AUTH)

    harness.clock.advance(9.1)
    now(harness.control.connect_timeouts.reject_overdue())
    client.send(auth(0x18, b"42"))

    assert client.expect(CONNACK).code == 0


def test_other_method_in_the_second_step_ends_the_connection(harness: Harness) -> None:
    """[MQTT-4.12.0-5]."""
    client = start(harness)
    client.expect(AUTH)
    client.send(auth(0x18, b"42", "other"))

    assert CONNACK not in [each.kind for each in client.expect_closed()]


def test_client_that_leaves_between_two_steps_leaves_nothing(make_harness: Callable[..., Harness]) -> None:
    """Nor is the plug-in asked about what it did not answer."""
    attempts: list[Attempt] = []
    harness = make_harness(hooks=plugged(authenticate=lambda attempt: attempts.append(attempt) or riddle(attempt)))
    client = start(harness)
    client.expect(AUTH)
    client.drop()
    harness.settle()

    assert [attempt.data for attempt in attempts] == [b"dev1"]
    assert harness.used(Quota.CONNECTIONS) == 0
    assert harness.acme.plane.sessions == {}


def test_device_that_a_plug_in_proved_still_needs_its_standing(harness: Harness) -> None:
    """A disabled device stays outside."""
    known = harness.accounts.devices[7, "dev1"]
    harness.accounts.add(harness.accounts.tenants["acme"], replace(known, is_enabled=False))
    client = start(harness)
    client.send(auth(0x18, b"42"))

    assert client.expect(CONNACK).code == 0x87


@pytest.mark.parametrize(
    ("opinion", "password", "code"),
    [(True, "wrong", 0), (False, "secret", 0x87), (None, "secret", 0), (None, "x", 0x87)],
)
def test_opinion_without_a_method(
    make_harness: Callable[..., Harness], opinion: bool | None, password: str, code: int
) -> None:
    """True and False count; None leaves it to the hub."""
    harness = make_harness(hooks=plugged(authenticate=lambda _attempt: opinion))

    assert harness.open_connection().connect("c", "acme/dev1", password).code == code


def test_attempt_says_who_asks(make_harness: Callable[..., Harness]) -> None:
    seen: list[Attempt] = []
    harness = make_harness(hooks=plugged(authenticate=seen.append))
    harness.join()

    (attempt,) = seen
    assert (attempt.tenant, attempt.device, attempt.client_id, attempt.secret) == ("acme", "dev1", "c", b"secret")
    assert (attempt.peer, attempt.listener, attempt.method) == ("192.0.2.1:4711", "tcp", "")


def test_memory_proves_nobody_whom_a_plug_in_refuses(make_harness: Callable[..., Harness]) -> None:
    """The plug-in is asked at each CONNECT, also for a device whose secret is remembered as right."""
    opinions: list[bool | None] = [None, False]
    harness = make_harness(hooks=plugged(authenticate=lambda _attempt: opinions.pop(0)))

    codes = []
    for number in range(2):
        client = harness.open_connection()
        client.send(client.connect_bytes(f"c{number}", "acme/dev1", b"secret"))
        codes.append(client.expect(CONNACK).code)

    assert codes == [0, 0x87]


def test_memory_proves_nobody_who_uses_an_authentication_method(make_harness: Callable[..., Harness]) -> None:
    opinions: list[bool | None] = [None, False]
    harness = make_harness(hooks=plugged(authenticate=lambda _attempt: opinions.pop(0)))
    known = harness.open_connection()
    known.send(known.connect_bytes("c1", "acme/dev1", b"secret"))
    assert known.expect(CONNACK).code == 0

    client = harness.open_connection()
    props: Properties = [(names.AUTH_METHOD, METHOD), (names.AUTH_DATA, b"dev1")]
    client.send(client.connect_bytes("c2", "acme/dev1", b"secret", props=props))

    assert client.expect(CONNACK).code == 0x87
