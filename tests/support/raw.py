"""A raw-packet MQTT client: sends any bytes, records what comes back. Written apart from the hub's own codec, so that both can be wrong only alone.

Knows no session logic: a test says every packet. Blocking sockets with a time-out; nothing here sleeps.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15

Properties = list[tuple[int, object]]
_BYTE = {0x01, 0x17, 0x19, 0x24, 0x25, 0x28, 0x29, 0x2A}
_TWO = {0x13, 0x21, 0x22, 0x23}
_FOUR = {0x02, 0x11, 0x18, 0x27}
_VARINT = {0x0B}
_BINARY = {0x09, 0x16}
_PAIR = {0x26}


def varint(number: int) -> bytes:
    out = bytearray()
    while True:
        number, digit = number >> 7, number & 0x7F
        out.append(digit | (0x80 if number else 0))
        if not number:
            return bytes(out)


def string(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack(">H", len(raw)) + raw


def properties(pairs: Properties | None) -> bytes:
    out = b""
    for name, value in pairs or []:
        out += bytes([name])
        if name in _BYTE:
            out += bytes([value])  # type: ignore[list-item]
        elif name in _TWO:
            out += struct.pack(">H", value)
        elif name in _FOUR:
            out += struct.pack(">I", value)
        elif name in _VARINT:
            out += varint(value)  # type: ignore[arg-type]
        elif name in _PAIR:
            out += string(value[0]) + string(value[1])  # type: ignore[index]
        else:
            out += string(value)  # type: ignore[arg-type]
    return varint(len(out)) + out


def packet(header: int, body: bytes) -> bytes:
    return bytes([header]) + varint(len(body)) + body


@dataclass
class Packet:
    """One packet from the hub, taken apart as far as tests look at it."""

    kind: int
    flags: int
    body: bytes
    topic: str = ""
    payload: bytes = b""
    packet_id: int = 0
    code: int = 0
    codes: list[int] = field(default_factory=list)
    session_present: bool = False
    properties: Properties = field(default_factory=list)

    @property
    def qos(self) -> int:
        return self.flags >> 1 & 3

    @property
    def retain(self) -> bool:
        return bool(self.flags & 1)

    @property
    def dup(self) -> bool:
        return bool(self.flags & 8)

    def property(self, name: int) -> object:
        return next((value for found, value in self.properties if found == name), None)

    def all_properties(self, name: int) -> list[object]:
        return [value for found, value in self.properties if found == name]


class ClosedError(AssertionError):
    """The hub closed the connection while a packet was awaited."""


class RawClient:
    """One connection. `version`: 3, 4 or 5. Give `wrap` to put TLS or WebSocket between."""

    def __init__(
        self, port: int, version: int = 4, host: str = "127.0.0.1", timeout: float = 10.0, stream: object = None
    ) -> None:
        self.version = version
        self.timeout = timeout
        self.stream = stream or socket.create_connection((host, port), timeout=timeout)
        if stream is None:
            self.stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # type: ignore[attr-defined]
        self.buffer = b""
        self.received: list[Packet] = []

    # --- sending

    def send(self, data: bytes) -> None:
        self.stream.sendall(data)  # type: ignore[attr-defined]

    def send_packet(self, header: int, body: bytes = b"") -> None:
        self.send(packet(header, body))

    def connect_bytes(
        self,
        client_id: str,
        username: str | None = None,
        password: str | bytes | None = "secret",
        *,
        clean: bool = True,
        keep_alive: int = 60,
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
        self, client_id: str, username: str | None = None, password: str | bytes | None = "secret", **options: object
    ) -> Packet:
        """CONNECT and return the CONNACK."""
        self.send(self.connect_bytes(client_id, username, password, **options))  # type: ignore[arg-type]
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
        self, topic: str | bytes, payload: bytes = b"", qos: int = 0, packet_id: int = 1, **options: object
    ) -> Packet | None:
        """PUBLISH and, at QoS 1 and 2, complete the exchange; returns the PUBACK or PUBREC."""
        self.send(self.publish_bytes(topic, payload, qos, packet_id, **options))  # type: ignore[arg-type]
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
        body = struct.pack(">H", packet_id) + (properties(props) if self.version == 5 else b"")
        for topic_filter, options in filters:
            body += string(topic_filter) + bytes([options])
        self.send_packet(0x82, body)
        return self.expect(SUBACK)

    def unsubscribe(self, *filters: str, packet_id: int = 11) -> Packet:
        body = struct.pack(">H", packet_id) + (properties(None) if self.version == 5 else b"")
        self.send_packet(0xA2, body + b"".join(string(topic_filter) for topic_filter in filters))
        return self.expect(UNSUBACK)

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

    def expect_closed(self, timeout: float = 10.0) -> list[Packet]:
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
            data = self.stream.recv(65536)  # type: ignore[attr-defined]
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
        self.stream.close()  # type: ignore[attr-defined]

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def parse(header: int, body: bytes, version: int) -> Packet:
    found = Packet(header >> 4, header & 15, body)
    if found.kind == PUBLISH:
        end = 2 + int.from_bytes(body[:2])
        found.topic, rest = body[2:end].decode(), body[end:]
        if found.qos:
            found.packet_id, rest = int.from_bytes(rest[:2]), rest[2:]
        if version == 5:
            found.properties, rest = parse_properties(rest)
        found.payload = rest
    elif found.kind == CONNACK:
        found.session_present, found.code = bool(body[0] & 1), body[1]
        if version == 5:
            found.properties, _ = parse_properties(body[2:])
    elif found.kind in (PUBACK, PUBREC, PUBREL, PUBCOMP):
        found.packet_id = int.from_bytes(body[:2])
        found.code = body[2] if len(body) > 2 else 0
    elif found.kind in (SUBACK, UNSUBACK):
        found.packet_id, rest = int.from_bytes(body[:2]), body[2:]
        if version == 5:
            found.properties, rest = parse_properties(rest)
        found.codes = list(rest)
    elif found.kind in (DISCONNECT, AUTH):
        found.code = body[0] if body else 0
        if len(body) > 1:
            found.properties, _ = parse_properties(body[1:])
    return found


def _varint(data: bytes) -> tuple[int, bytes]:
    number, shift = 0, 0
    for index, byte in enumerate(data):
        number |= (byte & 0x7F) << shift
        shift += 7
        if not byte & 0x80:
            return number, data[index + 1 :]
    raise AssertionError("a variable byte integer without an end")


def parse_properties(data: bytes) -> tuple[Properties, bytes]:
    length, data = _varint(data)
    block, rest = data[:length], data[length:]
    found: Properties = []
    while block:
        name, block = block[0], block[1:]
        value: object
        if name in _BYTE:
            value, block = block[0], block[1:]
        elif name in _TWO:
            value, block = int.from_bytes(block[:2]), block[2:]
        elif name in _FOUR:
            value, block = int.from_bytes(block[:4]), block[4:]
        elif name in _VARINT:
            value, block = _varint(block)
        elif name in _PAIR:
            first, block = _string(block)
            second, block = _string(block)
            value = (first.decode(), second.decode())
        else:
            raw, block = _string(block)
            value = raw if name in _BINARY else raw.decode()
        found.append((name, value))
    return found, rest


def _string(data: bytes) -> tuple[bytes, bytes]:
    length = int.from_bytes(data[:2])
    return data[2 : 2 + length], data[2 + length :]
