"""Control Packets as lines of a trace: one direction of a connection is cut into packets, and each is described in a few words.

Knows no connection and no file. Of a packet only the beginning is kept, so a large payload costs no memory. Nothing of CONNECT and AUTH is
described: they carry secrets.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from iothub.mqtt.constants import MQTT_5_0

Fact = str | int | bool | list[str] | list[int]
Facts = dict[str, Fact]
OnPacket = Callable[[int, bytes], None]

HEAD_BYTES = 4 << 10  # of each packet, without the payload that is asked for
NAMES = (
    "", "CONNECT", "CONNACK", "PUBLISH", "PUBACK", "PUBREC", "PUBREL", "PUBCOMP",
    "SUBSCRIBE", "SUBACK", "UNSUBSCRIBE", "UNSUBACK", "PINGREQ", "PINGRESP", "DISCONNECT", "AUTH",
)  # fmt: skip
_PINGS = (12, 13)
_ACKS = (4, 5, 6, 7)


class PacketReader:
    """Cuts the bytes of one direction. `on_packet(size, head)`: the size of the packet, and its first bytes."""

    def __init__(self, on_packet: OnPacket, head_bytes: int) -> None:
        self._on_packet = on_packet
        self._most = head_bytes
        self._head = bytearray()
        self._size = 0  # of the running packet; 0: its length is not known yet
        self._left = 0

    def feed(self, data: bytes) -> None:
        """Take bytes; what is no packet is passed over, the hub closes such a connection."""
        at = 0
        while at < len(data):
            if not self._size:
                self._head.append(data[at])
                at += 1
                self._begin()
                continue
            count = min(self._left, len(data) - at)
            self._head += data[at : at + min(count, max(self._most - len(self._head), 0))]
            at += count
            self._left -= count
            self._end()

    def _begin(self) -> None:
        if len(self._head) < 2 or (self._head[-1] & 0x80 and len(self._head) < 5):
            return
        self._left = sum((octet & 0x7F) << 7 * place for place, octet in enumerate(self._head[1:]))
        self._size = len(self._head) + self._left
        self._end()

    def _end(self) -> None:
        if not self._left:
            head, size = bytes(self._head), self._size
            self._head.clear()
            self._size = 0
            self._on_packet(size, head)


def describe(size: int, head: bytes, version: int, payload_bytes: int, *, has_pings: bool) -> Facts | None:
    """Return what a trace says of a packet; None: nothing. `payload_bytes`: how much of a payload it may have."""
    kind = head[0] >> 4
    if not kind or (kind in _PINGS and not has_pings):
        return None
    facts: Facts = {"packet": NAMES[kind], "bytes": size}
    at = 2
    while at < 5 and head[at - 1] & 0x80:
        at += 1
    try:
        facts |= _details(kind, head, at, size, version, payload_bytes)
    except (IndexError, struct.error):
        facts["is_cut"] = True  # malformed, or longer than what is kept
    return facts


def _details(kind: int, head: bytes, at: int, size: int, version: int, payload_bytes: int) -> Facts:
    is_v5 = version == MQTT_5_0
    if kind == 3:
        return _publish(head, at, size, payload_bytes, is_v5=is_v5)
    if kind == 2:
        return {"session_present": bool(head[at] & 1), "code": head[at + 1]}
    if kind in _ACKS:
        return {"packet_id": _number(head, at), "code": head[at + 2] if size > at + 2 else 0}
    if kind == 14:
        return {"code": head[at] if size > at else 0}
    if kind in (8, 9, 10, 11):
        facts: Facts = {"packet_id": _number(head, at)}
        at += 2
        if is_v5:
            at = _behind_properties(head, at)
        return facts | _filters_or_codes(kind, head, at, size)
    return {}


def _publish(head: bytes, at: int, size: int, payload_bytes: int, *, is_v5: bool) -> Facts:
    qos = head[0] >> 1 & 3
    topic, at = _text(head, at)
    facts: Facts = {"topic": topic, "qos": qos, "retain": bool(head[0] & 1), "dup": bool(head[0] & 8)}
    if qos:
        facts["packet_id"] = _number(head, at)
        at += 2
    if is_v5:
        at = _behind_properties(head, at)
    facts["payload_bytes"] = max(size - at, 0)
    if payload_bytes:
        facts["payload"] = head[at : at + payload_bytes].decode(errors="backslashreplace")
    return facts


def _filters_or_codes(kind: int, head: bytes, at: int, size: int) -> Facts:
    if kind in (9, 11):
        return {"codes": list(head[at:size])}
    filters: list[str] = []
    levels: list[int] = []
    while at < size:
        text, at = _text(head, at)
        filters.append(text)
        if kind == 8:
            levels.append(head[at] & 3)
            at += 1
    return {"filters": filters, "qos": levels} if kind == 8 else {"filters": filters}


def _number(head: bytes, at: int) -> int:
    number: int = struct.unpack_from(">H", head, at)[0]
    return number


def _text(head: bytes, at: int) -> tuple[str, int]:
    length = _number(head, at)
    end = at + 2 + length
    if end > len(head):
        raise IndexError(end)
    return head[at + 2 : end].decode(errors="backslashreplace"), end


def _behind_properties(head: bytes, at: int) -> int:
    length, place = 0, 0
    while True:
        octet = head[at]
        at += 1
        length |= (octet & 0x7F) << place
        place += 7
        if not octet & 0x80 or place > 21:
            return at + length
