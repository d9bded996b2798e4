"""The real message plane on real sockets: CONNECT that is answered later, QoS 1 both ways, and the plane's own closes."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator

import pytest

from iothub.base.clock import SystemClock
from iothub.base.ids import MessageIds
from iothub.base.reasons import Reason
from iothub.engine.limits import ConnectionSettings, PlaneLimits
from iothub.engine.plane import Plane
from iothub.engine.router import Subscription
from iothub.engine.state import TenantPlane
from iothub.net.backend import Backend
from iothub.net.descriptors import UNLIMITED, Descriptors
from iothub.net.listener_info import listener_info
from iothub.net.listeners import Listeners
from iothub.net.transports import make_transports
from iothub.testing.engine import CONNACK, ManualStore, Permissive, RecordingControl, RecordingObserver
from iothub.testing.reactor_thread import ReactorThread
from tests.support.waiting import PATIENCE_S


class PlaneHub:
    """A plane whose control plane admits everybody, after a turn of the reactor, under the client id in CONNECT."""

    def __init__(self, thread: ReactorThread, twin: Backend) -> None:
        self.thread = thread
        self.control = RecordingControl()
        self.control.on_packet = lambda *packet: thread.reactor.callLater(0, self.answer, *packet)
        clock = SystemClock()
        store = ManualStore()
        self.plane = Plane(clock, self.control, store, PlaneLimits(), RecordingObserver(), MessageIds(clock))
        store.plane = self.plane
        self.tenant = TenantPlane(1, "acme")
        transports = make_transports(twin, self.plane, clock, thread.reactor)
        infos = [listener_info("tcp"), listener_info("ws")]
        self.listeners = Listeners(
            infos, self.plane, clock, transports, thread.reactor, Descriptors(UNLIMITED), lambda *_: None
        )
        thread.call(self.listeners.start)

    def answer(self, connection, header: int, body: bytes) -> None:
        plane = self.plane
        if connection.is_closing:
            return
        if header == 0x10:
            client_id = body[12:].decode()
            session = plane.create_session(self.tenant, client_id, client_id, is_persistent=False)
            plane.policy_changed(session, Permissive())
            plane.admit(connection, session, ConnectionSettings(version=4), CONNACK)
        elif header == 0x82:
            plane.subscribe(connection.session, Subscription(connection.session, body[4:-1], None, body[-1]))
            plane.send(connection, b"\x90\x03" + body[:2] + body[-1:])
            plane.resume(connection)
        else:
            plane.close(connection, Reason.CLIENT)

    def client(self, client_id: bytes) -> socket.socket:
        client = socket.create_connection(self.listeners.addresses()["tcp"], timeout=PATIENCE_S)
        client.sendall(b"\x10" + bytes((12 + len(client_id),)) + b"\x00\x04MQTT\x04\x02\x00\x00")
        client.sendall(len(client_id).to_bytes(2, "big") + client_id)
        assert receive(client, 4) == CONNACK
        return client


def receive(client: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size and (chunk := client.recv(size - len(data))):
        data += chunk
    return data


def publish(topic: bytes, payload: bytes, packet_id: int) -> bytes:
    body = len(topic).to_bytes(2, "big") + topic + packet_id.to_bytes(2, "big") + payload
    return b"\x32" + bytes((len(body),)) + body


@pytest.fixture
def hub(twin: Backend) -> Iterator[PlaneHub]:
    with ReactorThread() as thread:
        running = PlaneHub(thread, twin)
        try:
            yield running
        finally:
            thread.call(running.listeners.close)


def test_plane_serves_publishers_and_subscribers_over_sockets(hub) -> None:
    """A thousand QoS 1 messages arrive in order and are acknowledged, though CONNECT and SUBSCRIBE were answered later."""
    with hub.client(b"sub") as subscriber, hub.client(b"pub") as publisher:
        subscriber.sendall(b"\x82\x06\x00\x01\x00\x01t\x01")
        assert receive(subscriber, 5) == b"\x90\x03\x00\x01\x01"
        for at in range(0, 1000, 20):
            publisher.sendall(b"".join(publish(b"t", b"%04d" % n, n + 1) for n in range(at, at + 20)))
            assert receive(publisher, 80) == b"".join(
                b"\x40\x02" + (n + 1).to_bytes(2, "big") for n in range(at, at + 20)
            )
            got = receive(subscriber, 20 * 11)
            assert [got[i + 7 : i + 11] for i in range(0, 220, 11)] == [b"%04d" % n for n in range(at, at + 20)]
            subscriber.sendall(b"".join(b"\x40\x02" + got[i + 5 : i + 7] for i in range(0, 220, 11)))


def test_plane_close_reaches_the_client_and_is_told_once(hub) -> None:
    """DISCONNECT, malformed packets and vanished clients: one `closed` each, and nothing left in the gate."""
    with hub.client(b"good") as good, hub.client(b"bad") as bad:
        hub.client(b"gone").close()
        good.sendall(b"\xe0\x00")
        assert good.recv(1) == b""
        bad.sendall(b"\x00\x00" * 100)
        with contextlib.suppress(ConnectionResetError):
            assert bad.recv(1) == b""
        hub.thread.until(lambda: len(hub.control.closes) == 3)
    hub.thread.until(lambda: hub.listeners.gates()["tcp"].connections == 0)
    assert hub.plane.connection_count == 0
