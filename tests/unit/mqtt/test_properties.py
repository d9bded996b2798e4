"""The table of properties, and what is refused with which Reason."""

from __future__ import annotations

from dataclasses import fields as dataclass_fields

import pytest

from iothub.base.errors import LocalProtocolError
from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import LimitExceeded, MalformedPacket, MqttError, ProtocolError
from iothub.mqtt.fields import FieldReader
from iothub.mqtt.properties import (
    NO_PROPERTIES,
    RULES,
    WILL_PROPERTIES,
    Properties,
    PropertyRule,
    PropertyType,
    decode_properties,
    encode_message_properties,
    encode_properties,
)
from iothub.testing.wire_bytes import props, text

PLACES = [WILL_PROPERTIES, *(int(packet_type) for packet_type in PacketType)]
EXAMPLES = {
    PropertyType.BYTE: b"\x01",
    PropertyType.TWO_BYTE_INTEGER: b"\x00\x01",
    PropertyType.FOUR_BYTE_INTEGER: b"\x00\x00\x00\x01",
    PropertyType.VARIABLE_BYTE_INTEGER: b"\x01",
    PropertyType.BINARY: text(b"x"),
    PropertyType.STRING: text("x"),
    PropertyType.STRING_PAIR: text("k") + text("v"),
}


def _decode(place: int, *properties: bytes, limit: int = 128) -> Properties:
    return decode_properties(FieldReader(props(*properties), "X"), place, limit)


def _example(rule: PropertyRule) -> bytes:
    return bytes((rule.identifier,)) + EXAMPLES[rule.type]


def test_rules_cover_every_attribute_once() -> None:
    """27 properties, 27 attributes, identifiers without a gap in meaning."""
    assert sorted(rule.field for rule in RULES) == sorted(field.name for field in dataclass_fields(Properties))
    assert len({rule.identifier for rule in RULES}) == 27


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_property_is_accepted_exactly_where_it_belongs(rule: PropertyRule) -> None:
    """§2.2.2.2: an identifier that is not valid for its packet type is a Malformed Packet; elsewhere it round-trips."""
    for place in PLACES:
        if place in rule.places:
            decoded = _decode(place, _example(rule))
            assert encode_properties(decoded, place) == props(_example(rule))
        else:
            with pytest.raises(MalformedPacket):
                _decode(place, _example(rule))


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_property_twice_is_a_protocol_error_unless_repeatable(rule: PropertyRule) -> None:
    """Only User Property may occur more than once, and the Subscription Identifier of a PUBLISH."""
    for place in rule.places:
        is_repeatable = rule.field == "user_properties" or (rule.identifier == 0x0B and place == PacketType.PUBLISH)
        if is_repeatable:
            assert len(getattr(_decode(place, _example(rule), _example(rule)), rule.field)) == 2
        else:
            with pytest.raises(ProtocolError):
                _decode(place, _example(rule), _example(rule))


@pytest.mark.parametrize("identifier", sorted(set(range(256)) - {rule.identifier for rule in RULES}))
def test_property_that_does_not_exist_is_malformed(identifier: int) -> None:
    """Unknown identifiers are never skipped: their length cannot be known."""
    with pytest.raises(MalformedPacket):
        _decode(PacketType.PUBLISH, bytes((identifier, 0, 0, 0, 0)))


def test_property_value_out_of_range_has_the_reason_of_its_rule() -> None:
    """[MQTT-3.3.2-8] Topic Alias 0 is 0x94, every other wrong number 0x82."""
    reasons = {}
    for rule in RULES:
        wrong = 0 if rule.low else rule.high + 1
        width = {PropertyType.BYTE: 1, PropertyType.TWO_BYTE_INTEGER: 2, PropertyType.FOUR_BYTE_INTEGER: 4}
        size = width.get(rule.type, 1)
        if rule.type in (PropertyType.BINARY, PropertyType.STRING, PropertyType.STRING_PAIR) or wrong >= 1 << 8 * size:
            continue
        with pytest.raises(MqttError) as caught:
            _decode(next(iter(rule.places)), bytes((rule.identifier,)) + wrong.to_bytes(size, "big"))
        reasons[rule.name] = caught.value.reason_code

    assert reasons.pop("Topic Alias") == 0x94
    assert set(reasons.values()) == {0x82}
    assert len(reasons) == 11


def test_user_properties_keep_their_order_and_repetitions() -> None:
    """[MQTT-3.3.2-18] [MQTT-3.1.3-10] Neither sorted nor merged, in a PUBLISH and in a Will."""
    pairs = (("b", "1"), ("a", "2"), ("b", "1"))

    for place in (PacketType.PUBLISH, WILL_PROPERTIES):
        encoded = encode_properties(Properties(user_properties=pairs), place)
        assert decode_properties(FieldReader(encoded, "X"), place, 3).user_properties == pairs


def test_user_properties_over_the_limit_name_the_quota() -> None:
    """The error says which limit it was."""
    pair = b"\x26" + EXAMPLES[PropertyType.STRING_PAIR]

    with pytest.raises(LimitExceeded) as caught:
        _decode(PacketType.PUBLISH, pair, pair, limit=1)

    assert caught.value.limit == "user_properties"


def test_no_properties_are_a_zero_length() -> None:
    """[MQTT-2.2.2-1] The length is always there."""
    assert encode_properties(NO_PROPERTIES, PacketType.PUBLISH) == b"\x00"
    assert encode_properties(Properties(), PacketType.PUBLISH) == b"\x00"
    assert _decode(PacketType.PUBLISH) is NO_PROPERTIES


@pytest.mark.parametrize(
    ("properties", "place"),
    [
        (Properties(topic_alias=1), PacketType.CONNECT),
        (Properties(topic_alias=0), PacketType.PUBLISH),
        (Properties(maximum_qos=2), PacketType.CONNACK),
        (Properties(subscription_identifiers=(1, 2)), PacketType.SUBSCRIBE),
        (Properties(reason_string="a\0"), PacketType.CONNACK),
    ],
)
def test_property_that_may_not_be_sent_is_our_defect(properties: Properties, place: int) -> None:
    """[MQTT-3.3.2-8] The encoder is as strict as the decoder."""
    with pytest.raises(LocalProtocolError):
        encode_properties(properties, place)


def test_message_properties_leave_out_what_each_delivery_sets() -> None:
    """What a publisher said of its message goes on unaltered and in order, for wills and API publishes as for any PUBLISH."""
    properties = Properties(
        payload_format_indicator=1,
        message_expiry_interval_s=9,
        content_type="t",
        response_topic="r",
        correlation_data=b"c",
        subscription_identifiers=(7,),
        will_delay_interval_s=5,
        topic_alias=3,
        user_properties=(("k", "v"), ("k", "w")),
    )

    encoded = encode_message_properties(properties)

    assert _decode(PacketType.PUBLISH, encoded) == Properties(
        payload_format_indicator=1,
        content_type="t",
        response_topic="r",
        correlation_data=b"c",
        user_properties=(("k", "v"), ("k", "w")),
    )


def test_properties_show_only_what_is_there_and_no_secret() -> None:
    """A log line or a failing test stays readable; Authentication Data stays out of it."""
    properties = Properties(topic_alias=3, authentication_data=b"secret")

    assert repr(properties) == "Properties(authentication_data=..., topic_alias=3)"
    assert repr(NO_PROPERTIES) == "Properties()"
