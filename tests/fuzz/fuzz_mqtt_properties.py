"""Any property block at any place is Properties or an MqttError; what was read can be written and is read the same again."""

from __future__ import annotations

from collections.abc import Sequence

from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import MqttError
from iothub.mqtt.fields import FieldReader
from iothub.mqtt.properties import RULES, WILL_PROPERTIES, PropertyType, decode_properties, encode_properties
from iothub.testing.wire_bytes import props, text

PLACES = (WILL_PROPERTIES, *(int(packet_type) for packet_type in PacketType))
LIMIT = 1_000
_EXAMPLES = {
    PropertyType.BYTE: b"\x01",
    PropertyType.TWO_BYTE_INTEGER: b"\x00\x01",
    PropertyType.FOUR_BYTE_INTEGER: b"\x00\x00\x00\x01",
    PropertyType.VARIABLE_BYTE_INTEGER: b"\x81\x01",
    PropertyType.BINARY: text(b"\x00"),
    PropertyType.STRING: text("ä"),
    PropertyType.STRING_PAIR: text("k") + text("v"),
}


def _seed(place: int) -> bytes:
    examples = (bytes((rule.identifier,)) + _EXAMPLES[rule.type] for rule in RULES if place in rule.places)
    return bytes((place,)) + props(*examples)


SEEDS: Sequence[bytes] = tuple(_seed(place) for place in PLACES)


def target(data: bytes) -> None:
    """Take the place from the first byte, the block from the rest."""
    place = data[0] & 15 if data else 0
    try:
        properties = decode_properties(FieldReader(data[1:], "X"), place, LIMIT)
    except MqttError:
        return
    again = decode_properties(FieldReader(encode_properties(properties, place), "X"), place, LIMIT)
    assert again == properties, f"{properties} became {again}"
