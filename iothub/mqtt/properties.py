"""The properties of MQTT 5.0 (§2.2.2): one table of rules, one value object, decode and encode.

Knows no packet layout: a packet says which place it is (its type, or `WILL_PROPERTIES`) and gets what that place may hold.
Rules that need two packets, such as "not above Topic Alias Maximum", belong to the engine.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from iothub.base.errors import LocalProtocolError
from iothub.base.reasons import Reason
from iothub.mqtt import fields
from iothub.mqtt.constants import MAXIMUM_REMAINING_LENGTH, PacketType
from iothub.mqtt.errors import LimitExceeded, MalformedPacket, MqttError, ProtocolError
from iothub.mqtt.fields import FieldReader

WILL_PROPERTIES: Final = 0  # a place beside the packet types: Will Properties in the payload of CONNECT

_PUBLISHED: Final = frozenset({PacketType.PUBLISH, WILL_PROPERTIES})
_ANSWERS: Final = frozenset(
    {
        PacketType.CONNACK,
        PacketType.PUBACK,
        PacketType.PUBREC,
        PacketType.PUBREL,
        PacketType.PUBCOMP,
        PacketType.SUBACK,
        PacketType.UNSUBACK,
        PacketType.DISCONNECT,
        PacketType.AUTH,
    }
)
_EVERYWHERE: Final = _ANSWERS | _PUBLISHED | {PacketType.CONNECT, PacketType.SUBSCRIBE, PacketType.UNSUBSCRIBE}


class PropertyType(Enum):
    """Data types of §2.2.2.2."""

    BYTE = "Byte"
    TWO_BYTE_INTEGER = "Two Byte Integer"
    FOUR_BYTE_INTEGER = "Four Byte Integer"
    VARIABLE_BYTE_INTEGER = "Variable Byte Integer"
    BINARY = "Binary Data"
    STRING = "UTF-8 Encoded String"
    STRING_PAIR = "UTF-8 String Pair"


@dataclass(frozen=True, slots=True)
class PropertyRule:
    """One row of Table 2-4. `field` is the attribute of `Properties`; integers are valid from `low` to `high`."""

    identifier: int
    name: str
    field: str
    type: PropertyType
    places: frozenset[int]
    low: int = 0
    high: int = 0xFFFF_FFFF
    out_of_range: Reason = Reason.PROTOCOL_ERROR


@dataclass(frozen=True, slots=True, repr=False)
class Properties:
    """The properties of one packet or Will; None or () means absent. Order of User Properties is kept [MQTT-3.3.2-18] [MQTT-3.1.3-10]."""

    payload_format_indicator: int | None = None
    message_expiry_interval_s: int | None = None
    content_type: str | None = None
    response_topic: str | None = None
    correlation_data: bytes | None = None
    subscription_identifiers: tuple[int, ...] = ()
    session_expiry_interval_s: int | None = None
    assigned_client_identifier: str | None = None
    server_keep_alive_s: int | None = None
    authentication_method: str | None = None
    authentication_data: bytes | None = None
    request_problem_information: int | None = None
    will_delay_interval_s: int | None = None
    request_response_information: int | None = None
    response_information: str | None = None
    server_reference: str | None = None
    reason_string: str | None = None
    receive_maximum: int | None = None
    topic_alias_maximum: int | None = None
    topic_alias: int | None = None
    maximum_qos: int | None = None
    retain_available: int | None = None
    user_properties: tuple[tuple[str, str], ...] = ()
    maximum_packet_size_bytes: int | None = None
    wildcard_subscription_available: int | None = None
    subscription_identifier_available: int | None = None
    shared_subscription_available: int | None = None

    def __repr__(self) -> str:
        held = ((rule.field, getattr(self, rule.field)) for rule in RULES)
        shown = (
            f"{field}=..." if field == "authentication_data" else f"{field}={value!r}"
            for field, value in held
            if value is not None and value != ()
        )
        return f"Properties({', '.join(shown)})"


NO_PROPERTIES: Final = Properties()


def _row(
    identifier: int,
    name: str,
    kind: PropertyType,
    places: frozenset[int] | set[PacketType],
    field: str = "",
    **bounds: Any,
) -> PropertyRule:
    return PropertyRule(
        identifier,
        name,
        field or name.lower().replace(" ", "_"),
        kind,
        frozenset(int(place) for place in places),
        **bounds,
    )


_B, _2, _4, _V = (
    PropertyType.BYTE,
    PropertyType.TWO_BYTE_INTEGER,
    PropertyType.FOUR_BYTE_INTEGER,
    PropertyType.VARIABLE_BYTE_INTEGER,
)
_BIN, _STR = PropertyType.BINARY, PropertyType.STRING
_CONNECT, _CONNACK = PacketType.CONNECT, PacketType.CONNACK

# A flag other than 0 or 1, and a zero where the text says so, is a Protocol Error; Topic Alias 0 has its own code [MQTT-3.3.2-8].
RULES: Final = (
    _row(0x01, "Payload Format Indicator", _B, _PUBLISHED, high=1),
    _row(0x02, "Message Expiry Interval", _4, _PUBLISHED, "message_expiry_interval_s"),
    _row(0x03, "Content Type", _STR, _PUBLISHED),  # [MQTT-3.3.2-19]
    _row(0x08, "Response Topic", _STR, _PUBLISHED),  # [MQTT-3.3.2-13]
    _row(0x09, "Correlation Data", _BIN, _PUBLISHED),
    _row(
        0x0B,
        "Subscription Identifier",
        _V,
        {PacketType.PUBLISH, PacketType.SUBSCRIBE},
        "subscription_identifiers",
        low=1,
        high=MAXIMUM_REMAINING_LENGTH,
    ),
    _row(0x11, "Session Expiry Interval", _4, {_CONNECT, _CONNACK, PacketType.DISCONNECT}, "session_expiry_interval_s"),
    _row(0x12, "Assigned Client Identifier", _STR, {_CONNACK}),
    _row(0x13, "Server Keep Alive", _2, {_CONNACK}, "server_keep_alive_s"),
    _row(0x15, "Authentication Method", _STR, {_CONNECT, _CONNACK, PacketType.AUTH}),
    _row(0x16, "Authentication Data", _BIN, {_CONNECT, _CONNACK, PacketType.AUTH}),
    _row(0x17, "Request Problem Information", _B, {_CONNECT}, high=1),
    _row(0x18, "Will Delay Interval", _4, frozenset({WILL_PROPERTIES}), "will_delay_interval_s"),
    _row(0x19, "Request Response Information", _B, {_CONNECT}, high=1),
    _row(0x1A, "Response Information", _STR, {_CONNACK}),
    _row(0x1C, "Server Reference", _STR, {_CONNACK, PacketType.DISCONNECT}),
    _row(0x1F, "Reason String", _STR, _ANSWERS),
    _row(0x21, "Receive Maximum", _2, {_CONNECT, _CONNACK}, low=1),
    _row(0x22, "Topic Alias Maximum", _2, {_CONNECT, _CONNACK}),
    _row(0x23, "Topic Alias", _2, {PacketType.PUBLISH}, low=1, out_of_range=Reason.TOPIC_ALIAS_INVALID),
    _row(0x24, "Maximum QoS", _B, {_CONNACK}, high=1),
    _row(0x25, "Retain Available", _B, {_CONNACK}, high=1),
    _row(0x26, "User Property", PropertyType.STRING_PAIR, _EVERYWHERE, "user_properties"),
    _row(0x27, "Maximum Packet Size", _4, {_CONNECT, _CONNACK}, "maximum_packet_size_bytes", low=1),
    _row(0x28, "Wildcard Subscription Available", _B, {_CONNACK}, high=1),
    _row(0x29, "Subscription Identifier Available", _B, {_CONNACK}, high=1),
    _row(0x2A, "Shared Subscription Available", _B, {_CONNACK}, high=1),
)
_RULE_OF: Final = {rule.identifier: rule for rule in RULES}
_IDENTIFIERS: Final = "subscription_identifiers"
_NOT_FORWARDED: Final = frozenset({"message_expiry_interval_s", _IDENTIFIERS, "topic_alias"})


def decode_properties(
    reader: FieldReader, place: int, max_user_properties: int, refused: frozenset[int] = frozenset()
) -> Properties:
    """Read Property Length and Properties of `place` (a PacketType or WILL_PROPERTIES). O(bytes).

    `refused` are identifiers that belong to this place but not to this sender: a Protocol Error as soon as one is seen.
    Raises: MalformedPacket for a broken length or value, an unknown property and one that does not belong to this place (§2.2.2.2);
    ProtocolError for a second one of a kind and for a value out of range; LimitExceeded above `max_user_properties`.
    """
    length = reader.variable_byte_integer("Property Length")
    if not length:
        return NO_PROPERTIES
    block = reader.block(length, "Properties")
    values: dict[str, Any] = {}  # attribute of Properties -> value of the type its rule names
    users: list[tuple[str, str]] = []
    while block.position < block.end:
        rule = _RULE_OF.get(block.variable_byte_integer("Property Identifier"))
        if rule is None or place not in rule.places:
            raise MalformedPacket(
                f"{block.packet}: {'unknown property' if rule is None else rule.name} is not allowed here"
            )
        if rule.identifier in refused:
            raise ProtocolError(f"{block.packet}: {rule.name} was sent in the wrong direction")
        if rule.type is PropertyType.STRING_PAIR:
            if len(users) >= max_user_properties:
                raise LimitExceeded(
                    f"{block.packet}: more than {max_user_properties} User Properties", limit="user_properties"
                )
            users.append((block.string("User Property name"), block.string("User Property value")))  # [MQTT-1.5.7-1]
            continue
        _take(block, rule, place, values)
    if users:
        values["user_properties"] = tuple(users)
    if _IDENTIFIERS in values:
        values[_IDENTIFIERS] = tuple(values[_IDENTIFIERS])
    return Properties(**values)


def encode_properties(properties: Properties, place: int) -> bytes:
    """Write Property Length and Properties; no properties are a zero length [MQTT-2.2.2-1].

    Raises: LocalProtocolError if `place` may not hold one of them or a value is out of range.
    """
    if properties is NO_PROPERTIES:
        return b"\x00"
    encoded = b"".join(_write(rule, properties, place) for rule in RULES)
    return fields.write_variable_byte_integer(len(encoded), "Property Length") + encoded


def encode_message_properties(properties: Properties) -> bytes:
    """Write those properties of a PUBLISH or Will that are forwarded unaltered, without Property Length.

    Left out: Message Expiry Interval, Topic Alias, Subscription Identifiers and Will Delay Interval, which each delivery sets anew.
    """
    chosen = (rule for rule in RULES if PacketType.PUBLISH in rule.places and rule.field not in _NOT_FORWARDED)
    return b"".join(_write(rule, properties, PacketType.PUBLISH) for rule in chosen)


def _take(block: FieldReader, rule: PropertyRule, place: int, values: dict[str, Any]) -> None:
    """Read one value that is not a User Property into `values`."""
    is_repeatable = rule.field == _IDENTIFIERS and place == PacketType.PUBLISH
    if rule.field in values and not is_repeatable:
        raise ProtocolError(f"{block.packet}: {rule.name} occurs more than once")
    value = _read(block, rule)
    if isinstance(value, int) and not rule.low <= value <= rule.high:
        raise MqttError(f"{block.packet}: {rule.name} is {value}, which is not allowed", rule.out_of_range)
    if rule.field == _IDENTIFIERS:
        values.setdefault(rule.field, []).append(value)
    elif rule.field == "response_topic" and isinstance(value, str) and (not value or "+" in value or "#" in value):
        # a Topic Name: [MQTT-4.7.3-1] [MQTT-3.3.2-14]
        raise ProtocolError(f"{block.packet}: the Response Topic is empty or contains a wildcard")
    else:
        values[rule.field] = value


def _read(block: FieldReader, rule: PropertyRule) -> int | str | bytes:
    match rule.type:
        case PropertyType.BYTE:
            return block.byte(rule.name)
        case PropertyType.TWO_BYTE_INTEGER:
            return block.two_byte_integer(rule.name)
        case PropertyType.FOUR_BYTE_INTEGER:
            return block.four_byte_integer(rule.name)
        case PropertyType.VARIABLE_BYTE_INTEGER:
            return block.variable_byte_integer(rule.name)
        case PropertyType.BINARY:
            return block.binary(rule.name)
        case _:
            return block.string(rule.name)


def _write(rule: PropertyRule, properties: Properties, place: int) -> bytes:
    """Write every value of one rule, each with its identifier; b"" when absent."""
    held: Any = getattr(properties, rule.field)
    if held is None or held == ():
        return b""
    if place not in rule.places:
        raise LocalProtocolError(f"{rule.name} cannot be sent in this packet")
    values = held if isinstance(held, tuple) else (held,)
    if len(values) > 1 and rule.field == _IDENTIFIERS and place != PacketType.PUBLISH:
        raise LocalProtocolError("a SUBSCRIBE can carry only one Subscription Identifier")
    identifier = bytes((rule.identifier,))
    return b"".join(identifier + _write_value(rule, value) for value in values)


def _write_value(rule: PropertyRule, value: Any) -> bytes:
    if isinstance(value, int) and not rule.low <= value <= rule.high:
        raise LocalProtocolError(f"{rule.name} is {value}, must be {rule.low} to {rule.high}")
    match rule.type:
        case PropertyType.BYTE:
            return bytes((value,))
        case PropertyType.TWO_BYTE_INTEGER:
            return fields.write_two_byte_integer(value, rule.name)
        case PropertyType.FOUR_BYTE_INTEGER:
            return fields.write_four_byte_integer(value, rule.name)
        case PropertyType.VARIABLE_BYTE_INTEGER:
            return fields.write_variable_byte_integer(value, rule.name)
        case PropertyType.BINARY:
            return fields.write_binary(value, rule.name)
        case PropertyType.STRING:
            return fields.write_string(value, rule.name)
        case _:
            return fields.write_string(value[0], "User Property name") + fields.write_string(
                value[1], "User Property value"
            )
