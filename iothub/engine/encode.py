# cython: annotation_typing=False
"""PUBLISH frames and acknowledgements as bytes: what several receivers get is made once and copied, what one gets is written where it leaves.

Knows no sessions: flags and Packet Identifier are patched into each receiver's own copy, at `identifier_at`.
"""

from __future__ import annotations

from iothub.engine.message import Message


def varint(number: int) -> bytes:
    """Encode a Variable Byte Integer in its fewest bytes (§1.5.5)."""
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    if number < 0x200000:
        return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14))
    return bytes((number & 0x7F | 0x80, number >> 7 & 0x7F | 0x80, number >> 14 & 0x7F | 0x80, number >> 21))


def short(number: int) -> bytes:
    """Encode a Two Byte Integer (§1.5.2)."""
    return bytes((number >> 8, number & 0xFF))


def assemble(topic: bytes, payload: bytes, properties: bytes, is_v5: bool, is_identified: bool) -> bytes:
    """Return one PUBLISH with all flags 0 and, if identified, Packet Identifier 0."""
    identifier = b"\0\0" if is_identified else b""
    size = 2 + len(topic) + len(identifier) + len(payload)
    if not is_v5:
        return b"".join((b"\x30", varint(size), short(len(topic)), topic, identifier, payload))
    length = varint(len(properties))
    size += len(length) + len(properties)
    return b"".join((b"\x30", varint(size), short(len(topic)), topic, identifier, length, properties, payload))


def shared_frame(message: Message, is_v5: bool, is_identified: bool) -> bytes:
    """Return the message's frame for one family, encoding it at most once. Not for messages with an expiry towards 5.0 clients."""
    if is_v5:
        if is_identified:
            if message.frame5_identified is None:
                message.frame5_identified = assemble(message.topic, message.payload, message.properties, True, True)
            return message.frame5_identified
        if message.frame5 is None:
            message.frame5 = assemble(message.topic, message.payload, message.properties, True, False)
        return message.frame5
    if is_identified:
        if message.frame3_identified is None:
            message.frame3_identified = assemble(message.topic, message.payload, b"", False, True)
        return message.frame3_identified
    if message.frame3 is None:
        message.frame3 = assemble(message.topic, message.payload, b"", False, False)
    return message.frame3


def has_frame(message: Message) -> bool:
    """Whether a frame of the message was kept, for several receivers."""
    return (
        message.frame3_identified is not None
        or message.frame3 is not None
        or message.frame5_identified is not None
        or message.frame5 is not None
    )


def frame_size(message: Message, is_v5: bool, is_identified: bool) -> int:
    """Return how long the message's shared frame for one family is."""
    remaining = _remaining_length(message, is_v5, is_identified)
    return 1 + _varint_size(remaining) + remaining


def _remaining_length(message: Message, is_v5: bool, is_identified: bool) -> int:
    size = 2 + len(message.topic) + len(message.payload)
    if is_identified:
        size += 2
    if is_v5:
        length = len(message.properties)
        size += length + _varint_size(length)
    return size


def _varint_size(number: int) -> int:
    if number < 0x80:
        return 1
    if number < 0x4000:
        return 2
    return 3 if number < 0x200000 else 4


def append_frame(out: bytearray, message: Message, is_v5: bool, is_identified: bool, size: int) -> int:
    """Append what `shared_frame` returns, which has this size; return where the Packet Identifier stands.

    The compiled counterpart, which makes no frame before, is in `frames.pyx`.
    """
    frame = assemble(message.topic, message.payload, message.properties, is_v5, is_identified)
    if size != len(frame):
        raise ValueError("the frame has another size")
    start = len(out)
    out += frame
    return start + identifier_at(frame)


def own_properties(message: Message, expiry: int, identifiers: tuple[int, ...], alias: int) -> bytes:
    """Return the properties of one receiver's copy: remaining expiry (-1: none), alias (0: none), identifiers, then what is forwarded.

    That is unaltered and in order [MQTT-3.3.2-4] [MQTT-3.3.2-15] [MQTT-3.3.2-16] [MQTT-3.3.2-17] [MQTT-3.3.2-18] [MQTT-3.3.2-20].
    """
    properties = b""
    if expiry >= 0:
        properties += b"\x02" + expiry.to_bytes(4, "big")  # [MQTT-3.3.2-6]
    if alias:
        properties += b"\x23" + short(alias)
    for identifier in identifiers:
        properties += b"\x0b" + varint(identifier)  # [MQTT-3.3.4-3]
    return properties + message.properties


def identifier_at(frame: bytes) -> int:
    """Return where the Packet Identifier stands in a PUBLISH frame: behind Remaining Length and Topic Name."""
    index = 1
    while frame[index] & 0x80:
        index += 1
    return index + 3 + (frame[index + 1] << 8 | frame[index + 2])


def append_ack(out: bytearray, header: int, packet_id: int, code: int) -> int:
    """Append PUBACK, PUBREC, PUBREL or PUBCOMP; a Reason Code of 0 is left out. Returns the bytes appended."""
    out.append(header)
    out.append(3 if code else 2)
    out.append(packet_id >> 8)
    out.append(packet_id & 0xFF)
    if code:
        out.append(code)
        return 5
    return 4
