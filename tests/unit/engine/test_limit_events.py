"""A refusal names its limit once, by the attribute that holds it; a day's allowance goes last."""

from __future__ import annotations

import pytest

from iothub.engine.buckets import Meter
from iothub.engine.limits import TenantLimits
from iothub.testing.engine import Bench, ack, publish


class Allowance:
    """A day counter with so many units left."""

    def __init__(self, left: int) -> None:
        self.left = left

    def take(self, units: int, now: float) -> float:
        if units > self.left:
            return -1.0
        self.left -= units
        return 0.0


@pytest.mark.parametrize(
    ("packet", "limit"),
    [
        (publish(b"a/b/c/d", properties=b""), "topic_levels"),
        (publish(b"a" * 21, properties=b""), "topic_bytes"),
        (publish(b"a", b"x" * 600, properties=b""), "packet_bytes"),
        (publish(b"a", properties=b"\x26\0\x01k\0\x01v" * 3), "user_properties"),
        (publish(b"a", properties=b"\x23\0\x03"), "topic_aliases"),
    ],
)
def test_exceeded_bound_is_named(packet: bytes, limit: str) -> None:
    """Whoever counts refusals needs to know whose they are."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(topic_levels=3, topic_bytes=20, user_properties=2)

    bench.client("c", version=5, topic_aliases=2, packet_bytes=500).send(packet)

    assert bench.observer.limits == [(limit, 1)]


def test_malformed_topic_is_no_limit() -> None:
    """A wildcard in a Topic Name is the client's fault, not its quota's."""
    bench = Bench()

    bench.client("c", version=5).send(publish(b"a/+", properties=b""))

    assert bench.observer.limits == []


def test_receive_maximum_is_named() -> None:
    """QoS 2 whose PUBREL the client withholds [MQTT-3.3.4-7]."""
    bench = Bench()
    client = bench.client("c", version=5, inbound_maximum=1)

    client.send(publish(b"a", qos=2, packet_id=1, properties=b""))
    client.send(publish(b"a", qos=2, packet_id=2, properties=b""))

    assert bench.observer.limits == [("inbound_maximum", 1)]


def test_day_is_used_up_by_what_passed_alone() -> None:
    """A message that its rate refuses costs nothing of the day."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(max_pause_s=1.0)
    bench.tenant.inbound_messages = Meter([(1, 60.0)], bench.clock.monotonic())
    bench.tenant.day_messages = Allowance(10)
    client = bench.client("c", version=5)

    for number in range(1, 4):
        client.send(publish(b"a", qos=1, packet_id=number, properties=b""))

    assert bench.tenant.day_messages.left == 9
    assert bench.observer.limits == [("inbound_messages", 1)] * 2


def test_spent_day_is_named() -> None:
    """As many as the client counts 0x97."""
    bench = Bench()
    bench.tenant.day_messages = Allowance(1)
    client = bench.client("c", version=5)

    for number in range(1, 4):
        client.send(publish(b"a", qos=1, packet_id=number, properties=b""))

    assert bench.observer.limits == [("day_messages", 1)] * 2


def test_spent_calendar_window_of_persistent_fanout_refuses() -> None:
    """-1.0 is no permission."""
    bench = Bench()
    bench.tenant.persistent_fanout = Allowance(1)
    bench.client("p", queue_id=1).subscribe(b"a", qos=1)
    client = bench.client("c", version=5)

    client.send(publish(b"a", qos=1, packet_id=1, properties=b""))
    answer = client.send(publish(b"a", qos=1, packet_id=2, properties=b""))
    bench.store.commit_all()

    assert bench.observer.limits == [("persistent_fanout", 1)]
    assert answer + client.take() == ack(0x40, 1) + ack(0x40, 2, 0x97)


@pytest.mark.parametrize(
    ("limits", "name"), [(TenantLimits(fanout=1), "fanout"), (TenantLimits(fanout_bytes=1), "fanout_bytes")]
)
def test_deliveries_above_the_fanout_are_named(limits: TenantLimits, name: str) -> None:
    """Each delivery that was left out counts."""
    bench = Bench()
    bench.tenant.limits = limits
    for client_id in ("a", "b", "c"):
        bench.client(client_id).subscribe(b"t")

    bench.client("p").send(publish(b"t", b"x"))

    assert bench.observer.limits == [(name, 2)]


@pytest.mark.parametrize("first", [0x40, 0x50, 0x62, 0x70])
def test_user_properties_of_an_acknowledgement_are_named(first: int) -> None:
    """As those of a PUBLISH are, before the client is closed with 0x97."""
    bench = Bench()
    bench.tenant.limits = TenantLimits(user_properties=2)
    client = bench.client("c", version=5)
    properties = b"\x26\0\x01k\0\x01v" * 3

    answer = client.send(bytes((first, 4 + len(properties), 0, 1, 0, len(properties))) + properties)

    assert bench.observer.limits == [("user_properties", 1)]
    assert answer == b"\xe0\x01\x97"


def test_group_without_persistent_members_is_no_stored_delivery() -> None:
    """A shared group counts for `persistent_fanout` while a member has a queue, as one."""
    bench = Bench()
    bench.tenant.persistent_fanout = Allowance(2)
    bench.client("t").subscribe(b"a", qos=1, group=b"g")
    client = bench.client("c", version=5)

    client.send(publish(b"a", qos=1, packet_id=1, properties=b""))
    assert bench.tenant.persistent_fanout.left == 2
    members = [bench.client(f"p{number}", queue_id=number) for number in (1, 2)]
    for member in members:
        member.subscribe(b"a", qos=1, group=b"g")
    client.send(publish(b"a", qos=1, packet_id=2, properties=b""))
    assert bench.tenant.persistent_fanout.left == 1
    for member in members:
        bench.plane.unsubscribe(member.session, b"g", b"a")
    client.send(publish(b"a", qos=1, packet_id=3, properties=b""))
    assert bench.tenant.persistent_fanout.left == 1
