"""AUTH of a connected client: proven again, or gone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from iothub.hooks import Attempt, Challenge, Proof
from tests.support.clients import property_names as names
from tests.support.clients.mqtt_clients import Client
from tests.support.clients.packets import AUTH, CONNACK, DISCONNECT, Properties, packet, properties
from tests.support.in_process.control_harness import Harness, plugged

METHOD = "twice"


def twice(attempt: Attempt) -> bool | Challenge | Proof:
    """Says yes to "yes", asks again at "ask"."""
    if attempt.data == b"ask":
        return Challenge(b"well?")
    return Proof(b"fine") if attempt.data == b"yes" else False


def auth(code: int, data: bytes, method: str = METHOD) -> bytes:
    said: Properties = [(names.AUTH_METHOD, method), (names.AUTH_DATA, data)]
    return packet(0xF0, bytes((code,)) + properties(said))


@pytest.fixture
def client(make_harness: Callable[..., Harness]) -> Client:
    """Somebody who was let in by the method."""
    made = make_harness(hooks=plugged(authenticate=twice)).open_connection()
    props: Properties = [(names.AUTH_METHOD, METHOD), (names.AUTH_DATA, b"yes")]
    made.send(made.connect_bytes("c", "acme/dev1", None, props=props))
    assert made.expect(CONNACK).code == 0
    return made


def closed_with(client: Client) -> int:
    return next(each.code for each in client.expect_closed() if each.kind == DISCONNECT)


def test_client_proves_itself_again(client: Client) -> None:
    """AUTH 0x00 with the method and the last data; the session goes on [MQTT-4.12.1-1]."""
    client.send(auth(0x19, b"yes"))

    answer = client.expect(AUTH)
    assert (answer.code, answer.property(names.AUTH_METHOD), answer.property(names.AUTH_DATA)) == (0, METHOD, b"fine")
    client.ping()


def test_client_works_on_between_two_steps(client: Client) -> None:
    """§4.12.1: other packets may be exchanged meanwhile."""
    client.send(auth(0x19, b"ask"))
    assert client.expect(AUTH).code == 0x18
    assert client.subscribe(("a", 0)).codes == [0]

    client.send(auth(0x18, b"yes"))

    assert client.expect(AUTH).code == 0
    client.ping()


def test_failed_proof_ends_the_connection(client: Client) -> None:
    """[MQTT-4.12.1-2]."""
    client.send(auth(0x19, b"no"))

    assert closed_with(client) == 0x87


@pytest.mark.parametrize(
    "said", [auth(0x19, b"yes", "other"), auth(0x18, b"yes"), auth(0x00, b"yes")], ids=["method", "continue", "success"]
)
def test_auth_out_of_order_is_a_protocol_error(client: Client, said: bytes) -> None:
    """The method stays [MQTT-4.12.1-1]; nobody asked; 0x00 is the server's word."""
    client.send(said)

    assert closed_with(client) == 0x82


def test_auth_without_a_method_in_connect_is_a_protocol_error(make_harness: Callable[..., Harness]) -> None:
    """[MQTT-4.12.0-6]."""
    client = make_harness().join()
    client.send(auth(0x19, b"yes"))

    assert closed_with(client) == 0x82
