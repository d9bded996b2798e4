"""Data representation (§1.5): integers, strings and binary data, read from a body and written to one.

Knows no packet and no property: callers say how a field is called, errors repeat it. Payloads and secrets never appear in an error.
"""

from __future__ import annotations

from typing import Final

from iothub.base.errors import LocalProtocolError
from iothub.mqtt.constants import MAXIMUM_REMAINING_LENGTH, MAXIMUM_STRING_BYTES
from iothub.mqtt.errors import MalformedPacket

_CONTINUATION: Final = 0x80


class FieldReader:
    """Reads fields one after the other from `body[position:end]`; whatever is wrong there is a `MalformedPacket`.

    Invariants: position <= end <= len(body); nothing is copied but the fields themselves.
    """

    __slots__ = ("body", "end", "packet", "position")

    def __init__(self, body: bytes, packet: str, position: int = 0, end: int = -1) -> None:
        self.body = body
        self.packet = packet
        self.position = position
        self.end = len(body) if end < 0 else end

    def at_end(self) -> bool:
        return self.position >= self.end

    def byte(self, field: str) -> int:
        start = self._advance(1, field)
        return self.body[start]

    def two_byte_integer(self, field: str) -> int:
        start = self._advance(2, field)
        return self.body[start] << 8 | self.body[start + 1]

    def four_byte_integer(self, field: str) -> int:
        start = self._advance(4, field)
        return int.from_bytes(self.body[start : start + 4], "big")

    def variable_byte_integer(self, field: str) -> int:
        """Read one to four bytes (§1.5.5); a longer form than needed is refused."""
        value = 0
        for shift in (0, 7, 14, 21):
            byte = self.byte(field)
            value |= (byte & 0x7F) << shift
            if not byte & _CONTINUATION:
                if not byte and shift:  # [MQTT-1.5.5-1]
                    raise MalformedPacket(f"{self.packet}: {field} uses more bytes than its value needs")
                return value
        raise MalformedPacket(f"{self.packet}: {field} is longer than four bytes")

    def binary(self, field: str) -> bytes:
        length = self.two_byte_integer(field)
        start = self._advance(length, field)
        return self.body[start : start + length]

    def string(self, field: str) -> str:
        """Read a UTF-8 Encoded String (§1.5.4). A leading U+FEFF is data and stays [MQTT-1.5.4-3] [MQTT3-1.5.3-3]."""
        length = self.two_byte_integer(field)
        start = self._advance(length, field)
        try:
            text = self.body[start : start + length].decode()  # [MQTT-1.5.4-1] [MQTT3-1.5.3-1] surrogates included
        except UnicodeDecodeError:
            raise MalformedPacket(f"{self.packet}: {field} is not well-formed UTF-8") from None
        if "\0" in text:  # [MQTT-1.5.4-2] [MQTT3-1.5.3-2] [MQTT-4.7.3-2] [MQTT3-4.7.3-2]
            raise MalformedPacket(f"{self.packet}: {field} contains U+0000")
        return text

    def rest(self) -> bytes:
        """Take everything up to the end."""
        start, self.position = self.position, self.end
        return self.body[start : self.end]

    def block(self, length: int, field: str) -> FieldReader:
        """Split off a reader for the next `length` bytes."""
        start = self._advance(length, field)
        return FieldReader(self.body, self.packet, start, start + length)

    def finish(self) -> None:
        """Demand that nothing is left."""
        if self.position != self.end:
            raise MalformedPacket(f"{self.packet}: {self.end - self.position} bytes are left over at its end")

    def _advance(self, count: int, field: str) -> int:
        start = self.position
        if start + count > self.end:
            raise MalformedPacket(f"{self.packet}: {field} goes beyond the end")
        self.position = start + count
        return start


def write_two_byte_integer(value: int, field: str) -> bytes:
    if not 0 <= value <= 0xFFFF:
        raise LocalProtocolError(f"{field} is {value}, must be 0 to 65535")
    return value.to_bytes(2, "big")


def write_four_byte_integer(value: int, field: str) -> bytes:
    if not 0 <= value <= 0xFFFF_FFFF:
        raise LocalProtocolError(f"{field} is {value}, must be 0 to 4294967295")
    return value.to_bytes(4, "big")


def write_variable_byte_integer(value: int, field: str) -> bytes:
    """Write with as few bytes as possible [MQTT-1.5.5-1]."""
    if not 0 <= value <= MAXIMUM_REMAINING_LENGTH:
        raise LocalProtocolError(f"{field} is {value}, must be 0 to {MAXIMUM_REMAINING_LENGTH}")
    encoded = bytearray()
    while value >= _CONTINUATION:
        encoded.append(value & 0x7F | _CONTINUATION)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def write_binary(value: bytes, field: str) -> bytes:
    if len(value) > MAXIMUM_STRING_BYTES:
        raise LocalProtocolError(f"{field} has {len(value)} bytes, at most {MAXIMUM_STRING_BYTES} can be sent")
    return len(value).to_bytes(2, "big") + value


def write_string(value: str, field: str) -> bytes:
    if "\0" in value:
        raise LocalProtocolError(f"{field} contains U+0000, which cannot be sent")
    try:
        return write_binary(value.encode(), field)
    except UnicodeEncodeError:
        raise LocalProtocolError(f"{field} contains a surrogate, which cannot be sent") from None
