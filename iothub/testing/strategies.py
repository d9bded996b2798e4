"""Hypothesis strategies for Control Packets: every valid packet of a client, in every version.

Knows no decoder. Needs hypothesis, which only tests have.
"""

from __future__ import annotations

from hypothesis import strategies as st

from iothub.mqtt.constants import PacketType
from iothub.mqtt.packets import (
    Auth,
    Connect,
    Disconnect,
    Packet,
    Pingreq,
    Puback,
    Pubcomp,
    Publish,
    Pubrec,
    Pubrel,
    Subscribe,
    Subscription,
    Unsubscribe,
    Will,
)
from iothub.mqtt.properties import NO_PROPERTIES, RULES, WILL_PROPERTIES, Properties, PropertyRule, PropertyType
from iothub.mqtt.reason_codes import allowed_codes

VERSIONS = (3, 4, 5)

versions = st.sampled_from(VERSIONS)
strings = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=12)
binaries = st.binary(max_size=12)
payloads = st.binary(max_size=200)
packet_ids = st.integers(1, 0xFFFF)
qos = st.integers(0, 2)
topic_names = st.text(
    st.characters(codec="utf-8", exclude_characters="\0+#"), min_size=1, max_size=12
) | st.sampled_from(["a", "a/b", "/", "$SYS/x"])
topic_filters = st.sampled_from(["#", "+", "a/+/b", "a/#", "/", "$share/g/a/#"]) | topic_names


def _values(rule: PropertyRule) -> st.SearchStrategy[object]:
    if rule.field == "response_topic":
        return topic_names
    match rule.type:
        case PropertyType.BINARY:
            return binaries
        case PropertyType.STRING:
            return strings
        case PropertyType.STRING_PAIR:
            return st.lists(st.tuples(strings, strings), min_size=1, max_size=4).map(tuple)
        case PropertyType.TWO_BYTE_INTEGER:
            return st.integers(rule.low, min(rule.high, 0xFFFF))
        case PropertyType.VARIABLE_BYTE_INTEGER:
            return st.tuples(st.integers(rule.low, rule.high))
        case _:
            return st.integers(rule.low, rule.high)


def properties(place: int, version: int, *, without: tuple[str, ...] = ()) -> st.SearchStrategy[Properties]:
    """Any valid properties of one place; none in 3.x. Authentication Data never comes without its method."""
    if version != 5:
        return st.just(NO_PROPERTIES)
    optional = {rule.field: _values(rule) for rule in RULES if place in rule.places and rule.field not in without}

    def build(values: dict[str, object]) -> Properties:
        if "authentication_method" not in values:
            values.pop("authentication_data", None)
        return Properties(**values)  # type: ignore[arg-type]  # each value comes from the rule of its own attribute

    return st.fixed_dictionaries({}, optional=optional).map(build)


@st.composite
def wills(draw: st.DrawFn, version: int) -> Will:
    return Will(
        draw(topic_names), draw(payloads), draw(qos), draw(st.booleans()), draw(properties(WILL_PROPERTIES, version))
    )


@st.composite
def connects(draw: st.DrawFn, version: int) -> Connect:
    is_clean_start = draw(st.booleans())
    may_be_empty = version == 5 or (version == 4 and is_clean_start)
    username = draw(st.none() | strings)
    has_password = version == 5 or username is not None
    password = draw(st.none() | binaries) if has_password else None
    return Connect(
        draw(strings if may_be_empty else strings.filter(bool)),
        version,
        is_clean_start,
        draw(st.integers(0, 0xFFFF)),
        draw(st.none() | wills(version)),
        username,
        password,
        draw(properties(PacketType.CONNECT, version)),
    )


@st.composite
def publishes(draw: st.DrawFn, version: int) -> Publish:
    held = draw(properties(PacketType.PUBLISH, version, without=("subscription_identifiers",)))
    topic = "" if held.topic_alias is not None and draw(st.booleans()) else draw(topic_names)
    level = draw(qos)
    packet_id = draw(packet_ids) if level else 0
    return Publish(
        topic, draw(payloads), level, draw(st.booleans()), bool(level) and draw(st.booleans()), packet_id, held
    )


@st.composite
def acknowledgements(draw: st.DrawFn, version: int) -> Packet:
    kinds: tuple[type[Puback] | type[Pubrec] | type[Pubrel] | type[Pubcomp], ...] = (Puback, Pubrec, Pubrel, Pubcomp)
    kind = draw(st.sampled_from(kinds))
    packet_type = PacketType[kind.__name__.upper()]
    code = draw(st.sampled_from(sorted(allowed_codes(packet_type)))) if version == 5 else 0
    return kind(draw(packet_ids), code, draw(properties(packet_type, version)))


@st.composite
def subscriptions(draw: st.DrawFn, version: int) -> Subscription:
    topic_filter = draw(topic_filters)
    if version != 5:
        return Subscription(topic_filter, draw(qos))
    is_no_local = not topic_filter.startswith("$share/") and draw(st.booleans())
    return Subscription(topic_filter, draw(qos), is_no_local, draw(st.booleans()), draw(st.integers(0, 2)))


@st.composite
def subscribes(draw: st.DrawFn, version: int) -> Subscribe:
    wanted = draw(st.lists(subscriptions(version), min_size=1, max_size=5))
    return Subscribe(draw(packet_ids), tuple(wanted), draw(properties(PacketType.SUBSCRIBE, version)))


@st.composite
def unsubscribes(draw: st.DrawFn, version: int) -> Unsubscribe:
    wanted = draw(st.lists(topic_filters, min_size=1, max_size=5))
    return Unsubscribe(draw(packet_ids), tuple(wanted), draw(properties(PacketType.UNSUBSCRIBE, version)))


@st.composite
def disconnects(draw: st.DrawFn, version: int) -> Disconnect:
    if version != 5:
        return Disconnect()
    code = draw(st.sampled_from(sorted(allowed_codes(PacketType.DISCONNECT))))
    return Disconnect(code, draw(properties(PacketType.DISCONNECT, version, without=("server_reference",))))


@st.composite
def auths(draw: st.DrawFn) -> Auth:
    code = draw(st.sampled_from(sorted(allowed_codes(PacketType.AUTH))))
    held = draw(properties(PacketType.AUTH, 5).filter(lambda chosen: chosen.authentication_method is not None))
    return Auth(code, held)


def client_packets(version: int) -> st.SearchStrategy[Packet]:
    """Everything a client may send after its CONNECT."""
    either: list[st.SearchStrategy[Packet]] = [
        publishes(version),
        acknowledgements(version),
        subscribes(version),
        unsubscribes(version),
        st.just(Pingreq()),
        disconnects(version),
    ]
    return st.one_of(*either, auths()) if version == 5 else st.one_of(*either)
