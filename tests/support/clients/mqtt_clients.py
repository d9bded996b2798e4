"""Clients of a running hub: raw clients with usual answers for CONNECT, so that a test says only what matters.

Knows no session logic: a client remembers nothing of an earlier connection.
"""

from __future__ import annotations

import os
import time
from typing import Unpack

from tests.support.clients import property_names as names
from tests.support.clients.clients import Listener, unique
from tests.support.clients.packets import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Packet
from tests.support.clients.raw import ConnectOptions, RawClient

CONNECT_TIMEOUT_S = 300  # of the hub that is tested: a connection without CONNECT is closed after it ...
CLOSED_S = 200.0  # ... and one whose bytes are wrong before it
KEEP_S = 3600
_OF_DEVICE = "TENANT/DEVICE"
# While the tests themselves are written: "host:port" of a broker that takes anybody. Codes that the specification leaves open are not compared then.
FOREIGN_BROKER = os.environ.get("IOTHUB_TEST_BROKER", "")


class Client(RawClient):
    """A raw client that knows its name and acknowledges deliveries when a test asks for it."""

    client_id: str = ""
    connack: Packet

    def next(self) -> Packet:
        """The very next packet."""
        assert self.received == []
        return self.next_packet(time.monotonic() + self.timeout)

    def get(self, count: int = 1) -> list[Packet]:
        """The next PUBLISH packets, not acknowledged."""
        return [self.expect(PUBLISH) for _ in range(count)]

    def take(self, count: int = 1) -> list[Packet]:
        """The next PUBLISH packets, each exchange completed."""
        taken = []
        for _ in range(count):
            taken.append(self.expect(PUBLISH))
            self.complete(taken[-1])
        return taken

    def payloads(self, count: int = 1) -> list[bytes]:
        return [packet.payload for packet in self.take(count)]

    def complete(self, publish: Packet) -> None:
        if publish.qos == 1:
            self.ack(PUBACK, publish.packet_id)
        elif publish.qos == 2:
            self.ack(PUBREC, publish.packet_id)
            assert self.expect(PUBREL).packet_id == publish.packet_id
            self.ack(PUBCOMP, publish.packet_id)

    def nothing(self) -> None:
        """Nothing but the answer to a PINGREQ is on its way."""
        self.ping()
        self.ping()  # an iteration of the message plane later
        assert self.received == [], self.received

    def drop(self) -> None:
        """End the network connection without DISCONNECT."""
        self.close()

    def refused(self, *codes: int) -> None:
        """The hub closes; in 5.0 it says why with one of these codes."""
        said = self.expect_closed()
        if self.version == 5 and not FOREIGN_BROKER:
            assert [packet.kind for packet in said] == [DISCONNECT], said
            assert said[0].code in codes, f"0x{said[0].code:02X}"
        else:
            assert self.version == 5 or said == []

    def property(self, name: int, default: int) -> int:
        """What CONNACK said of a limit."""
        found = self.connack.property(name)
        return default if found is None else int(str(found))


class ConnectValues(ConnectOptions, total=False):
    """What a client may say of itself; `Clients.ask` has the usual answers."""

    device: str
    tenant: str
    keep: bool
    username: str | None
    password: str | None


class Clients:
    """Connects clients through one listener, and closes them all at the end."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._opened: list[Client] = []

    def open_connection(self, version: int = 5) -> Client:
        """A network connection on which nothing has been sent."""
        client = Client(0, version, stream=self.listener.stream())
        self._opened.append(client)
        return client

    def ask(
        self,
        version: int = 5,
        client_id: str | None = None,
        *,
        device: str = "dev1",
        tenant: str = "acme",
        keep: bool = False,
        username: str | None = _OF_DEVICE,
        password: str | None = "secret",
        **options: Unpack[ConnectOptions],
    ) -> Client:
        """Send CONNECT and await CONNACK, whatever it says. `keep`: a session that outlives the connection."""
        client = self.open_connection(version)
        client.client_id = unique() if client_id is None else client_id
        options.setdefault("clean", not keep)
        if keep and version == 5:
            options["props"] = [(names.SESSION_EXPIRY, KEEP_S), *(options.get("props") or [])]
        name = f"{tenant}/{device}" if username is _OF_DEVICE else username
        client.connack = client.connect(client.client_id, name, password, **options)
        return client

    def __call__(self, version: int = 5, client_id: str | None = None, **values: Unpack[ConnectValues]) -> Client:
        """Connect successfully."""
        client = self.ask(version, client_id, **values)
        assert client.connack.code == 0, client.connack
        return client

    def a_while(self) -> None:
        """Let one and a half seconds pass, by the hub's own clock: a silent client is closed after its Keep Alive."""
        began = time.monotonic()
        self(4, keep_alive=1).expect_closed()
        assert time.monotonic() - began > 1.2

    def leave(self) -> None:
        for client in self._opened:
            client.close()


def only_connack(packets: list[Packet]) -> Packet:
    """The one CONNACK, if that is all that was said."""
    assert [packet.kind for packet in packets] == [CONNACK], packets
    return packets[0]
