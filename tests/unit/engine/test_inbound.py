"""What a client's PUBLISH must pass, and what it gets for an answer: topics, aliases, rights, quotas, Receive Maximum, order of PUBACKs."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop, Reason
from iothub.engine.buckets import Meter
from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.engine.message import Message
from iothub.engine.state import TenantPlane
from iothub.testing.engine import Bench, ManualStore, TopicPolicy, ack, packets, publish


class Spent:
    """A day counter whose allowance is gone."""

    def take(self, units: int, now: float) -> float:
        return -1.0


@pytest.mark.parametrize("topic", [b"a/+", b"#", b"a\0b", b"\xff\xfe", b"\xed\xa0\x80"])
def test_publish_with_an_invalid_topic_closes(topic: bytes) -> None:
    """Wildcards [MQTT-3.3.2-2], U+0000 [MQTT-4.7.3-2], ill-formed UTF-8 [MQTT-3.3.2-1]."""
    bench = Bench()
    client = bench.client("c", version=5)

    client.send(publish(topic, b"x", properties=b""))

    assert bench.control.closes[0][1] in (Reason.TOPIC_NAME_INVALID, Reason.MALFORMED)


def test_publish_above_the_topic_limits_closes() -> None:
    """Levels and length come from the tenant's limits: 0x90."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(topic_levels=3, topic_bytes=20)

    assert bench.client("c", version=5).send(publish(b"a/b/c/d", properties=b"")) == b"\xe0\x01\x90"
    assert bench.client("d", version=5).send(publish(b"a" * 21, properties=b"")) == b"\xe0\x01\x90"
    assert bench.client("e", version=5).send(publish(b"a/b/c", properties=b"")) == b""


def test_topic_alias_of_the_client() -> None:
    """Set with a topic, used without [MQTT-3.3.2-12]; aliases never cross connections."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"#")
    client = bench.client("c", version=5, topic_aliases=2)

    client.send(publish(b"a", b"1", properties=b"\x23\0\x02") + publish(b"", b"2", properties=b"\x23\0\x02"))

    assert subscriber.take() == publish(b"a", b"1") + publish(b"a", b"2")


@pytest.mark.parametrize(
    ("packet", "code"),
    [
        (publish(b"a", properties=b"\x23\0\x03"), 0x94),  # above our Topic Alias Maximum [MQTT-3.3.2-9]
        (publish(b"a", properties=b"\x23\0\0"), 0x94),  # [MQTT-3.3.2-8]
        (publish(b"", properties=b"\x23\0\x01"), 0x82),  # never set
        (publish(b"", properties=b""), 0x82),
        (publish(b"a", properties=b"\x0b\x01"), 0x82),  # Subscription Identifier from a client [MQTT-3.3.4-6]
        (publish(b"a", properties=b"\x01\x01\x01\x01"), 0x82),  # twice
        (publish(b"a", properties=b"\x08\0\x02a+"), 0x82),  # Response Topic with a wildcard [MQTT-3.3.2-14]
        (publish(b"a", properties=b"\x11\0\0\0\x01"), 0x81),  # a property of another packet
        (b"\x36\x05\0\x01a\0\x01", 0x81),  # QoS 3 [MQTT-3.3.1-4]
        (b"\x38\x04\0\x01a\0", 0x81),  # DUP with QoS 0 [MQTT-3.3.1-2]
        (b"\x30\x02\0\x05", 0x81),
        (b"\x32\x03\0\x01a", 0x81),
    ],
)
def test_publish_with_a_fault_gets_its_code(packet: bytes, code: int) -> None:
    """DISCONNECT with the code, then the end."""
    client = Bench().client("c", version=5, topic_aliases=2)

    assert client.send(packet) == bytes((0xE0, 1, code))
    assert client.transport.is_closed


def test_too_many_user_properties_are_refused() -> None:
    bench = Bench()
    bench.tenant.limits = TenantLimits(user_properties=2)
    client = bench.client("c", version=5)

    assert client.send(publish(b"a", properties=b"\x26\0\0\0\0" * 2)) == b""
    assert client.send(publish(b"a", properties=b"\x26\0\0\0\0" * 3)) == b"\xe0\x01\x97"


def test_no_subscribers_is_answered_and_counted() -> None:
    """5.0: Reason Code 0x10."""
    bench = Bench()

    assert bench.client("c", version=5).send(publish(b"a", b"x", 1, 9, properties=b"")) == ack(0x40, 9, 0x10)
    assert bench.client("d", version=4).send(publish(b"a", b"x", 1, 9)) == ack(0x40, 9)
    assert bench.tenant.counters.dropped == {Drop.NO_SUBSCRIBERS: 2}


def test_denied_publish() -> None:
    """5.0 gets 0x87, 3.x is acknowledged [MQTT3-3.3.5-2], QoS 0 vanishes; no subscriber gets it, all are counted."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"#", 2)
    policy = TopicPolicy(set(), set())
    new = bench.client("5", version=5, policy=policy)
    old = bench.client("4", version=4, policy=policy)

    assert new.send(publish(b"a", b"x", 1, 1, properties=b"")) == ack(0x40, 1, 0x87)
    assert new.send(publish(b"a", b"x", 2, 2, properties=b"")) == ack(0x50, 2, 0x87)
    assert new.send(publish(b"a", b"x", properties=b"")) == b""
    assert old.send(publish(b"a", b"x", 1, 1)) == ack(0x40, 1)
    assert old.send(publish(b"a", b"x", 2, 2) + ack(0x62, 2)) == ack(0x50, 2) + ack(0x70, 2)

    assert subscriber.take() == b""
    assert bench.tenant.counters.dropped == {Drop.DENIED: 5}
    assert not new.transport.is_closed


def test_denied_publish_closes_3x_where_the_tenant_wants_it() -> None:
    bench = Bench()
    bench.tenant.limits = TenantLimits(close_on_denied=True)
    client = bench.client("c", policy=TopicPolicy(set(), set()))

    client.send(publish(b"a", b"x", 1, 1))

    assert bench.control.closes == [(client.connection, Reason.NOT_AUTHORIZED)]


def test_dollar_topics_always_ask_the_policy() -> None:
    """The fast path leaves out what begins with "$"."""
    bench = Bench()
    policy = TopicPolicy(set(), set())
    policy.publishes_everything = True
    client = bench.client("c", version=5, policy=policy)

    assert client.send(publish(b"$SYS/x", b"", 1, 1, properties=b"")) == ack(0x40, 1, 0x87)


def test_receive_maximum_of_ours() -> None:
    """More than we allow: DISCONNECT 0x93 [MQTT-3.3.4-7]; PUBREL makes room."""
    bench = Bench()
    client = bench.client("c", version=5, inbound_maximum=2)
    bench.client("s").subscribe(b"a", 2)

    client.send(publish(b"a", b"x", 2, 1, properties=b"") + publish(b"a", b"x", 2, 2, properties=b""))
    client.send(ack(0x62, 1))
    assert client.send(publish(b"a", b"x", 2, 3, properties=b"")) == ack(0x50, 3)

    assert client.send(publish(b"a", b"x", 2, 4, properties=b"")) == b"\xe0\x01\x93"


def test_pubrel_for_an_unknown_identifier() -> None:
    """PUBCOMP, 0x92 in 5.0."""
    bench = Bench()

    assert bench.client("5", version=5).send(ack(0x62, 5)) == ack(0x70, 5, 0x92)
    assert bench.client("4", version=4).send(ack(0x62, 5)) == ack(0x70, 5)


@pytest.mark.parametrize(
    "packet", [b"\x60\x02\0\x01", b"\x42\x02\0\x01", b"\x40\x01\0", b"\x40\x02\0\0", b"\x40\x03\0\x01\x55"]
)
def test_malformed_acknowledgements_close(packet: bytes) -> None:
    """Wrong flags [MQTT-3.6.1-1], too short, identifier 0 [MQTT-2.2.1-3], an unknown Reason Code [MQTT-3.4.2-1]."""
    client = Bench().client("c", version=5)

    client.send(packet)

    assert client.transport.is_closed


def test_rate_pauses_reading_and_goes_on() -> None:
    """Over the rate the publisher is not read; nothing is lost, nothing is early."""
    bench = Bench()
    bench.tenant.inbound_messages = Meter([(10, 1.0)], bench.clock.monotonic())
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"a", b"%02d" % number) for number in range(20)))
    assert publisher.transport.is_paused
    first = len(packets(subscriber.take()))
    bench.pass_time(1)
    second = len(packets(subscriber.take()))
    bench.pass_time(2)

    assert first <= 3
    assert 9 <= second <= 11
    assert first + second + len(packets(subscriber.take())) == 20
    assert not publisher.transport.is_paused


def test_rate_beyond_the_longest_pause() -> None:
    """5.0: 0x97 for QoS 1/2, DISCONNECT 0x96 for QoS 0; 3.x is closed."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(max_pause_s=1.0)
    bench.tenant.inbound_messages = Meter([(1, 100.0)], bench.clock.monotonic())
    new = bench.client("5", version=5)
    old = bench.client("4", version=4)
    new.send(publish(b"a", b"x", 1, 1, properties=b""))

    assert new.send(publish(b"a", b"x", 1, 2, properties=b"")) == ack(0x40, 2, 0x97)
    assert new.send(publish(b"a", b"x", 2, 3, properties=b"")) == ack(0x50, 3, 0x97)
    assert new.send(publish(b"a", b"x", properties=b"")) == b"\xe0\x01\x96"
    old.send(publish(b"a", b"x", 1, 1))

    assert bench.control.closes == [(new.connection, Reason.MESSAGE_RATE), (old.connection, Reason.MESSAGE_RATE)]
    assert bench.tenant.counters.dropped[Drop.QUOTA] == 4


def test_several_meters_charge_a_message_once() -> None:
    """What one meter granted is remembered while another makes the message wait."""
    bench = Bench()
    start = bench.clock.monotonic()
    messages = Meter([(100, 100.0)], start)
    bench.tenant.inbound_messages = messages
    bench.tenant.inbound_bytes = Meter([(10, 1.0)], start)
    publisher = bench.client("p")

    publisher.send(publish(b"a", b"xxxxxxx") * 3)
    bench.pass_time(5)

    assert bench.tenant.counters.received_0 == 3
    assert messages.take(97, bench.clock.monotonic()) == 0.0


def test_spent_day_allowance() -> None:
    """QoS 0 is dropped, QoS 1/2 gets 0x97 in 5.0 and an end in 3.x."""
    bench = Bench()
    bench.tenant.day_messages = Spent()
    new = bench.client("5", version=5)
    old = bench.client("4", version=4)

    assert new.send(publish(b"a", b"x", properties=b"") + publish(b"a", b"x", 1, 2, properties=b"")) == ack(
        0x40, 2, 0x97
    )
    assert old.send(publish(b"a", b"x")) == b""
    assert not old.transport.is_closed
    old.send(publish(b"a", b"x", 1, 2))

    assert bench.control.closes == [(old.connection, Reason.QUOTA)]


def test_acknowledgements_leave_in_order() -> None:
    """A PUBACK that waits for the disk holds back those behind it [MQTT-4.6.0-2]."""
    bench = Bench()
    kept = bench.client("kept", queue_id=7)
    kept.subscribe(b"durable", 1)
    bench.store.commit_all()
    publisher = bench.client("p")

    assert publisher.send(publish(b"now", b"", 1, 1)) == ack(0x40, 1)
    assert (
        publisher.send(publish(b"durable", b"", 1, 2) + publish(b"now", b"", 1, 3) + publish(b"now", b"", 2, 4)) == b""
    )
    bench.store.commit()

    assert publisher.take() == ack(0x40, 2) + ack(0x40, 3) + ack(0x50, 4)


def test_retained_message_waits_for_the_store() -> None:
    """RETAIN 1 is acknowledged after it was stored, subscribers or not [MQTT-3.3.1-5]; delivered live with RETAIN 0 at once."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 1)
    publisher = bench.client("p")

    assert publisher.send(publish(b"a", b"x", 1, 1, retain=True)) == b""
    assert subscriber.take() == publish(b"a", b"x", 1, 1)
    bench.store.commit()

    assert publisher.take() == ack(0x40, 1)
    assert bench.store.retained[b"a"].payload == b"x"


def test_retained_quota_delivers_and_does_not_retain() -> None:
    """PUBACK 0x97, delivered live."""
    bench = Bench()
    bench.tenant.may_retain = lambda topic, size: False
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")

    assert bench.client("p", version=5).send(publish(b"a", b"x", 1, 1, retain=True, properties=b"")) == ack(
        0x40, 1, 0x97
    )
    assert subscriber.take() == publish(b"a", b"x")
    assert bench.store.appends == 0


@pytest.mark.parametrize(
    ("version", "is_written", "answer"), [(5, False, ack(0x40, 1, 0x97)), (5, True, b"\xe0\x01\x97"), (4, False, b"")]
)
def test_store_failure(version: int, is_written: bool, answer: bytes) -> None:
    """0x97 only when nothing was written for certain; else the connection ends without an answer to the PUBLISH."""
    bench = Bench()
    bench.store.fails = is_written
    publisher = bench.client("p", version=version)
    publisher.send(publish(b"a", b"x", 1, 1, retain=True, properties=b"" if version == 5 else None))

    bench.store.commit()

    assert publisher.take() == answer
    assert publisher.transport.is_closed == (answer != ack(0x40, 1, 0x97))


@pytest.mark.parametrize(("version", "qos"), [(5, 1), (5, 2), (4, 1), (4, 2)])
def test_lost_queue_costs_its_own_deliveries(version: int, qos: int) -> None:
    """The others have the message, and its publisher is acknowledged: whose queue is lost has no session any more."""
    bench = Bench()
    receivers = [bench.client(f"s{number}", queue_id=number) for number in (7, 8)]
    for receiver in receivers:
        receiver.subscribe(b"a", 1)
    bench.store.commit_all()
    publisher = bench.client("p", version=version, queue_id=9)
    bench.store.lost = {7}

    publisher.send(publish(b"a", b"x", qos, 1, properties=b"" if version == 5 else None))
    bench.store.commit_all()

    assert [receiver.take() != b"" for receiver in receivers] == [False, True]
    assert bench.tenant.counters.dropped == {Drop.SESSION_ENDED: 1}
    assert publisher.take() == ack(0x40 if qos == 1 else 0x50, 1)


def test_publisher_ahead_of_the_store_is_paused() -> None:
    """Never unbounded: reading stops, and goes on when the store has caught up."""
    bench = Bench(PlaneLimits(unstored_messages=4))
    publisher = bench.client("p", inbound_maximum=100)

    publisher.send(b"".join(publish(b"a", b"x", 1, number, retain=True) for number in range(1, 11)))
    assert bench.store.appends == 4
    assert publisher.transport.is_paused
    bench.settle()
    bench.settle()
    bench.settle()

    assert publisher.take() == b"".join(ack(0x40, number) for number in range(1, 11))
    assert not publisher.transport.is_paused


def test_every_queue_full_is_answered() -> None:
    """5.0 gets 0x97 only if every persistent queue refused, and nobody else got it."""
    bench = Bench()
    for number in (7, 8):
        bench.client(f"s{number}", queue_id=number).subscribe(b"a", 1)
    bench.store.commit_all()
    publisher = bench.client("p", version=5)

    bench.store.full = {7}
    publisher.send(publish(b"a", b"x", 1, 1, properties=b""))
    bench.store.commit()
    assert publisher.take() == ack(0x40, 1)
    bench.store.full = {7, 8}
    publisher.send(publish(b"a", b"x", 1, 2, properties=b""))
    bench.store.commit()

    assert publisher.take() == ack(0x40, 2, 0x97)
    assert bench.tenant.counters.dropped == {Drop.QUEUE_FULL: 3}


def test_publish_hook_may_change_or_refuse() -> None:
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"new")
    bench.tenant.publish_hook = lambda session, message: (
        None if message.payload == b"no" else Message(b"new", message.payload)
    )

    publisher = bench.client("p", version=5)

    assert publisher.send(publish(b"old", b"no", 1, 1, properties=b"")) == ack(0x40, 1, 0x87)
    publisher.send(publish(b"old", b"x", properties=b""))
    assert subscriber.take() == publish(b"new", b"x")


def test_fanout_is_limited() -> None:
    """The first receivers get it, the rest is dropped and counted."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(fanout=2)
    subscribers = [bench.client(f"s{number}") for number in range(5)]
    for subscriber in subscribers:
        subscriber.subscribe(b"a")

    bench.client("p").send(publish(b"a", b"x"))

    assert sum(1 for subscriber in subscribers if subscriber.take()) == 2
    assert bench.tenant.counters.dropped == {Drop.FANOUT: 3}


def test_inbound_qos2_of_a_persistent_session_without_receivers_is_recorded() -> None:
    """The identifier is durable before PUBREC, its removal before PUBCOMP [MQTT-4.3.3-2]."""
    store = ManualStore()
    bench = Bench(store=store)
    publisher = bench.client("p", queue_id=9)
    store.commit_all()

    assert publisher.send(publish(b"a", b"x", 2, 1)) == b""
    store.commit()
    assert publisher.take() == ack(0x50, 1)
    assert store.queue(9).inbound == {1}
    assert publisher.send(ack(0x62, 1)) == b""
    store.commit()
    assert publisher.take() == ack(0x70, 1)

    assert store.queue(9).inbound == set()


def large(size: int, sent: int) -> bytes:
    """The beginning of a PUBLISH whose body has `size` bytes."""
    body = b"\x00\x01a" + bytes(sent)
    length = bytes([0x80 | size & 0x7F, 0x80 | size >> 7 & 0x7F, 0x80 | size >> 14 & 0x7F, size >> 21])
    return b"\x30" + length + body


def test_large_incomplete_packet_is_counted_until_it_is_whole() -> None:
    """What somebody sends and does not end is memory like any other."""
    bench = Bench(PlaneLimits(buffered_bytes=16 << 20))
    client = bench.client("c", packet_bytes=1 << 20)
    watcher = bench.client("w")
    watcher.subscribe(b"a")
    client.send(large(200_003, 50_000))
    assert bench.plane.turn.buffered_bytes == 0
    client.send(bytes(100_000))
    assert bench.tenant.buffered_bytes == bench.plane.turn.buffered_bytes == 150_008
    client.send(bytes(50_000))

    assert len(watcher.take()) == 200_007  # its own Remaining Length takes three bytes [MQTT-1.5.5-1]
    assert bench.tenant.buffered_bytes == bench.plane.turn.buffered_bytes == 0


def test_large_incomplete_packet_leaves_the_books_with_its_connection() -> None:
    """However it ends."""
    bench = Bench(PlaneLimits(buffered_bytes=16 << 20))
    for number in range(2):
        client = bench.client(f"c{number}", packet_bytes=1 << 20)
        client.send(large(500_003, 100_000))
        client.send(bytes(1_000))
        assert bench.plane.turn.buffered_bytes > 100_000
        if number:
            client.drop()
        else:
            bench.plane.turn.close(client.connection, Reason.OVERLOAD)
        bench.plane.end_batch()

    assert bench.tenant.buffered_bytes == bench.plane.turn.buffered_bytes == 0


@pytest.mark.parametrize("version", [4, 5])
def test_incomplete_packets_of_a_tenant_fill_half_of_what_may_be_buffered_at_most(version: int) -> None:
    """The one that would grow beyond is closed; nobody else pauses, is refused or loses a message."""
    bench = Bench(PlaneLimits(buffered_bytes=4 << 20))
    clients = [bench.client(f"c{number}", version=version, packet_bytes=8 << 20) for number in range(30)]
    for client in clients:
        client.send(large(7 << 20, 60_000))
        client.send(bytes(60_000))
    grown = [client for client in clients if not client.transport.is_closed]

    assert 10 < len(grown) < 20
    assert {reason for _, reason in bench.control.closes} == {Reason.OVERLOAD}
    assert bench.plane.overload_level() == 0
    bench.client("other")
    for client in grown:
        client.drop()
    assert bench.plane.turn.buffered_bytes == 0


def test_large_packet_of_a_tenant_with_little_grows_while_another_tenant_fills_the_hub() -> None:
    """Nobody is closed for what others have; at the very end of the memory everybody is."""
    bench = Bench(PlaneLimits(buffered_bytes=4 << 20))
    other = TenantPlane(2, "other")
    client = bench.client("c", packet_bytes=1 << 20)
    client.send(large(200_003, 60_000))
    bench.plane.turn.hold(other, 3 << 20)
    assert bench.plane.overload_level() == 1
    client.send(bytes(60_000))
    assert not client.transport.is_closed
    bench.plane.turn.hold(other, 1 << 20)
    client.send(bytes(60_000))

    assert client.transport.is_closed
    assert (bench.tenant.buffered_bytes, bench.plane.turn.buffered_bytes) == (0, 4 << 20)


def test_large_connect_is_bounded_by_its_own_limit_alone() -> None:
    """Nothing is counted before there is a tenant."""
    bench = Bench(PlaneLimits(buffered_bytes=1 << 20))
    bench.plane.turn.hold(bench.tenant, 900_000)
    transport, connection = bench.accept()
    connection.feed(b"\x10\x80\x80\x06" + bytes(40_000))
    connection.feed(bytes(40_000))
    bench.plane.end_batch()

    assert not transport.is_closed
    assert bench.plane.turn.buffered_bytes == 900_000
