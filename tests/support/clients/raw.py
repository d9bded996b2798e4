"""A raw-packet MQTT client: sends any bytes, records what comes back.

Knows no session logic: a test says every packet. Blocking sockets with a time-out; nothing here sleeps.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Protocol, TypedDict, Unpack

from tests.support.clients.packets import (
    CONNACK,
    PINGRESP,
    PUBACK,
    PUBCOMP,
    PUBREC,
    PUBREL,
    SUBACK,
    UNSUBACK,
    Packet,
    Properties,
    packet,
    parse,
    properties,
    string,
)
from tests.support.waiting import PATIENCE_S

KEEP_ALIVE_S = 3600  # nobody is closed for silence but who asks for it


class ClosedError(AssertionError):
    """The hub closed the connection while a packet was awaited."""


class Stream(Protocol):
    """What a client needs of a socket, or of what stands for one. One that holds bytes back also has `pending()`."""

    def sendall(self, data: bytes, /) -> None: ...

    def recv(self, size: int, /) -> bytes: ...

    def fileno(self) -> int: ...

    def close(self) -> None: ...


class ConnectOptions(TypedDict, total=False):
    """What a CONNECT may say besides its names. `will`: topic, payload, QoS, retained."""

    clean: bool
    keep_alive: int
    props: Properties | None
    will: tuple[str, bytes, int, bool] | None
    will_props: Properties | None


class PublishOptions(TypedDict, total=False):
    """What a PUBLISH may say besides its message."""

    retain: bool
    dup: bool
    props: Properties | None


def tcp_stream(host: str, port: int, timeout: float) -> socket.socket:
    """Connect; small packets leave at once."""
    stream = socket.create_connection((host, port), timeout=timeout)
    stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return stream


class RawClient:
    """One connection. `version`: 3, 4 or 5. `stream`: TLS, a WebSocket or a double instead of a TCP connection."""

    def __init__(
        self,
        port: int,
        version: int = 4,
        host: str = "127.0.0.1",
        timeout: float = PATIENCE_S,
        stream: Stream | None = None,
    ) -> None:
        self.version = version
        self.timeout = timeout
        self.stream: Stream = stream or tcp_stream(host, port, timeout)
        self.buffer = b""
        self.received: list[Packet] = []

    # --- sending

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)

    def send_packet(self, header: int, body: bytes = b"") -> None:
        self.send(packet(header, body))

    def connect_bytes(
        self,
        client_id: str,
        username: str | None = None,
        password: str | bytes | None = "secret",
        *,
        clean: bool = True,
        keep_alive: int = KEEP_ALIVE_S,
        props: Properties | None = None,
        will: tuple[str, bytes, int, bool] | None = None,
        will_props: Properties | None = None,
    ) -> bytes:
        flags = (2 if clean else 0) | (0x80 if username is not None else 0)
        flags |= 0x40 if username is not None and password is not None else 0
        if will:
            flags |= 4 | will[2] << 3 | (0x20 if will[3] else 0)
        name = "MQIsdp" if self.version == 3 else "MQTT"
        body = string(name) + bytes([self.version, flags]) + struct.pack(">H", keep_alive)
        if self.version == 5:
            body += properties(props)
        body += string(client_id)
        if will:
            body += (properties(will_props) if self.version == 5 else b"") + string(will[0]) + string(will[1])
        if username is not None:
            body += string(username)
            if password is not None:
                body += string(password)
        return packet(0x10, body)

    def connect(
        self,
        client_id: str,
        username: str | None = None,
        password: str | bytes | None = "secret",
        **options: Unpack[ConnectOptions],
    ) -> Packet:
        """CONNECT and return the CONNACK."""
        self.send(self.connect_bytes(client_id, username, password, **options))
        return self.expect(CONNACK)

    def publish_bytes(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        qos: int = 0,
        packet_id: int = 0,
        *,
        retain: bool = False,
        dup: bool = False,
        props: Properties | None = None,
    ) -> bytes:
        body = string(topic) + (struct.pack(">H", packet_id) if qos else b"")
        if self.version == 5:
            body += properties(props)
        return packet(0x30 | (8 if dup else 0) | qos << 1 | (1 if retain else 0), body + payload)

    def publish(
        self,
        topic: str | bytes,
        payload: bytes = b"",
        qos: int = 0,
        packet_id: int = 1,
        **options: Unpack[PublishOptions],
    ) -> Packet | None:
        """PUBLISH and, at QoS 1 and 2, complete the exchange; returns the PUBACK or PUBREC."""
        self.send(self.publish_bytes(topic, payload, qos, packet_id, **options))
        if qos == 0:
            return None
        answer = self.expect(PUBACK if qos == 1 else PUBREC)
        assert answer.packet_id == packet_id
        if qos == 2 and answer.code < 0x80:
            self.ack(PUBREL, packet_id)
            self.expect(PUBCOMP)
        return answer

    def ack(self, kind: int, packet_id: int, code: int | None = None) -> None:
        body = struct.pack(">H", packet_id) + (bytes([code]) if code is not None else b"")
        self.send_packet(kind << 4 | (2 if kind == PUBREL else 0), body)

    def subscribe(self, *filters: tuple[str, int], packet_id: int = 10, props: Properties | None = None) -> Packet:
        """SUBSCRIBE (option byte per filter: QoS, in 5.0 with the other bits) and return the SUBACK."""
        self.send_subscribe(*filters, packet_id=packet_id, props=props)
        return self.expect(SUBACK)

    def send_subscribe(self, *filters: tuple[str, int], packet_id: int, props: Properties | None = None) -> None:
        """Wait for nothing."""
        body = struct.pack(">H", packet_id) + (properties(props) if self.version == 5 else b"")
        for topic_filter, options in filters:
            body += string(topic_filter) + bytes([options])
        self.send_packet(0x82, body)

    def unsubscribe(self, *filters: str, packet_id: int = 11) -> Packet:
        self.send_unsubscribe(*filters, packet_id=packet_id)
        return self.expect(UNSUBACK)

    def send_unsubscribe(self, *filters: str, packet_id: int) -> None:
        body = struct.pack(">H", packet_id) + (properties(None) if self.version == 5 else b"")
        self.send_packet(0xA2, body + b"".join(string(topic_filter) for topic_filter in filters))

    def disconnect(self, code: int | None = None, props: Properties | None = None) -> None:
        body = b"" if code is None else bytes([code]) + (properties(props) if props is not None else b"")
        self.send_packet(0xE0, body)
        self.close()

    def ping(self) -> None:
        self.send_packet(0xC0)
        self.expect(PINGRESP)

    # --- receiving

    def expect(self, kind: int, timeout: float | None = None) -> Packet:
        """The next packet of this kind; packets of other kinds before it are kept in `received`."""
        for index, earlier in enumerate(self.received):
            if earlier.kind == kind:
                return self.received.pop(index)
        deadline = time.monotonic() + (timeout or self.timeout)
        while True:
            found = self.next_packet(deadline)
            if found.kind == kind:
                return found
            self.received.append(found)

    def next_packet(self, deadline: float) -> Packet:
        while True:
            taken = self._take()
            if taken is not None:
                return taken
            self._read(deadline)

    def expect_closed(self, timeout: float = PATIENCE_S) -> list[Packet]:
        """Everything until the hub closes."""
        deadline = time.monotonic() + timeout
        try:
            while True:
                self.received.append(self.next_packet(deadline))
        except ClosedError:
            return self.received

    def expect_nothing(self, seconds: float = 0.3) -> None:
        """No packet arrives for this long (a PINGREQ fence is better where it proves as much)."""
        deadline = time.monotonic() + seconds
        try:
            found = self.next_packet(deadline)
        except TimeoutError:
            return
        raise AssertionError(f"unexpected {found}")

    def fence(self) -> list[Packet]:
        """PINGREQ, PINGRESP: everything that the hub sent before is here; returned and forgotten."""
        self.ping()
        taken, self.received = self.received, []
        return taken

    def _read(self, deadline: float) -> None:
        left = deadline - time.monotonic()
        if left <= 0:
            raise TimeoutError(f"nothing came; had {self.received}")
        pending = getattr(self.stream, "pending", None)
        if not (pending and pending()) and not select.select([self.stream], [], [], left)[0]:
            raise TimeoutError(f"nothing came; had {self.received}")
        try:
            data = self.stream.recv(65536)
        except ConnectionError as error:
            raise ClosedError("connection reset") from error
        if not data:
            raise ClosedError(f"connection closed; had {self.received}")
        self.buffer += data

    def _take(self) -> Packet | None:
        length, shift, index = 0, 0, 1
        while True:
            if index >= len(self.buffer):
                return None
            byte = self.buffer[index]
            length |= (byte & 0x7F) << shift
            index, shift = index + 1, shift + 7
            if not byte & 0x80:
                break
        if len(self.buffer) < index + length:
            return None
        header, body = self.buffer[0], self.buffer[index : index + length]
        self.buffer = self.buffer[index + length :]
        return parse(header, body, self.version)

    def close(self) -> None:
        self.stream.close()

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
