"""From session to out-buffer: windows, backlog, drop policy, 5.0 properties of each copy, rights and sizes at the gate."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop, Reason
from iothub.engine.buckets import Meter
from iothub.engine.limits import PlaneLimits, TenantLimits
from iothub.testing.engine import Bench, TopicPolicy, ack, packets, publish


def payloads(data: bytes) -> list[bytes]:
    """The last byte of each PUBLISH."""
    return [body[-1:] for header, body in packets(data) if header >> 4 == 3]


def test_window_holds_back_what_exceeds_receive_maximum() -> None:
    """No more than the client's Receive Maximum is in flight [MQTT-3.3.4-9]; the backlog follows in order [MQTT-4.6.0-6]."""
    bench = Bench()
    subscriber = bench.client("s", version=5, receive_maximum=2)
    subscriber.subscribe(b"a", 1)
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"a", b"%d" % number, 1, number) for number in range(1, 6)))

    assert payloads(subscriber.take()) == [b"1", b"2"]
    assert payloads(subscriber.send(ack(0x40, 2))) == [b"3"]
    assert payloads(subscriber.send(ack(0x40, 1) + ack(0x40, 3))) == [b"4", b"5"]
    assert bench.tenant.buffered_bytes == 0


def test_window_counts_qos2_until_pubcomp() -> None:
    """PUBREC alone frees nothing; PUBREC with an error completes [MQTT-4.9.0-2]."""
    bench = Bench()
    subscriber = bench.client("s", version=5, receive_maximum=1)
    subscriber.subscribe(b"a", 2)
    publisher = bench.client("p")
    publisher.send(b"".join(publish(b"a", b"%d" % number, 2, number) for number in range(1, 4)))

    assert payloads(subscriber.take()) == [b"1"]
    assert subscriber.send(ack(0x50, 1)) == ack(0x62, 1)
    assert payloads(subscriber.send(ack(0x70, 1))) == [b"2"]
    assert payloads(subscriber.send(ack(0x50, 2, 0x97))) == [b"3"]


@pytest.mark.parametrize(("header", "reply"), [(0x40, b""), (0x50, ack(0x62, 99, 0x92)), (0x70, b"")])
def test_acks_for_unknown_identifiers_change_nothing(header: int, reply: bytes) -> None:
    """A PUBREC that names nothing is answered PUBREL 0x92; the others are ignored."""
    client = Bench().client("c", version=5)

    assert client.send(ack(header, 99)) == reply
    assert not client.transport.is_closed


def test_pubrec_for_qos1_is_a_protocol_error() -> None:
    bench = Bench()
    subscriber = bench.client("s", version=5)
    subscriber.subscribe(b"a", 1)
    bench.client("p").send(publish(b"a", b"x", 1, 1))
    subscriber.take()

    assert subscriber.send(ack(0x50, 1)) == b"\xe0\x01\x82"


def test_qos0_is_dropped_only_when_congested_and_above_the_limit() -> None:
    """Two conditions (R16), counted by reason (R17)."""
    bench = Bench(PlaneLimits(out_soft_bytes=1000))
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    publisher = bench.client("p")

    publisher.send(publish(b"a", bytes(600)) * 4)
    assert len(packets(subscriber.take())) == 4  # above the limit, and the socket takes it
    subscriber.transport.is_stuck = True
    publisher.send(publish(b"a", bytes(300)))
    publisher.send(publish(b"a", bytes(300)))
    assert bench.observer.drops == []  # congested, and below
    publisher.send(publish(b"a", bytes(600)) * 4)

    assert bench.tenant.counters.dropped == {Drop.QOS0_SLOW: 3}
    assert len(subscriber.connection.out) < 1300


def test_hard_cap_drops_qos0_and_holds_back_qos1() -> None:
    """Above the cap nothing but acknowledgements is added; QoS 1 follows when the socket takes bytes again."""
    bench = Bench(PlaneLimits(out_soft_bytes=1000, out_hard_bytes=2000))
    subscriber = bench.client("s")
    subscriber.subscribe(b"a", 1)
    publisher = bench.client("p")
    subscriber.transport.is_stuck = True

    publisher.send(b"".join(publish(b"a", bytes(900), 1, number) for number in range(1, 9)))
    assert len(subscriber.connection.out) < 3000
    subscriber.transport.is_stuck = False
    subscriber.transport.flush()
    for _ in range(8):
        bench.pass_time(0.1)

    assert len(packets(subscriber.take())) == 8
    assert bench.observer.drops == []


def test_client_that_never_reads_its_acknowledgements_is_closed() -> None:
    """Twice the cap: SLOW_CONSUMER, and the bytes go with it."""
    bench = Bench(PlaneLimits(out_hard_bytes=1000))
    client = bench.client("c")
    client.transport.is_stuck = True

    for _ in range(11):
        client.send(b"\xc0\x00" * 100)

    assert bench.control.closes == [(client.connection, Reason.SLOW_CONSUMER)]
    assert client.transport.is_aborted


def test_client_that_pings_and_never_acknowledges_costs_no_more_than_its_backlog() -> None:
    """Its keep alive is kept and its socket takes bytes, so it stays and gets QoS 0; of QoS 1 the newest is dropped, by name (R16, R17)."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(backlog_bytes=2000)
    subscriber = bench.client("s", receive_maximum=2)
    subscriber.subscribe(b"a", 1)
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"a", b"1" * 300, 1, number) for number in range(1, 41)))
    publisher.send(publish(b"a", b"0"))

    held = subscriber.session.backlog_bytes
    assert 1500 < held <= 2000
    assert bench.tenant.buffered_bytes == held
    assert bench.tenant.counters.dropped == {Drop.QUEUE_FULL: 38 - subscriber.session.backlog_length()}
    assert payloads(subscriber.take()) == [b"1", b"1", b"0"]
    assert subscriber.send(b"\xc0\x00") == b"\xd0\x00"
    assert not subscriber.connection.is_closing


def test_backlog_is_bounded() -> None:
    """The newest is dropped, counted."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(backlog_messages=2)
    subscriber = bench.client("s", receive_maximum=1)
    subscriber.subscribe(b"a", 1)

    bench.client("p").send(b"".join(publish(b"a", b"%d" % number, 1, number) for number in range(1, 6)))

    assert bench.tenant.counters.dropped == {Drop.QUEUE_FULL: 2}
    subscriber.take()
    assert payloads(subscriber.send(ack(0x40, 1))) == [b"2"]
    assert payloads(subscriber.send(ack(0x40, 2))) == [b"3"]
    assert payloads(subscriber.send(ack(0x40, 3))) == []


def test_outbound_rate_delivers_later() -> None:
    """Over the rate the bounded backlog takes it, QoS 0 too, in order."""
    bench = Bench()
    bench.tenant.outbound_messages = Meter([(10, 1.0)], bench.clock.monotonic())
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    bench.pass_time(1)

    bench.client("p").send(b"".join(publish(b"a", b"%d" % number) for number in range(6)))
    first = payloads(subscriber.take())
    bench.pass_time(1)

    assert 1 <= len(first) < 6
    assert first + payloads(subscriber.take()) == [b"%d" % number for number in range(6)]


def test_message_expiry_counts_down_and_drops() -> None:
    """The interval is lowered by the time spent here [MQTT-3.3.2-6]; what has expired is not sent [MQTT-3.3.2-5]."""
    bench = Bench()
    subscriber = bench.client("s", version=5, receive_maximum=1)
    subscriber.subscribe(b"a", 1)
    publisher = bench.client("p", version=5)
    for number, expiry in ((1, 100), (2, 100), (3, 5)):
        publisher.send(publish(b"a", b"%d" % number, 1, number, properties=b"\x02" + expiry.to_bytes(4, "big")))

    assert subscriber.take() == publish(b"a", b"1", 1, 1, properties=b"\x02\0\0\0\x64")
    bench.pass_time(10)
    assert subscriber.send(ack(0x40, 1)) == publish(b"a", b"2", 1, 2, properties=b"\x02\0\0\0\x5a")
    assert subscriber.send(ack(0x40, 2)) == b""

    assert bench.tenant.counters.dropped == {Drop.EXPIRED: 1}


def test_properties_are_forwarded_unaltered_and_in_order() -> None:
    """Everything but alias, expiry and identifier goes through as it came [MQTT-3.3.2-17] [MQTT-3.3.2-18]; 3.x clients get none."""
    bench = Bench()
    new = bench.client("5", version=5)
    old = bench.client("4", version=4)
    new.subscribe(b"a")
    old.subscribe(b"a")
    before = b"\x26\0\x01k\0\x01v\x01\x01\x08\0\x01r"
    behind = b"\x09\0\x02\0\xff\x26\0\x01k\0\x01w\x03\0\x01t"

    bench.client("p", version=5, topic_aliases=2).send(publish(b"a", b"x", properties=before + b"\x23\0\x02" + behind))

    assert new.take() == publish(b"a", b"x", properties=before + behind)
    assert old.take() == publish(b"a", b"x")


def test_subscription_identifiers_are_added() -> None:
    """Every matching subscription's identifier goes along [MQTT-3.3.4-3] [MQTT-3.3.4-4]."""
    bench = Bench()
    subscriber = bench.client("s", version=5)
    subscriber.subscribe(b"a/+", identifier=1)
    subscriber.subscribe(b"a/b", identifier=300)

    bench.client("p").send(publish(b"a/b", b"x"))

    assert subscriber.take() in (
        publish(b"a/b", b"x", properties=b"\x0b\x01\x0b\xac\x02"),
        publish(b"a/b", b"x", properties=b"\x0b\xac\x02\x0b\x01"),
    )


def test_retain_as_published() -> None:
    """RETAIN goes through only for who asked for it [MQTT-3.3.1-12] [MQTT-3.3.1-13]."""
    bench = Bench()
    plain = bench.client("plain", version=5)
    plain.subscribe(b"a")
    faithful = bench.client("rap", version=5)
    faithful.subscribe(b"a", retain_as_published=True)

    bench.client("p").send(publish(b"a", b"x", retain=True))

    assert plain.take()[0] == 0x30
    assert faithful.take()[0] == 0x31


def test_no_local() -> None:
    """A publisher with No Local does not hear itself [MQTT-3.8.3-3], others do."""
    bench = Bench()
    deaf = bench.client("deaf", version=5)
    deaf.subscribe(b"a", no_local=True)
    other = bench.client("other", version=5)
    other.subscribe(b"a", no_local=True)

    deaf.send(publish(b"a", b"x", properties=b""))

    assert deaf.take() == b""
    assert payloads(other.take()) == [b"x"]


def test_too_large_for_the_client_is_not_sent() -> None:
    """Treated as if it were complete [MQTT-3.1.2-25]; what follows goes on."""
    bench = Bench()
    subscriber = bench.client("s", version=5)
    subscriber.connection.maximum_packet_size = 50
    subscriber.subscribe(b"a", 1)

    bench.client("p").send(publish(b"a", bytes(100), 1, 1) + publish(b"a", b"x", 1, 2))

    assert subscriber.take() == publish(b"a", b"x", 1, 2, properties=b"")
    assert bench.tenant.counters.dropped == {Drop.TOO_LARGE: 1}


def test_topic_aliases_are_used_for_repeated_topics() -> None:
    """The first goes in full, the second announces the alias, the third has no topic [MQTT-3.3.2-9] [MQTT-3.1.2-26]."""
    bench = Bench()
    subscriber = bench.client("s", version=5, topic_alias_maximum=1)
    subscriber.subscribe(b"#", 1)
    publisher = bench.client("p")

    publisher.send(b"".join(publish(b"long/topic", b"x", 1, number) for number in (1, 2, 3)))
    publisher.send(b"".join(publish(b"other", b"y", 1, number) for number in (4, 5, 6)))

    assert subscriber.take() == (
        publish(b"long/topic", b"x", 1, 1, properties=b"")
        + publish(b"long/topic", b"x", 1, 2, properties=b"\x23\0\x01")
        + publish(b"", b"x", 1, 3, properties=b"\x23\0\x01")
        + publish(b"other", b"y", 1, 4, properties=b"")
        + publish(b"other", b"y", 1, 5, properties=b"")
        + publish(b"other", b"y", 1, 6, properties=b"")
    )


def test_rights_are_asked_at_delivery_once_per_topic() -> None:
    """A denial acts at delivery; the answer is kept until the policy changes."""
    bench = Bench()
    policy = TopicPolicy(set(), {b"a/yes"})
    subscriber = bench.client("s", policy=policy)
    subscriber.subscribe(b"a/+")
    publisher = bench.client("p")

    publisher.send((publish(b"a/yes", b"1") + publish(b"a/no", b"2")) * 3)
    assert payloads(subscriber.take()) == [b"1"] * 3
    assert policy.questions == 2
    assert bench.tenant.counters.dropped == {Drop.DENIED: 3}
    bench.plane.policy_changed(subscriber.session, TopicPolicy(set(), {b"a/no"}))
    publisher.send(publish(b"a/yes", b"1") + publish(b"a/no", b"2"))

    assert payloads(subscriber.take()) == [b"2"]


def test_a_session_without_a_policy_may_do_nothing() -> None:
    """Nothing is allowed until the control plane sets a policy."""
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    bench.plane.policy_changed(
        subscriber.session, bench.plane.create_session(bench.tenant, "x", "x", is_persistent=False).policy
    )

    bench.client("p").send(publish(b"a", b"x"))

    assert subscriber.take() == b""


def test_deliver_hook_may_refuse() -> None:
    bench = Bench()
    subscriber = bench.client("s")
    subscriber.subscribe(b"a")
    bench.tenant.deliver_hook = lambda session, message: message.payload != b"no"

    bench.client("p").send(publish(b"a", b"no") + publish(b"a", b"y"))

    assert payloads(subscriber.take()) == [b"y"]
    assert bench.tenant.counters.dropped == {Drop.HOOK: 1}
