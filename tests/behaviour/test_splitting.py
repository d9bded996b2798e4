"""A stream is bytes: where it is cut must not matter."""

from __future__ import annotations

import pytest

from tests.support.clients.clients import Listener, unique
from tests.support.clients.mqtt_clients import Client, Clients
from tests.support.clients.packets import CONNACK, PUBACK, PUBLISH, SUBACK, packet, string

VERSIONS = pytest.mark.parametrize("version", [3, 4, 5], ids=["3.1", "3.1.1", "5.0"])


def stream(client: Client, client_id: str, topic: str) -> bytes:
    """CONNECT, SUBSCRIBE, PUBLISH QoS 1 to oneself."""
    middle = b"\x00\x07" + (b"\x00" if client.version == 5 else b"") + string(topic) + b"\x01"
    return (
        client.connect_bytes(client_id, "acme/dev1")
        + packet(0x82, middle)
        + client.publish_bytes(topic, b"in pieces", 1, 5)
    )


def check(client: Client, topic: str) -> None:
    """The same answers whatever the cuts were."""
    assert client.expect(CONNACK).code == 0
    assert (client.expect(SUBACK).packet_id, client.expect(PUBACK).packet_id) == (7, 5)
    got = client.expect(PUBLISH)
    assert (got.topic, got.payload, got.qos) == (topic, b"in pieces", 1)
    assert client.received == []


@VERSIONS
def test_a_stream_may_be_cut_at_every_byte(tcp: Clients, version: int) -> None:
    """Between the halves a witness makes a round trip, so that the hub has seen the first one. [MQTT-4.2.0-1] [MQTT3-7.1.1-1]."""
    witness, topic, client_id = tcp(4), unique("t"), unique()
    data = stream(tcp.open_connection(version), client_id, topic)

    for cut in range(1, len(data)):
        client = tcp.open_connection(version)
        client.send(data[:cut])
        witness.ping()
        client.send(data[cut:])
        check(client, topic)
        client.disconnect()


@VERSIONS
def test_a_stream_may_come_byte_by_byte(join: Clients, version: int) -> None:
    """[MQTT-4.2.0-1] [MQTT3-7.1.1-1]."""
    client, topic = join.open_connection(version), unique("t")

    for byte in stream(client, unique(), topic):
        client.send(bytes([byte]))

    check(client, topic)


def test_many_packets_may_come_at_once(join: Clients, version: int) -> None:
    """A thousand packets of several kinds in one write. [MQTT-4.2.0-1] [MQTT-6.0.0-2] [MQTT3-6.0.0-2] [MQTT3-7.1.1-1]."""
    client, topic = join(version), unique("t")
    client.subscribe((topic, 0))

    client.send(b"".join(client.publish_bytes(topic, b"%d" % number) + packet(0xC0, b"") for number in range(500)))

    assert client.payloads(500) == [b"%d" % number for number in range(500)]
    assert len(client.received) <= 500
    for _ in range(500):
        client.expect(13)
    client.nothing()


@pytest.fixture(params=("ws", "wss"))
def web(listener: Listener, request: pytest.FixtureRequest) -> Listener:
    """The two listeners that speak WebSocket."""
    return Listener(listener.hub, request.param)


@pytest.mark.parametrize("listener", ["tcp"], indirect=True)
def test_packets_are_not_aligned_on_frames(web: Listener, version: int) -> None:
    """Frames of seven bytes and of everything. [MQTT-6.0.0-2] [MQTT3-6.0.0-2] [MQTT-6.0.0-1] [MQTT3-6.0.0-1]."""
    for size in (7, 10_000):
        client, topic = Client(0, version, stream=web.stream()), unique("t")
        data = stream(client, unique(), topic)
        for start in range(0, len(data), size):
            client.send(data[start : start + size])
        check(client, topic)
        client.close()
