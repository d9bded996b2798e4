"""MQTT packets as bytes and back, for raw clients. Written apart from the hub's own codec, so that both can be wrong only alone.

Knows no connection and judges nothing: what a test builds may be wrong on purpose.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

CONNECT, CONNACK, PUBLISH, PUBACK, PUBREC, PUBREL, PUBCOMP = 1, 2, 3, 4, 5, 6, 7
SUBSCRIBE, SUBACK, UNSUBSCRIBE, UNSUBACK, PINGREQ, PINGRESP, DISCONNECT, AUTH = 8, 9, 10, 11, 12, 13, 14, 15

Properties = Sequence[tuple[int, object]]
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
    found: list[tuple[int, object]] = []
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
