"""Bytes of the wire put together by hand, independent of the encoder they are to check, and the shape of one packet case.

Knows no rule of the protocol: everything can be built, wrong packets above all.
"""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.reasons import Reason
from iothub.mqtt.packets import Packet


@dataclass(frozen=True, slots=True)
class PacketCase:
    """One whole packet as bytes, and what every parser must make of it.

    `version` is that of the connection, 0 before CONNECT. `proves` names normative statements.
    `is_answer`: a packet of the hub's, which is only encoded: the encoder writes exactly these bytes.
    """

    name: str
    version: int
    data: bytes
    expected: Packet | Reason
    proves: str = ""
    is_answer: bool = False

    @property
    def body(self) -> bytes:
        return body_of(self.data)


def varint(value: int) -> bytes:
    """Return a Variable Byte Integer in its shortest form."""
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes((*encoded, value))


def frame(first_byte: int, *body: bytes) -> bytes:
    """Put a Fixed Header before a body."""
    joined = b"".join(body)
    return bytes((first_byte,)) + varint(len(joined)) + joined


def text(value: str | bytes) -> bytes:
    """Return a length-prefixed field; bytes are taken as they are."""
    encoded = value.encode() if isinstance(value, str) else value
    return len(encoded).to_bytes(2, "big") + encoded


def body_of(data: bytes) -> bytes:
    """Return what follows the Remaining Length of one packet."""
    start = 1
    while data[start] & 0x80:
        start += 1
    return data[start + 1 :]


def u16(value: int) -> bytes:
    return value.to_bytes(2, "big")


def props(*properties: bytes) -> bytes:
    """Put a Property Length before properties, each given with its identifier byte."""
    joined = b"".join(properties)
    return varint(len(joined)) + joined


def connect(
    level: int, flags: int, *payload: bytes, name: str = "", keep_alive: int = 60, properties: bytes = b"\x00"
) -> bytes:
    """Return a CONNECT; its protocol name follows from `level` unless given, and properties are written for level 5."""
    protocol = name or ("MQIsdp" if level == 3 else "MQTT")
    head = (text(protocol), bytes((level, flags)), u16(keep_alive), properties if level == 5 else b"")
    return frame(0x10, *head, *payload)
