"""A member of a shared group that ends, whatever it has acknowledged in whatever order: another member gets the rest, in order, and nothing else."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.testing.engine import Bench, Client, ack, packets, publish
from tests.support.night import by_day

SHARED, PLAIN, QOS2 = b"shared", b"plain", b"qos2"
# Publish some messages on a topic, or acknowledge one of those in flight.
STEPS = st.lists(
    st.one_of(
        st.tuples(st.sampled_from((SHARED, SHARED, PLAIN, QOS2)), st.integers(1, 40)),
        st.tuples(st.just(b""), st.integers(0, 10_000)),
    ),
    max_size=60,
)


class Member:
    """A client in the shared groups, and what it has not acknowledged."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.client.subscribe(SHARED, 1, group=b"g")
        self.client.subscribe(QOS2, 2, group=b"g")
        self.in_flight: list[tuple[int, int, bytes]] = []

    def read(self) -> None:
        for header, body in packets(self.client.take()):
            if header >> 4 != 3:
                continue
            size = int.from_bytes(body[:2], "big")
            packet_id = int.from_bytes(body[2 + size : 4 + size], "big")
            self.in_flight.append((header, packet_id, body[4 + size :]))

    def acknowledge(self, number: int) -> bytes | None:
        """Acknowledge one that is in flight; return its payload."""
        if not self.in_flight:
            return None
        header, packet_id, payload = self.in_flight.pop(number % len(self.in_flight))
        qos = header >> 1 & 3
        self.client.connection.feed(ack(0x40 if qos == 1 else 0x50, packet_id))
        if qos == 2:
            self.client.connection.feed(ack(0x70, packet_id))
        self.client.bench.plane.end_batch()
        return payload


@given(st.sampled_from((1, 3, 40, 200)), STEPS)
@settings(max_examples=by_day(75, 150), deadline=None)
def test_rest_goes_to_another_member_in_order(receive_maximum: int, steps: list[tuple[bytes, int]]) -> None:
    """§4.8.2; QoS 2 and plain subscriptions are nobody else's [MQTT-4.8.2-5]. Nothing stays counted as buffered."""
    bench = Bench()
    member = Member(bench.client("member", receive_maximum=receive_maximum))
    member.client.subscribe(PLAIN, 1)
    publisher = bench.client("publisher", inbound_maximum=65535)
    sent: list[bytes] = []
    number = 0
    for topic, count in steps:
        if not topic:
            payload = member.acknowledge(count)
            if payload in sent:
                sent.remove(payload)
        for _ in range(count if topic else 0):
            number += 1
            payload = b"%d" % number
            publisher.send(publish(topic, payload, 2 if topic == QOS2 else 1, number))
            if topic == SHARED:
                sent.append(payload)
        member.read()
    successor = Member(bench.client("successor"))

    member.client.drop()
    bench.plane.discard(member.client.session)

    received: list[bytes] = []
    successor.read()
    while successor.in_flight:
        payload = successor.acknowledge(0)
        assert payload is not None
        received.append(payload)
        successor.read()
    assert received == sent
    assert bench.tenant.buffered_bytes == 0
    assert successor.client.session.shared is None
