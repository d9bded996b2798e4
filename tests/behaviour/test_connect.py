"""CONNECT and CONNACK: what gets in, what does not, and how it is told."""

from __future__ import annotations

import pytest

from tests.support.clients import property_names as names
from tests.support.clients.clients import unique
from tests.support.clients.mqtt_clients import CLOSED_S, Clients, only_connack
from tests.support.clients.packets import CONNACK, DISCONNECT, PUBLISH, SUBACK, SUBSCRIBE, packet, properties, string

ALL_VERSIONS = pytest.mark.parametrize("version", [3, 4, 5], ids=["3.1", "3.1.1", "5.0"])


def connect_body(name: str = "MQTT", level: int = 4, flags: int = 2, rest: bytes | None = None) -> bytes:
    """A CONNECT packet piece by piece; the rest is by default an (unused) Client Identifier."""
    middle = b"\x00" if level >= 5 else b""
    return packet(
        0x10, string(name) + bytes([level, flags, 0, 60]) + middle + (string(unique()) if rest is None else rest)
    )


@ALL_VERSIONS
def test_connect_is_answered_with_one_connack(join: Clients, version: int) -> None:
    """CONNACK 0 is the first packet, comes once, and nothing follows unasked.

    [MQTT-3.1.4-5] [MQTT-3.2.0-1] [MQTT-3.2.0-2] [MQTT-3.2.2-1] [MQTT3-3.1.4-4] [MQTT3-3.2.0-1]
    """
    client = join.open_connection(version)
    client.send(client.connect_bytes(unique(), "acme/dev1"))

    first = client.next()

    assert (first.kind, first.flags, first.code, first.body[0]) == (CONNACK, 0, 0, 0)
    client.nothing()


@ALL_VERSIONS
def test_packets_sent_before_connack_are_served_in_order(join: Clients, version: int) -> None:
    """A client need not wait for CONNACK; its SUBSCRIBE and PUBLISH behind CONNECT count. [MQTT-3.2.0-1] [MQTT-4.2.0-1] [MQTT3-7.1.1-1]."""
    client, topic = join.open_connection(version), unique("t")
    body = b"\x00\x07" + (b"\x00" if version == 5 else b"") + string(topic) + b"\x00"

    client.send(
        client.connect_bytes(unique(), "acme/dev1") + packet(0x82, body) + client.publish_bytes(topic, b"early", 0)
    )

    kinds = [client.next().kind for _ in range(3)]
    assert kinds == [CONNACK, SUBACK, PUBLISH]


def test_connack_states_what_the_hub_can_do(tcp: Clients) -> None:
    """Nothing in a 5.0 CONNACK says that a feature is missing, and numbers are within their ranges. [MQTT-3.2.2-22]."""
    client = tcp(5, keep_alive=60)

    for feature in (
        names.RETAIN_AVAILABLE,
        names.WILDCARD_AVAILABLE,
        names.SUBSCRIPTION_ID_AVAILABLE,
        names.SHARED_AVAILABLE,
    ):
        assert client.connack.property(feature) is None
    assert client.connack.property(names.MAXIMUM_QOS) is None
    assert client.property(names.RECEIVE_MAXIMUM, 65535) > 0
    assert 0 < client.property(names.MAXIMUM_PACKET_SIZE, 1) <= 268_435_455  # paho-mqtt closes when it is told of more
    assert client.connack.property(names.SERVER_KEEP_ALIVE) is None
    assert client.connack.property(names.ASSIGNED_CLIENT_ID) is None


def test_connack_has_no_response_information_unless_asked(tcp: Clients) -> None:
    """[MQTT-3.1.2-28]."""
    assert tcp(5).connack.property(names.RESPONSE_INFORMATION) is None
    assert tcp(5, props=[(names.REQUEST_RESPONSE, 0)]).connack.property(names.RESPONSE_INFORMATION) is None


def test_connect_with_an_unknown_protocol_level_is_refused(tcp: Clients) -> None:
    """Level 6 gets "unacceptable protocol version" in one of the two languages. [MQTT-3.1.2-2] [MQTT3-3.1.2-2]."""
    client = tcp.open_connection(4)

    client.send(connect_body(level=6))

    said = client.expect_closed()
    assert said == [] or only_connack(said).code in (0x01, 0x84)


@pytest.mark.parametrize("name", ["MQTX", "mqtt", "MQIsdp", "", "MQTT\x00"])
def test_connect_with_another_protocol_name_is_closed(tcp: Clients, name: str) -> None:
    """The name is compared exactly; 3.1's belongs to level 3. [MQTT-3.1.2-1] [MQTT3-3.1.2-1]."""
    client = tcp.open_connection(4)

    client.send(connect_body(name=name))

    assert all(said.kind == CONNACK and said.code for said in client.expect_closed())


@pytest.mark.parametrize(
    ("flags", "rest"),
    [
        pytest.param(0x03, None, id="reserved flag"),
        pytest.param(0x0A, None, id="will qos without will flag"),
        pytest.param(0x22, None, id="will retain without will flag"),
        pytest.param(0x06, None, id="will flag without will fields"),
        pytest.param(0x82, None, id="user name flag without user name"),
        pytest.param(0x02, b"\x00\x01i\x00\x01u", id="user name without its flag"),
        pytest.param(0xC2, b"\x00\x01i\x00\x01u", id="password flag without password"),
        pytest.param(0x82, b"\x00\x01i\x00\x01u\x00\x01p", id="password without its flag"),
        pytest.param(0x02, b"", id="no client identifier"),
        pytest.param(0x02, b"\x00\x02\xc3\x28", id="client identifier not utf-8"),
        pytest.param(0x02, b"\x00\x03a\x00b", id="client identifier with u+0000"),
        pytest.param(0x02, b"\x00\x03\xed\xa0\x80", id="client identifier with a surrogate"),
        pytest.param(0x02, b"\x00\x05ab", id="client identifier cut short"),
        pytest.param(0x02, b"\x00\x01i\x00", id="bytes left over"),
    ],
)
def test_malformed_connect_is_closed(tcp: Clients, version: int, flags: int, rest: bytes | None) -> None:
    """A CONNECT that breaks a rule of its format is closed: in 3.1.1 without CONNACK, in 5.0 possibly with 0x81, 0x82 or 0x85.

    [MQTT-3.1.4-1] [MQTT-3.1.2-3] [MQTT-3.1.2-9] [MQTT-3.1.2-11] [MQTT-3.1.2-13] [MQTT-3.1.2-16] [MQTT-3.1.2-17] [MQTT-3.1.2-18] [MQTT-3.1.2-19]
    [MQTT-3.1.3-3] [MQTT-3.1.3-4] [MQTT3-3.1.4-1] [MQTT3-3.1.2-3] [MQTT3-3.1.2-11] [MQTT3-3.1.2-13] [MQTT3-3.1.2-15] [MQTT3-3.2.2-6] [MQTT-3.14.0-1]
    """
    client = tcp.open_connection(version)

    client.send(connect_body(level=version, flags=flags, rest=rest))

    said = client.expect_closed(timeout=CLOSED_S)
    if version == 4:
        assert said == []
    assert all(each.kind == CONNACK and each.code in (0x81, 0x82, 0x85) for each in said)


def test_connect_with_will_qos_3_is_closed(tcp: Clients, version: int) -> None:
    """[MQTT-3.1.2-12] [MQTT3-3.1.2-14]."""
    client = tcp.open_connection(version)

    client.send(client.connect_bytes(unique(), "acme/dev1", will=("w", b"", 3, False)))

    assert all(said.kind == CONNACK and said.code in (0x81, 0x82) for said in client.expect_closed(timeout=CLOSED_S))


def test_password_without_a_user_name(tcp: Clients, version: int) -> None:
    """Malformed in 3.1.1; well-formed in 5.0, where it is no account of ours. [MQTT3-3.1.2-22]."""
    client = tcp.open_connection(version)

    client.send(connect_body(level=version, flags=0x42, rest=b"\x00\x03abc\x00\x01p"))

    said = client.expect_closed(timeout=CLOSED_S)
    if version == 4:
        assert said == []
    else:
        assert only_connack(said).code == 0x87


@pytest.mark.parametrize(
    "first",
    [packet(kind << 4 | (2 if kind in (6, 8, 10) else 0), b"\x00\x01\x00") for kind in range(16) if kind != 1]
    + [b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0-OpenSSH_9\r\n"],
    ids=lambda first: first[:4].hex(),
)
def test_first_packet_that_is_not_connect_closes(tcp: Clients, first: bytes) -> None:
    """Nothing is said to somebody who never said CONNECT. [MQTT-3.1.0-1] [MQTT-3.14.0-1] [MQTT3-3.1.0-1] [MQTT-4.13.1-1]."""
    client = tcp.open_connection(5)

    client.send(first)

    assert client.expect_closed(timeout=CLOSED_S) == []


def test_second_connect_is_a_protocol_error(join: Clients, version: int) -> None:
    """[MQTT-3.1.0-2] [MQTT3-3.1.0-2] [MQTT-4.13.1-1]."""
    client = join(version)

    client.send(client.connect_bytes(client.client_id, "acme/dev1"))

    client.refused(0x82)


def test_empty_client_identifier_gets_an_assigned_one(join: Clients) -> None:
    """Each time another one, told in CONNACK, and the Session is known by it.

    [MQTT-3.1.3-6] [MQTT-3.1.3-7] [MQTT-3.2.2-16] [MQTT-3.1.3-2]
    """
    connected = [join(5, "", keep=True) for _ in range(2)]
    assigned = [str(client.connack.property(names.ASSIGNED_CLIENT_ID)) for client in connected]
    assert len(set(assigned)) == 2
    assert all(assigned)
    connected[0].disconnect()

    again = join(5, assigned[0], keep=True)

    assert again.connack.session_present
    assert again.connack.property(names.ASSIGNED_CLIENT_ID) is None


def test_empty_client_identifier_in_3_1_1(tcp: Clients) -> None:
    """Welcome for a clean session, refused with 2 for a kept one. [MQTT3-3.1.3-6] [MQTT3-3.1.3-7] [MQTT3-3.1.3-8]."""
    assert tcp(4, "").connack.code == 0
    assert tcp(4, "").connack.code == 0

    client = tcp.ask(4, "", clean=False)

    assert (client.connack.code, client.connack.session_present) == (2, False)
    assert client.expect_closed() == []


def test_empty_client_identifier_in_3_1_is_refused(tcp: Clients) -> None:
    """MQTT 3.1 asks for at least one character."""
    client = tcp.ask(3, "")

    assert client.connack.code == 2
    assert client.expect_closed() == []


@pytest.mark.parametrize(
    "client_id", ["0", "abcdefghijklmnopqrstuvw", "ABCXYZ0189", "Grüße/日本#+ ", "x" * 256, "\ufeffmark"]
)
def test_client_identifiers_that_are_allowed(tcp: Clients, version: int, client_id: str) -> None:
    """Digits and letters up to 23 must be; ours are any text up to 256 bytes. [MQTT-3.1.3-5] [MQTT3-3.1.3-5] [MQTT-1.5.4-3] [MQTT3-1.5.3-3]."""
    assert tcp(version, client_id).connack.code == 0


def test_client_identifier_too_long_is_refused(tcp: Clients, version: int) -> None:
    """257 bytes. [MQTT-3.1.3-8] [MQTT3-3.1.3-9] [MQTT3-3.2.2-5]."""
    client = tcp.ask(version, "x" * 257)

    assert client.connack.code == (0x85 if version == 5 else 2)
    assert client.expect_closed() == []


def test_client_identifiers_are_compared_literally(tcp: Clients) -> None:
    """Neither case nor Unicode form is folded: three Sessions, nobody taken over. [MQTT-3.1.3-2] [MQTT3-3.1.3-2]."""
    base = unique()

    connected = [tcp(5, base + end) for end in ("é", "e\u0301", "É", "")]

    for client in connected:
        client.nothing()


@pytest.mark.parametrize(
    ("props", "codes"),
    [
        pytest.param([(names.RECEIVE_MAXIMUM, 0)], (0x82,), id="receive maximum 0"),
        pytest.param([(names.MAXIMUM_PACKET_SIZE, 0)], (0x82,), id="maximum packet size 0"),
        pytest.param([(names.REQUEST_PROBLEM, 2)], (0x82,), id="request problem information 2"),
        pytest.param([(names.REQUEST_RESPONSE, 7)], (0x82,), id="request response information 7"),
        pytest.param([(names.AUTH_DATA, b"x")], (0x82,), id="authentication data without method"),
        pytest.param([(names.SESSION_EXPIRY, 1)] * 2, (0x82,), id="session expiry twice"),
        pytest.param([(names.RECEIVE_MAXIMUM, 1)] * 2, (0x82,), id="receive maximum twice"),
        pytest.param([(names.TOPIC_ALIAS, 1)], (0x81, 0x82), id="a property of publish"),
        pytest.param([(names.WILL_DELAY, 1)], (0x81, 0x82), id="a property of the will"),
    ],
)
def test_connect_properties_that_break_a_rule(tcp: Clients, props: list[tuple[int, object]], codes: tuple[int]) -> None:
    """Each is a Protocol Error by §3.1.2.11; the answer may be given in CONNACK. [MQTT-3.1.4-1] [MQTT-4.13.1-1]."""
    client = tcp.open_connection(5)

    client.send(client.connect_bytes(unique(), "acme/dev1", props=props))

    said = client.expect_closed(timeout=CLOSED_S)
    assert all(each.kind == CONNACK and each.code in codes for each in said)


def test_empty_response_topic_of_a_will_is_refused(tcp: Clients) -> None:
    """It is a Topic Name. [MQTT-4.7.3-1]."""
    client = tcp.open_connection(5)

    client.send(
        client.connect_bytes(unique(), "acme/dev1", will=("w", b"", 0, False), will_props=[(names.RESPONSE_TOPIC, "")])
    )

    assert all(each.kind == CONNACK and each.code == 0x82 for each in client.expect_closed(timeout=CLOSED_S))


def test_property_length_beyond_the_packet_is_malformed(tcp: Clients) -> None:
    """[MQTT-2.2.2-1] [MQTT-3.1.4-1]."""
    client = tcp.open_connection(5)

    client.send(packet(0x10, string("MQTT") + b"\x05\x02\x00\x3c" + b"\x7f" + string(unique())))

    assert all(each.kind == CONNACK and each.code == 0x81 for each in client.expect_closed(timeout=CLOSED_S))


def test_no_problem_information_is_sent_when_not_wanted(tcp: Clients) -> None:
    """Request Problem Information 0: neither Reason String nor User Property in SUBACK, PUBACK, UNSUBACK. [MQTT-3.1.2-29]."""
    client = tcp(5, props=[(names.REQUEST_PROBLEM, 0)])

    answers = [
        client.subscribe(("$SYS/x", 0), (unique("t"), 1)),
        client.publish(unique("t"), b"", 1),
        client.unsubscribe(unique("t")),
    ]

    for answer in answers:
        assert answer is not None
        assert answer.all_properties(names.REASON_STRING) + answer.all_properties(names.USER_PROPERTY) == []


def test_reserved_user_names_with_empty_properties(tcp: Clients) -> None:
    """Property Length 0 and a User Property in CONNECT are both fine. [MQTT-2.2.2-1] [MQTT-1.5.7-1]."""
    assert tcp(5, props=[]).connack.code == 0
    assert tcp(5, props=[(names.USER_PROPERTY, ("a", "b")), (names.USER_PROPERTY, ("a", "b"))]).connack.code == 0
    assert properties(None) == b"\x00"


def test_ping_is_answered(join: Clients, version: int) -> None:
    """[MQTT-3.12.4-1] [MQTT3-3.12.4-1]."""
    client = join(version)

    for _ in range(3):
        client.ping()

    client.nothing()


def test_disconnect_is_obeyed_and_nothing_follows(join: Clients, version: int) -> None:
    """The hub closes the network connection, processes nothing behind DISCONNECT and says nothing.

    [MQTT-3.14.4-1] [MQTT-3.14.4-2] [MQTT-3.14.1-1]
    """
    topic, watcher, client = unique("t"), join(version), join(version)
    watcher.subscribe((topic, 0))

    client.send(packet(0xE0, b"") + client.publish_bytes(topic, b"too late"))

    assert client.expect_closed(timeout=CLOSED_S) == []
    watcher.nothing()


def test_subscribe_is_unknown_to_a_closed_connection(join: Clients) -> None:
    """After a Protocol Error nothing that was pipelined behind it counts. [MQTT-4.13.1-1] [MQTT-4.13.2-1] [MQTT3-4.8.0-1]."""
    topic, watcher, client = unique("t"), join(4), join(5)
    watcher.subscribe((topic, 0))

    client.send(packet(SUBSCRIBE << 4, b"\x00\x01\x00") + client.publish_bytes(topic, b"too late"))

    said = client.expect_closed(timeout=CLOSED_S)
    assert [each.kind for each in said] == [DISCONNECT]
    assert said[0].code >= 0x80
    watcher.nothing()
