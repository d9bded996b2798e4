"""A plug-in as an operator installs it: a distribution beside the hub, found by its entry points, proving devices in two steps.

It awaits a timer and a thread each time, as one does that asks a service.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.packets import AUTH, CONNACK, DISCONNECT, Properties, packet, properties
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub

METHOD = "double"
PLUG_IN = '''
"""Lets in who doubles a number, and writes down what happens."""

import json
import os

from iothub.hooks import Challenge, Proof


async def authenticate(attempt):
    from twisted.internet import reactor, task, threads

    await task.deferLater(reactor, 0.01)
    await threads.deferToThread(os.getpid)
    if attempt.method != "double":
        return None
    if attempt.data == b"hello":
        attempt.memory["number"] = 21
        return Challenge(b"21")
    return Proof(b"welcome") if attempt.data == str(2 * attempt.memory.pop("number")).encode() else False


def lifecycle(happening):
    with open(os.environ["HAPPENINGS"], "a", encoding="utf-8") as book:
        book.write(json.dumps([happening.name, happening.tenant, happening.client_id]) + "\\n")
'''
ENTRY_POINTS = "[iothub.hooks]\nauthenticate = doubling:authenticate\nlifecycle = doubling:lifecycle\n"


@pytest.fixture
def book(tmp_path: Path) -> Path:
    return tmp_path / "happenings"


@pytest.fixture
def hub(tmp_path: Path, book: Path) -> Iterator[Hub]:
    """A running hub that finds the plug-in in a directory of its own."""
    site = tmp_path / "site"
    info = site / "doubling-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "doubling.py").write_text(PLUG_IN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: doubling\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    made = Hub(tmp_path / "hub", environment={"PYTHONPATH": str(site), "HAPPENINGS": str(book)})
    made.init()
    made.tenant("acme", "dev1")
    made.start()
    yield made
    made.close()


def said(data: bytes) -> Properties:
    return [(names.AUTH_METHOD, METHOD), (names.AUTH_DATA, data)]


def auth(code: int, data: bytes) -> bytes:
    return packet(0xF0, bytes((code,)) + properties(said(data)))


def begin(hub: Hub, client_id: str) -> RawClient:
    """CONNECT and take the challenge."""
    client = RawClient(hub.ports["tcp"], 5)
    client.send(client.connect_bytes(client_id, "acme/dev1", None, props=said(b"hello")))
    challenge = client.expect(AUTH)
    assert (challenge.code, challenge.property(names.AUTH_METHOD)) == (0x18, METHOD)
    assert challenge.property(names.AUTH_DATA) == b"21"
    return client


def test_device_proves_itself_through_auth_packets(hub: Hub, book: Path) -> None:
    """At CONNECT and again later; the plug-in hears of the session's life [MQTT-4.12.0-2] [MQTT-4.12.0-5] [MQTT-4.12.1-1]."""
    with begin(hub, "right") as client:
        client.send(auth(0x18, b"42"))
        connack = client.expect(CONNACK)
        assert (connack.code, connack.property(names.AUTH_METHOD)) == (0, METHOD)
        assert connack.property(names.AUTH_DATA) == b"welcome"
        assert client.subscribe(("a", 1)).codes == [1]

        client.send(auth(0x19, b"hello"))
        assert client.expect(AUTH).property(names.AUTH_DATA) == b"21"
        client.send(auth(0x18, b"42"))
        assert client.expect(AUTH).code == 0x00

        client.send(auth(0x19, b"hello"))
        client.expect(AUTH)
        client.send(auth(0x18, b"41"))
        assert client.expect(DISCONNECT).code == 0x87
    hub.stop()

    happened = [json.loads(line) for line in book.read_text().splitlines()]
    assert happened[0] == ["hub.started", "", ""]
    assert ["session.connected", "acme", "right"] in happened
    assert ["session.subscribed", "acme", "right"] in happened
    assert "hub.stopping" in [name for name, _, _ in happened]


def test_wrong_answer_and_unknown_method_are_refused(hub: Hub) -> None:
    """0x87 and 0x8C [MQTT-4.12.0-1] [MQTT-4.12.0-4]; who has no method is asked for the secret as ever."""
    with begin(hub, "wrong") as client:
        client.send(auth(0x18, b"43"))
        assert client.expect(CONNACK).code == 0x87
    with RawClient(hub.ports["tcp"], 5) as client:
        unknown: Properties = [(names.AUTH_METHOD, "SCRAM-SHA-1")]
        assert client.connect("c", "acme/dev1", None, props=unknown).code == 0x8C
    with RawClient(hub.ports["tcp"], 5) as client:
        assert client.connect("c", "acme/dev1").code == 0
