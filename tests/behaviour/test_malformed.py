"""Packets that break a rule: closed, in 5.0 with the Reason Code that the specification gives, and nobody else notices."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import CLOSED_S, Clients
from tests.support.clients.packets import CONNACK, PUBACK, packet, string

MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID, ALIAS_INVALID = 0x81, 0x82, 0x90, 0x94
EITHER = (MALFORMED, PROTOCOL_ERROR)


def case(name: str, bad: bytes, *codes: int) -> object:
    return pytest.param(bad, codes, id=name)


def publish(topic: bytes, header: int = 0x30, identifier: bytes = b"", version: int = 4, props: bytes = b"") -> bytes:
    middle = bytes([len(props)]) + props if version == 5 else b""
    return packet(header, string(topic) + identifier + middle + b"payload")


HEADERS = [
    case("type 0", packet(0x00, b""), MALFORMED),
    case("subscribe with flags 0000", packet(0x80, b"\x00\x01\x00\x00\x01t\x00"), MALFORMED),
    case("subscribe with flags 0011", packet(0x83, b"\x00\x01\x00\x00\x01t\x00"), MALFORMED),
    case("unsubscribe with flags 0000", packet(0xA0, b"\x00\x01\x00\x00\x01t"), MALFORMED),
    case("pubrel with flags 0000", packet(0x60, b"\x00\x01"), MALFORMED),
    case("puback with flags 0010", packet(0x42, b"\x00\x01"), MALFORMED),
    case("pubrec with flags 0001", packet(0x51, b"\x00\x01"), MALFORMED),
    case("pubcomp with flags 1000", packet(0x78, b"\x00\x01"), MALFORMED),
    case("pingreq with flags 0001", packet(0xC1, b""), MALFORMED),
    case("disconnect with flags 0001", packet(0xE1, b""), MALFORMED),
    case("pingreq with a body", packet(0xC0, b"x"), MALFORMED),
    case("publish with both qos bits", publish(b"t", 0x36, b"\x00\x01"), MALFORMED),
    case("remaining length of five bytes", b"\x30\x80\x80\x80\x80\x01", MALFORMED),
    case("remaining length without end", b"\x30\xff\xff\xff\xff", MALFORMED),
    case("connack from a client", packet(0x20, b"\x00\x00\x00"), *EITHER),
    case("suback from a client", packet(0x90, b"\x00\x01\x00\x00"), *EITHER),
    case("unsuback from a client", packet(0xB0, b"\x00\x01\x00\x00"), *EITHER),
    case("pingresp from a client", packet(0xD0, b""), *EITHER),
    case("puback without identifier", packet(0x40, b"\x00"), MALFORMED),
    case("puback of nothing", packet(0x40, b""), MALFORMED),
    case("subscribe of nothing", packet(0x82, b""), MALFORMED),
]


@pytest.mark.parametrize(("bad", "codes"), HEADERS)
def test_bad_fixed_headers_close(tcp: Clients, version: int, bad: bytes, codes: tuple[int, ...]) -> None:
    """Flags, types and lengths that no version has.

    [MQTT-2.1.3-1] [MQTT-1.5.5-1] [MQTT-3.3.1-4] [MQTT-3.6.1-1] [MQTT-3.8.1-1] [MQTT-3.10.1-1] [MQTT-3.14.1-1] [MQTT-4.13.1-1] [MQTT-4.13.2-1]
    [MQTT3-2.2.2-1] [MQTT3-2.2.2-2] [MQTT3-3.3.1-4] [MQTT3-3.6.1-1] [MQTT3-3.8.1-1] [MQTT3-3.10.1-1] [MQTT3-3.14.1-1] [MQTT3-4.8.0-1]
    """
    client = tcp(version)

    client.send(bad)

    client.refused(*codes)


def test_bad_packet_closes_through_every_listener(join: Clients, version: int) -> None:
    """[MQTT-4.13.1-1] [MQTT3-4.8.0-1]."""
    client = join(version)

    client.send(packet(0xC0, b"x"))

    client.refused(MALFORMED)


def test_client_that_goes_on_sending_can_read_why_it_was_closed(tcp: Clients) -> None:
    """No reset takes the DISCONNECT away from it. [MQTT-4.13.1-1]."""
    client, witness = tcp(5), tcp(4)
    client.send(packet(0xC1, b""))
    for _ in range(3):
        witness.ping()  # the hub has closed its side meanwhile
        client.send(bytes(1000))
    witness.ping()

    said = b""
    while data := client.stream.recv(4096):  # a reset raises ConnectionResetError
        said += data

    assert said == b"\xe0\x01\x81"


TOPICS = [
    pytest.param(b"a/+/b", id="plus"),
    pytest.param(b"a/#", id="number sign"),
    pytest.param(b"#", id="number sign alone"),
    pytest.param(b"a+", id="plus inside a level"),
    pytest.param(b"a\x00b", id="u+0000"),
    pytest.param(b"a\xc3\x28", id="not utf-8"),
    pytest.param(b"a\xed\xa0\x80", id="a surrogate"),
    pytest.param(b"\xc0\x80", id="overlong"),
    pytest.param(b"\xf5\x80\x80\x80", id="beyond unicode"),
]


@pytest.mark.parametrize("topic", TOPICS)
def test_bad_topic_names_close(tcp: Clients, version: int, topic: bytes) -> None:
    """A Topic Name is well-formed UTF-8 without U+0000 and wildcards.

    [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-3.3.2-1] [MQTT-3.3.2-2] [MQTT-4.7.0-1] [MQTT-4.7.3-2]
    [MQTT3-1.5.3-1] [MQTT3-1.5.3-2] [MQTT3-3.3.2-1] [MQTT3-3.3.2-2] [MQTT3-4.7.1-1] [MQTT3-4.7.3-2]
    """
    client = tcp(version)

    client.send(publish(topic, version=version))

    client.refused(MALFORMED, PROTOCOL_ERROR, TOPIC_INVALID)


def test_empty_topic_name_closes(tcp: Clients, version: int) -> None:
    """Without a Topic Alias it means nothing. [MQTT-4.7.3-1] [MQTT3-4.7.3-1]."""
    client = tcp(version)

    client.send(publish(b"", version=version))

    client.refused(PROTOCOL_ERROR, TOPIC_INVALID)


@pytest.mark.parametrize(
    ("header", "identifier"),
    [
        pytest.param(0x32, b"\x00\x00", id="qos 1, identifier 0"),
        pytest.param(0x34, b"\x00\x00", id="qos 2, identifier 0"),
        pytest.param(0x38, b"", id="qos 0, dup"),
    ],
)
def test_publish_against_the_rules_closes(tcp: Clients, version: int, header: int, identifier: bytes) -> None:
    """[MQTT-2.2.1-3] [MQTT-3.3.1-2] [MQTT-4.3.1-1] [MQTT3-2.3.1-1] [MQTT3-3.3.1-2] [MQTT3-4.3.1-1]."""
    client = tcp(version)

    client.send(publish(b"t", header, identifier, version))

    client.refused(*EITHER)


@pytest.mark.parametrize(
    "bad", [packet(0x30, b"\x00\x09t"), packet(0x30, b"\x00"), packet(0x32, b"\x00\x01t\x00"), packet(0x30, b"")]
)
def test_publish_cut_short_closes(tcp: Clients, version: int, bad: bytes) -> None:
    """[MQTT-4.13.1-1] [MQTT3-4.8.0-1]."""
    client = tcp(version)

    client.send(bad)

    client.refused(MALFORMED)


def subscribe_body(version: int, *filters: tuple[bytes, int], identifier: int = 1) -> bytes:
    start = identifier.to_bytes(2, "big") + (b"\x00" if version == 5 else b"")
    return start + b"".join(string(name) + bytes([options]) for name, options in filters)


@pytest.mark.parametrize(
    ("filters", "identifier", "codes"),
    [
        pytest.param([], 1, EITHER, id="no filter"),
        pytest.param([(b"t", 3)], 1, EITHER, id="qos 3"),
        pytest.param([(b"t", 0x40)], 1, (MALFORMED,), id="reserved bit 6"),
        pytest.param([(b"t", 0x80)], 1, (MALFORMED,), id="reserved bit 7"),
        pytest.param([(b"t", 0x30)], 1, EITHER, id="retain handling 3"),
        pytest.param([(b"$share/g/t", 0x04)], 1, (PROTOCOL_ERROR,), id="no local on a shared subscription"),
        pytest.param([(b"t", 0)], 0, EITHER, id="identifier 0"),
        pytest.param([(b"a\xc3\x28", 0)], 1, EITHER, id="filter not utf-8"),
    ],
)
def test_bad_subscribe_closes(
    tcp: Clients, version: int, filters: list[tuple[bytes, int]], identifier: int, codes: tuple[int, ...]
) -> None:
    """In 3.1.1 every bit above the QoS is reserved.

    [MQTT-3.8.3-1] [MQTT-3.8.3-2] [MQTT-3.8.3-4] [MQTT-3.8.3-5] [MQTT-2.2.1-3] [MQTT3-3.8.3-1] [MQTT3-3.8.3-3] [MQTT3-3.8.3-4] [MQTT3-2.3.1-1]
    """
    client = tcp(version)

    client.send(packet(0x82, subscribe_body(version, *filters, identifier=identifier)))

    client.refused(*codes)


@pytest.mark.parametrize(
    ("rest", "identifier"),
    [
        pytest.param(b"", 1, id="no filter"),
        pytest.param(b"\x00\x02\xc3\x28", 1, id="filter not utf-8"),
        pytest.param(b"\x00\x01t", 0, id="identifier 0"),
        pytest.param(b"\x00\x05t", 1, id="filter cut short"),
    ],
)
def test_bad_unsubscribe_closes(tcp: Clients, version: int, rest: bytes, identifier: int) -> None:
    """[MQTT-3.10.3-1] [MQTT-3.10.3-2] [MQTT3-3.10.3-1] [MQTT3-3.10.3-2]."""
    client = tcp(version)

    client.send(packet(0xA2, identifier.to_bytes(2, "big") + (b"\x00" if version == 5 else b"") + rest))

    client.refused(*EITHER)


FILTERS = [b"a/#/b", b"a#", b"a/b#", b"a+", b"a/b+/c", b"a/++", b"##", b"", b"a\x00b"]
SHARED = [
    b"$share//t",
    b"$share/g",
    b"$share/g/",
    b"$share/",
    b"$share/g+/t",
    b"$share/g#/t",
    b"$share/+/t",
    b"$share/g/a#",
]


@pytest.mark.parametrize("name", FILTERS + SHARED)
def test_bad_topic_filters_close(tcp: Clients, version: int, name: bytes) -> None:
    """Nothing of the packet is in force: what stands before the bad filter is not subscribed.

    [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.7.3-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2] [MQTT-4.13.1-1]
    [MQTT3-4.7.1-2] [MQTT3-4.7.1-3] [MQTT3-4.7.3-1] [MQTT3-4.8.0-1]
    """
    topic, client = unique("t"), tcp(version, keep=True)

    client.send(packet(0x82, subscribe_body(version, (topic.encode(), 1), (name, 0))))

    client.refused(MALFORMED)
    tcp(4).publish(topic, b"x", 1)
    tcp(version, client.client_id, keep=True).nothing()


@pytest.mark.parametrize("name", FILTERS + SHARED)
def test_unsubscribe_of_bad_topic_filters_closes(tcp: Clients, version: int, name: bytes) -> None:
    """Nothing of the packet is in force: what stands before the bad filter is still subscribed.

    [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.7.3-1] [MQTT-4.8.2-1] [MQTT-4.8.2-2] [MQTT3-4.7.1-2] [MQTT3-4.7.1-3] [MQTT3-4.7.3-1]
    """
    topic, client = unique("t"), tcp(version, keep=True)
    client.subscribe((topic, 1))

    head = b"\x00\x09" + (b"\x00" if version == 5 else b"")
    client.send(packet(0xA2, head + string(topic) + string(name)))

    client.refused(MALFORMED)
    tcp(4).publish(topic, b"kept", 1)
    assert tcp(version, client.client_id, keep=True).payloads() == [b"kept"]


FIRST_BYTES = [
    pytest.param(0x00, MALFORMED, id="type 0"),
    pytest.param(0x10, PROTOCOL_ERROR, id="a second connect"),
    pytest.param(0x20, PROTOCOL_ERROR, id="connack"),
    pytest.param(0x36, MALFORMED, id="publish with both qos bits"),
    pytest.param(0x38, MALFORMED, id="publish with qos 0 and dup"),
    pytest.param(0x60, MALFORMED, id="pubrel with flags 0000"),
    pytest.param(0x80, MALFORMED, id="subscribe with flags 0000"),
    pytest.param(0x90, PROTOCOL_ERROR, id="suback"),
    pytest.param(0xA0, MALFORMED, id="unsubscribe with flags 0000"),
    pytest.param(0xB0, PROTOCOL_ERROR, id="unsuback"),
    pytest.param(0xC1, MALFORMED, id="pingreq with flags 0001"),
    pytest.param(0xD0, PROTOCOL_ERROR, id="pingresp"),
    pytest.param(0xE2, MALFORMED, id="disconnect with flags 0010"),
]


@pytest.mark.parametrize("rest", [b"", b"\xff", b"\x64half"], ids=["alone", "half a length", "half a packet"])
@pytest.mark.parametrize(("first", "code"), FIRST_BYTES)
def test_first_byte_that_may_not_come_closes_at_once(
    tcp: Clients, version: int, first: int, code: int, rest: bytes
) -> None:
    """Whatever would follow. [MQTT-2.1.3-1] [MQTT-3.1.0-2] [MQTT-3.3.1-4] [MQTT-4.13.1-1] [MQTT3-2.2.2-2] [MQTT3-3.1.0-2] [MQTT3-4.8.0-1]."""
    client = tcp(version)

    client.send(bytes((first,)) + rest)

    client.refused(code)


def prop(name: int, value: bytes) -> bytes:
    return bytes([name]) + value


PUBLISH_PROPERTIES = [
    pytest.param(prop(names.TOPIC_ALIAS, b"\x00\x00"), (ALIAS_INVALID,), id="topic alias 0"),
    pytest.param(prop(names.SUBSCRIPTION_ID, b"\x01"), EITHER, id="subscription identifier from a client"),
    pytest.param(prop(names.PAYLOAD_FORMAT, b"\x02"), EITHER, id="payload format 2"),
    pytest.param(prop(names.PAYLOAD_FORMAT, b"\x01") * 2, (PROTOCOL_ERROR,), id="payload format twice"),
    pytest.param(prop(names.MESSAGE_EXPIRY, b"\x00\x00\x00\x01") * 2, (PROTOCOL_ERROR,), id="message expiry twice"),
    pytest.param(prop(names.CONTENT_TYPE, b"\x00\x01a") * 2, (PROTOCOL_ERROR,), id="content type twice"),
    pytest.param(prop(names.RESPONSE_TOPIC, b"\x00\x01a") * 2, (PROTOCOL_ERROR,), id="response topic twice"),
    pytest.param(prop(names.CORRELATION_DATA, b"\x00\x01a") * 2, (PROTOCOL_ERROR,), id="correlation data twice"),
    pytest.param(prop(names.TOPIC_ALIAS, b"\x00\x01") * 2, (PROTOCOL_ERROR,), id="topic alias twice"),
    pytest.param(prop(names.RESPONSE_TOPIC, b"\x00\x03a/#"), (*EITHER, TOPIC_INVALID), id="wildcard in response topic"),
    pytest.param(prop(names.RESPONSE_TOPIC, b"\x00\x00"), (*EITHER, TOPIC_INVALID), id="empty response topic"),
    pytest.param(prop(names.RESPONSE_TOPIC, b"\x00\x02\xc3\x28"), EITHER, id="response topic not utf-8"),
    pytest.param(prop(names.CONTENT_TYPE, b"\x00\x02\xc3\x28"), EITHER, id="content type not utf-8"),
    pytest.param(prop(names.USER_PROPERTY, b"\x00\x01a\x00\x02\xc3\x28"), EITHER, id="user property not utf-8"),
    pytest.param(prop(names.USER_PROPERTY, b"\x00\x01a\x00\x01\x00"), EITHER, id="user property with u+0000"),
    pytest.param(prop(names.SESSION_EXPIRY, b"\x00\x00\x00\x01"), EITHER, id="a property of connect"),
    pytest.param(prop(0x04, b"\x00"), EITHER, id="an identifier that nobody defined"),
    pytest.param(prop(0x80, b"\x01\x00"), EITHER, id="a long identifier that nobody defined"),
    pytest.param(prop(names.MESSAGE_EXPIRY, b"\x00"), EITHER, id="message expiry cut short"),
]


@pytest.mark.parametrize(("block", "codes"), PUBLISH_PROPERTIES)
def test_bad_publish_properties_close(tcp: Clients, block: bytes, codes: tuple[int, ...]) -> None:
    """[MQTT-3.3.2-8] [MQTT-3.3.2-13] [MQTT-3.3.2-14] [MQTT-4.7.3-1] [MQTT-3.3.2-19] [MQTT-3.3.4-6] [MQTT-1.5.4-1] [MQTT-1.5.4-2] [MQTT-1.5.7-1]."""
    client = tcp(5)

    client.send(publish(b"t", 0x32, b"\x00\x01", 5, block))

    client.refused(*codes)


@pytest.mark.parametrize(
    ("block", "codes"),
    [
        pytest.param(prop(names.SUBSCRIPTION_ID, b"\x00"), EITHER, id="subscription identifier 0"),
        pytest.param(prop(names.SUBSCRIPTION_ID, b"\x01") * 2, (PROTOCOL_ERROR,), id="subscription identifier twice"),
        pytest.param(
            prop(names.SUBSCRIPTION_ID, b"\x80\x80\x80\x80\x01"), EITHER, id="subscription identifier too long"
        ),
        pytest.param(prop(names.TOPIC_ALIAS, b"\x00\x01"), EITHER, id="a property of publish"),
    ],
)
def test_bad_subscribe_properties_close(tcp: Clients, block: bytes, codes: tuple[int, ...]) -> None:
    """§3.8.2.1."""
    client = tcp(5)

    client.send(packet(0x82, b"\x00\x01" + bytes([len(block)]) + block + string("t") + b"\x00"))

    client.refused(*codes)


@pytest.mark.parametrize(
    ("bad", "codes"),
    [
        pytest.param(packet(0x40, b"\x00\x01\x55"), EITHER, id="puback with a code of nobody"),
        pytest.param(packet(0x40, b"\x00\x01\x92"), EITHER, id="puback with a code of pubrel"),
        pytest.param(packet(0x62, b"\x00\x01\x87"), EITHER, id="pubrel with a code of puback"),
        pytest.param(packet(0x40, b"\x00\x01\x00\x05"), EITHER, id="puback with properties cut short"),
        pytest.param(packet(0xE0, b"\x01"), EITHER, id="disconnect with a code of nobody"),
        pytest.param(
            packet(0xE0, b"\x00\x05\x11\x00\x00\x00\x09"), (PROTOCOL_ERROR,), id="session expiry out of nothing"
        ),
        pytest.param(packet(0xE0, b"\x00\x04\x1c\x00\x01x"), EITHER, id="server reference from a client"),
    ],
)
def test_bad_reason_codes_and_properties_close(tcp: Clients, bad: bytes, codes: tuple[int, ...]) -> None:
    """[MQTT-3.4.2-1] [MQTT-3.6.2-1] [MQTT-3.14.2-1] and §3.14.2.2.2: an expiry of 0 cannot be raised by DISCONNECT."""
    client = tcp(5)

    client.send(bad)

    client.refused(*codes)


@pytest.mark.parametrize(
    "bad", [packet(0x40, b"\x00\x01\x00"), packet(0xE0, b"\x00"), packet(0x62, b"\x00\x01\x00"), packet(0x50, b"\x00")]
)
def test_acknowledgements_of_3_1_1_have_one_length(tcp: Clients, bad: bytes) -> None:
    """What 5.0 appends does not exist in 3.1.1. [MQTT3-4.8.0-1] [MQTT3-2.3.1-6]."""
    client = tcp(4)

    client.send(bad)

    client.refused()


def test_others_do_not_notice(tcp: Clients) -> None:
    """A witness pair goes on while a neighbour sends nonsense."""
    topic, witness, other = unique("t"), tcp(4), tcp(5)
    witness.subscribe((topic, 1))

    for number in range(20):
        neighbour = tcp(5)
        neighbour.send(packet(0x30, b"\xff\xff" + b"/" * number))
        other.publish(topic, b"%d" % number, 1)
        assert witness.payloads() == [b"%d" % number]
        neighbour.refused(MALFORMED)


@pytest.mark.parametrize(
    "first", [b"\x10\xff\xff\xff\x7f\x00", b"\x10\xff\xff\xff\xff\x7f", b"\x10\x80\x80\x80\x80\x80"]
)
def test_clients_without_connect_cannot_announce_a_great_packet(tcp: Clients, first: bytes) -> None:
    """256 MB of CONNECT, or a length of five bytes: closed at the header, long before the connect time-out. [MQTT-1.5.5-1] [MQTT-4.13.1-1]."""
    client = tcp.open_connection(5)

    client.send(first)

    assert all(said.kind == CONNACK and said.code in (0x81, 0x95) for said in client.expect_closed(timeout=CLOSED_S))


def test_ten_thousand_user_properties_do_no_harm(tcp: Clients) -> None:
    """Delivered whole, while a witness goes on. [MQTT-3.3.2-17]."""
    topic, witness, other, client, watcher = unique("t"), tcp(4), tcp(4), tcp(5), tcp(5)
    witness.subscribe((f"{topic}/w", 1))
    watcher.subscribe((topic, 1))
    props = [(names.USER_PROPERTY, (str(number), "v")) for number in range(10_000)]

    client.send(client.publish_bytes(topic, b"x", 1, 1, props=props))
    other.publish(f"{topic}/w", b"alive", 1)

    assert witness.payloads() == [b"alive"]
    assert client.expect(PUBACK).code == 0
    (got,) = watcher.take()
    assert got.properties == props
