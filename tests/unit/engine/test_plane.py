"""The plane between transient sessions: QoS 0, 1 and 2 from one client to another, closings, timers, batches."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop, Reason
from iothub.engine.limits import ConnectionSettings, PlaneLimits
from iothub.engine.message import Message
from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import MqttError
from iothub.mqtt.fixed_header import check_first_byte
from iothub.testing.engine import CONNACK, CONNECT, Bench, ManualStore, Permissive, ack, packets, publish


def test_plane_delivers_qos0() -> None:
    """A QoS 0 message reaches its subscriber and is not answered [MQTT-3.3.4-1]."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a/+")

    assert bench.client("p").send(publish(b"a/b", b"x")) == b""
    assert subscriber.take() == publish(b"a/b", b"x")


def test_plane_delivers_qos1_and_acknowledges() -> None:
    """PUBACK for the publisher [MQTT-4.3.2-4], a Packet Identifier of our own for the receiver [MQTT-4.3.2-2]."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 1)

    assert bench.client("p").send(publish(b"a", b"x", 1, 77)) == ack(0x40, 77)
    assert subscriber.take() == publish(b"a", b"x", 1, 1)


def test_plane_delivers_qos2_once() -> None:
    """Both halves of QoS 2; a repeated PUBLISH is only acknowledged [MQTT-4.3.3-10]."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 2)
    publisher = bench.client("p")

    assert publisher.send(publish(b"a", b"x", 2, 5)) == ack(0x50, 5)
    assert publisher.send(publish(b"a", b"x", 2, 5, dup=True)) == ack(0x50, 5)
    assert publisher.send(ack(0x62, 5)) == ack(0x70, 5)
    assert subscriber.take() == publish(b"a", b"x", 2, 1)
    assert subscriber.send(ack(0x50, 1)) == ack(0x62, 1)
    assert subscriber.send(ack(0x70, 1)) == b""


def test_plane_lowers_qos_to_the_subscription() -> None:
    """The lower of publish and subscription counts [MQTT-3.8.4-8]."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 1)

    bench.client("p").send(publish(b"a", b"x", 2, 5))

    assert subscriber.take() == publish(b"a", b"x", 1, 1)


@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_plane_does_not_depend_on_chunks(size: int) -> None:
    """The same bytes in any pieces are the same packets."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a/b", 1)
    publisher = bench.client("p")
    stream = b"".join(publish(b"a/b", bytes(200), 1, number) for number in range(1, 6))

    for start in range(0, len(stream), size):
        publisher.connection.feed(stream[start : start + size])
    bench.plane.end_batch()

    assert publisher.take() == b"".join(ack(0x40, number) for number in range(1, 6))
    assert [header for header, _ in packets(subscriber.take())] == [0x32] * 5


def test_plane_wakes_each_transport_once_per_batch() -> None:
    """All output of a batch is one flush."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 0)
    wakes = subscriber.transport.wakes

    bench.client("p").send(publish(b"a", b"1") + publish(b"a", b"2") + publish(b"a", b"3"))

    assert subscriber.transport.wakes == wakes + 1


def test_plane_waits_for_connect_no_longer_than_its_limit() -> None:
    """The time runs from accept."""
    bench = Bench(PlaneLimits(connect_timeout_s=2.0))
    transport, connection = bench.accept()

    bench.pass_time(1.9)
    assert not transport.is_closed
    bench.pass_time(0.2)

    assert transport.is_closed
    assert bench.control.closes == [(connection, Reason.CONNECT_TIMEOUT)]


@pytest.mark.parametrize("first", [b"\xc0\x00", publish(b"a"), b"\x82\x06\x00\x01\x00\x01a\x00", b"GET / HTTP/1.1\r\n"])
def test_plane_takes_only_connect_first(first: bytes) -> None:
    """The first packet must be CONNECT [MQTT-3.1.0-1]; anything else is refused at its first byte."""
    bench = Bench()
    transport, connection = bench.accept()

    connection.feed(first[:1])
    bench.plane.end_batch()

    assert transport.is_closed
    assert bench.control.packets == []


def test_plane_refuses_a_second_connect() -> None:
    """A second CONNECT is a Protocol Error [MQTT-3.1.0-2]."""
    bench = Bench()
    client = bench.client("c")

    client.send(CONNECT)

    assert bench.control.closes == [(client.connection, Reason.PROTOCOL_ERROR)]


@pytest.mark.parametrize("header", [0x00, 0x20, 0x90, 0xB0, 0xD0])
def test_plane_refuses_packets_that_only_a_server_sends(header: int) -> None:
    """CONNACK, SUBACK, UNSUBACK, PINGRESP and the reserved type."""
    bench = Bench()
    client = bench.client("c")

    client.send(bytes((header, 2, 0, 1)))

    assert client.transport.is_closed


@pytest.mark.parametrize("version", [3, 4, 5])
def test_plane_closes_at_a_first_byte_that_may_not_come(version: int) -> None:
    """Alone, before its length, and with a length whose body never comes: by the rule for whole packets [MQTT-2.1.3-1] [MQTT3-2.2.2-2]."""
    bench = Bench()
    for header in range(256):
        expected = reason_of_first_byte(header, version)
        for rest in (b"", b"\x7f"):
            client = bench.client(f"{header}", version=version)
            client.send(bytes((header,)) + rest)

            assert client.connection.close_reason is expected, hex(header)
            client.drop()


def reason_of_first_byte(header: int, version: int) -> Reason | None:
    """What is wrong with it on a connection that has its session."""
    if header >> 4 == PacketType.CONNECT:
        return Reason.PROTOCOL_ERROR
    try:
        check_first_byte(header, version)
    except MqttError as error:
        return error.reason
    return None


@pytest.mark.parametrize("first", [b"\xf1", b"\xe2"])
def test_plane_takes_no_flags_before_connect_is_accepted(first: bytes) -> None:
    """AUTH and DISCONNECT may come while the client is being authenticated, with flags 0000 [MQTT-3.15.1-1] [MQTT-3.14.1-1]."""
    bench = Bench()
    _, connection = bench.accept()
    connection.feed(CONNECT)
    bench.plane.resume(connection)

    connection.feed(first)
    bench.plane.end_batch()

    assert connection.close_reason is Reason.MALFORMED


def test_plane_sends_no_packet_above_the_clients_maximum_packet_size() -> None:
    """A control packet ends the connection instead; so does a DISCONNECT, without itself [MQTT-3.1.2-24]."""
    bench = Bench()
    client = bench.client("c", version=5)
    client.connection.maximum_packet_size = 5
    bench.plane.send(client.connection, b"\x90\x04\x00\x01\x00\x00")
    assert client.take() == b"\xe0\x01\x95"
    assert bench.control.closes == [(client.connection, Reason.PACKET_TOO_LARGE)]

    other = bench.client("d", version=5)
    other.connection.maximum_packet_size = 5
    bench.plane.close(other.connection, Reason.ADMINISTRATIVE, b"\xe0\x04\x98\x02\x1f\x00")

    assert other.take() == b""
    assert other.transport.is_closed


@pytest.mark.parametrize(
    ("version", "reason", "is_drained"),
    [(5, Reason.KEEPALIVE_TIMEOUT, True), (4, Reason.KEEPALIVE_TIMEOUT, False), (5, Reason.CLIENT, False)],
)
def test_plane_close_lets_the_client_read_why(version: int, reason: Reason, is_drained: bool) -> None:
    """Where there is a DISCONNECT with a reason, and no client that has sent DISCONNECT [MQTT-4.13.1-1]."""
    bench = Bench()
    client = bench.client("c", version=version)

    bench.plane.close(client.connection, reason)

    assert client.transport.is_drained is is_drained


def test_plane_keeps_what_follows_connect_until_admitted() -> None:
    """A client may send at once [MQTT-3.1.4-5]; its packets wait, unparsed, and the transport is paused."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    transport, connection = bench.accept()
    connection.feed(CONNECT + publish(b"a", b"early"))
    bench.plane.end_batch()

    assert transport.is_paused
    assert subscriber.take() == b""
    session = bench.plane.create_session(bench.tenant, "p", "p", is_persistent=False)
    bench.plane.policy_changed(session, Permissive())
    bench.plane.admit(connection, session, ConnectionSettings(), CONNACK)

    assert not transport.is_paused
    assert transport.take() == CONNACK
    assert subscriber.take() == publish(b"a", b"early")


def test_plane_refuses_a_connect_above_its_limit_before_its_body() -> None:
    """The declared length is enough."""
    bench = Bench()
    transport, connection = bench.accept()

    connection.feed(b"\x10\xff\xff\xff\x7f")
    bench.plane.end_batch()

    assert bench.control.closes == [(connection, Reason.PACKET_TOO_LARGE)]
    assert transport.is_closed


def test_plane_refuses_a_packet_above_the_limit_before_its_body() -> None:
    """DISCONNECT 0x95 in 5.0 as soon as Remaining Length is there [MQTT-3.1.2-24]."""
    bench = Bench()
    client = bench.client("c", version=5, packet_bytes=100)

    assert client.send(b"\x30\x80\x08") == b"\xe0\x01\x95"
    assert client.transport.is_closed


def test_plane_answers_pingreq() -> None:
    """[MQTT-3.12.4-1]."""
    assert Bench().client("c").send(b"\xc0\x00") == b"\xd0\x00"


def test_plane_closes_a_silent_client() -> None:
    """One and a half times the Keep Alive [MQTT-3.1.2-22]; every packet counts."""
    bench = Bench()
    client = bench.client("c", keep_alive_s=10)

    bench.pass_time(10)
    client.send(b"\xc0\x00")
    bench.pass_time(14.5)
    assert not client.transport.is_closed
    bench.pass_time(1)

    assert bench.control.closes == [(client.connection, Reason.KEEPALIVE_TIMEOUT)]


def test_plane_keep_alive_stands_still_while_it_does_not_read() -> None:
    """A client that we keep waiting is not silent."""
    bench = Bench()
    client = bench.client("c", keep_alive_s=2)
    client.send(b"\x82\x06\x00\x01\x00\x01a\x00")

    bench.pass_time(20)
    assert not client.transport.is_closed
    bench.plane.resume(client.connection)
    bench.pass_time(2.9)
    assert not client.transport.is_closed
    bench.pass_time(0.3)

    assert client.transport.is_closed


def test_plane_passes_control_packets_on_whole() -> None:
    """SUBSCRIBE goes to the control plane without its length, and parsing stops until it answers."""
    bench = Bench()
    client = bench.client("c")
    body = b"\x00\x01\x00\x01a\x00"

    assert client.send(b"\x82\x06" + body + b"\xc0\x00") == b""
    assert bench.control.packets[-1] == (client.connection, 0x82, body)
    bench.plane.send(client.connection, b"\x90\x03\x00\x01\x00")
    bench.plane.resume(client.connection)

    assert client.take() == b"\x90\x03\x00\x01\x00\xd0\x00"


def test_plane_goes_on_when_control_answers_at_once() -> None:
    """The answer may come from inside `packet`."""
    bench = Bench()
    client = bench.client("c")
    bench.control.on_packet = lambda connection, header, body: bench.plane.resume(connection)

    assert client.send(b"\x82\x06\x00\x01\x00\x01a\x00" * 3 + b"\xc0\x00") == b"\xd0\x00"
    assert len(bench.control.packets) == 4


def test_plane_closes_at_the_end_of_the_batch_and_notifies_once() -> None:
    """The final packet first, then the socket; the first reason counts; `lost` afterwards changes nothing."""
    bench = Bench()
    client = bench.client("c", version=5)

    bench.plane.close(client.connection, Reason.TAKEN_OVER)
    client.connection.lost(Reason.NETWORK)

    assert client.take() == b"\xe0\x01\x8e"
    assert bench.control.closes == [(client.connection, Reason.TAKEN_OVER)]
    assert bench.plane.connection_count == 0
    assert client.session.connection is None


def test_plane_ignores_a_client_closed_earlier_in_the_batch() -> None:
    """Bytes that come after the fault are nobody's."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    client = bench.client("c")

    client.connection.feed(b"\xc1\x00" + publish(b"a", b"x"))
    client.connection.feed(publish(b"a", b"y"))
    bench.plane.end_batch()

    assert subscriber.take() == b""
    assert bench.control.closes == [(client.connection, Reason.MALFORMED)]


def test_plane_refuses_more_connections_than_it_may_hold() -> None:
    """Refused before anything is known of them."""
    bench = Bench(PlaneLimits(connections=1))
    bench.accept()

    with pytest.raises(ConnectionRefusedError):
        bench.accept()


def test_plane_holds_other_bounds_from_now_on() -> None:
    """Who is connected stays, though there are more than may come; with room again others may."""
    bench = Bench(PlaneLimits(connections=2))
    bench.accept()
    bench.accept()

    bench.plane.apply(PlaneLimits(connections=1, out_hard_bytes=7))
    with pytest.raises(ConnectionRefusedError):
        bench.accept()
    bench.plane.apply(PlaneLimits(connections=3, out_hard_bytes=7))
    bench.accept()

    assert (bench.plane.connection_count, bench.plane.turn.out_hard_bytes) == (3, 7)


def test_plane_publishes_for_the_control_plane() -> None:
    """A will is routed like a PUBLISH; `on_done` says how it went."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"will", 1)
    codes: list[int] = []

    bench.plane.publish(bench.tenant, Message(b"will", b"gone", 1), codes.append)
    bench.plane.publish(bench.tenant, Message(b"nobody", b"gone", 1), codes.append)

    assert subscriber.take() == publish(b"will", b"gone", 1, 1)
    assert codes == [0, 0x10]
    assert bench.observer.drops == [(Drop.NO_SUBSCRIBERS, 1)]


def test_what_brings_its_own_message_id_may_be_published_again() -> None:
    """A Will or a stream's record: queues have to remember the id. One that the hub gives never comes again."""
    store = ManualStore()
    bench = Bench(None, store)
    for message in (Message(b"t", b"x", 2, True, message_id=b"i" * 16), Message(b"t", b"x", 2, True)):
        bench.plane.publish(bench.tenant, message)

    published = [publish for _, publish in store.waiting]
    assert [publish.is_repeatable for publish in published] == [True, False]
    assert len(published[1].message.message_id) == 16


def test_plane_discards_a_session_with_its_subscriptions() -> None:
    """Nothing of it stays in the router."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    subscriber.drop()

    bench.plane.discard(subscriber.session)

    assert bench.tenant.router.subscription_count == 0
    assert bench.tenant.sessions == {}
