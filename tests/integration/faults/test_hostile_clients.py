"""Clients with a password and bad manners: deep topics, many properties, identifier and PUBREL storms, no reading."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator

import pytest

from tests.support.clients import packets
from tests.support.clients.crowd import Crowd
from tests.support.clients.packets import CONNACK, DISCONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, SUBACK
from tests.support.clients.raw import ClosedError, RawClient
from tests.support.clients.witness import Witness, cpu_s, rss_bytes
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.night import by_day
from tests.support.waiting import PATIENCE_S, until

DEEP = b"/" * 65535
MOST_LEVELS = 1024  # the ceiling that no plan lifts
NOT_FOUND = 0x92


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """Tenant acme has the limits of plan standard where these tests look; tenant free has none at all."""
    hub = fresh_hub(tmp_path_factory.mktemp("hub"))
    hub.run("quota", "set", "acme", "topic_levels=128", "filter_levels=128", "user_properties=128")
    hub.tenant("free", "dev1")
    hub.start()
    yield hub
    hub.close()


def pid_of(hub: Hub) -> int:
    assert hub.process is not None
    return hub.process.pid


DEEP_NAMES = [DEEP, b"a/" * 32767 + b"a", b"", b"a\0b", b"a/+/b", b"a/#"]
DEEP_FILTERS = [
    DEEP,
    b"+/" * 32767 + b"+",
    b"a/#/b",
    b"",
    b"a\0b",
    b"$share//a",
    b"$share/g",
    b"$share/g/",
    b"$share/+/a",
]


@pytest.mark.parametrize("version", [4, 5])
@pytest.mark.parametrize("username", ["acme/dev1", "free/dev1"])
def test_impossible_topics_are_refused_cheaply(hub: Hub, version: int, username: str) -> None:
    """PUBLISHes, SUBSCRIBEs and wills: refused by code or closed, at most 5 ms of CPU each, nobody waits.

    No plan lifts the ceiling of 1,024 levels, so a tenant without limits is refused the same.
    What the hub does anyway while a refused client waits for its answer is measured with the shortest impossible topic, and left out.
    """
    port, pid = hub.ports["tcp"], pid_of(hub)
    cases = [(kind, topic) for kind in (PUBACK, CONNACK) for topic in DEEP_NAMES]
    cases += [(SUBACK, topic) for topic in DEEP_FILTERS]

    def cost_s(tried: list[tuple[int, bytes]]) -> float:
        begun = cpu_s(pid)
        for kind, topic in tried:
            try_topic(port, version, username, kind, topic)
        return (cpu_s(pid) - begun) / len(tried)

    with Witness(hub):
        for kind, topic in cases:
            try_topic(port, version, username, kind, topic)
    anyway = cost_s([(kind, b"") for kind, _ in cases])
    used = cost_s(cases) - anyway

    assert used < 0.005, f"{used * 1000:.2f} ms each, beside {anyway * 1000:.2f} ms"
    assert "Traceback" not in hub.log


def try_topic(port: int, version: int, username: str, kind: int, topic: bytes) -> None:
    """Use a topic in a PUBLISH, a will or a SUBSCRIBE; it must be refused."""
    with RawClient(port, version) as client:
        if kind == CONNACK:
            client.send(client.connect_bytes("deep", username, will=(topic, b"gone", 0, False)))  # type: ignore[arg-type]
        else:
            client.connect("deep", username)
            if kind == PUBACK:
                client.send(client.publish_bytes(topic, b"x", 1, 1))
            else:
                props = b"\0" if client.version == 5 else b""
                client.send_packet(0x82, struct.pack(">H", 1) + props + packets.string(topic) + b"\1")
        assert_refused(client, kind)


def test_deep_topics_without_a_limit_harm_nobody(hub: Hub) -> None:
    """Plan unlimited: 1,024 levels are matched, stored as a route and forgotten, without recursion and in bounded time; one more is refused."""
    port, pid = hub.ports["tcp"], pid_of(hub)
    before, begun = rss_bytes(pid), cpu_s(pid)
    deepest = b"/" * (MOST_LEVELS - 1)
    filters = [deepest, b"+/" * (MOST_LEVELS - 1) + b"+"]
    with Witness(hub):
        for _ in range(10):
            with RawClient(port, 4) as client:
                client.connect("deep", "free/dev1")
                for topic_filter in filters:
                    client.send_packet(0x82, struct.pack(">H", 1) + packets.string(topic_filter) + b"\1")
                    assert client.expect(SUBACK).codes == [1]
                for topic in (deepest, b"a/" * (MOST_LEVELS - 1) + b"a"):
                    client.send(client.publish_bytes(topic, b"x", 1, 1))
                    client.expect(PUBACK)
        used = cpu_s(pid) - begun
        for kind in (PUBACK, CONNACK, SUBACK):
            try_topic(port, 5, "free/dev1", kind, deepest + b"/")

    assert used / 10 < 1.0, f"{used / 10:.2f} s of CPU a round"
    assert rss_bytes(pid) - before < 64 << 20


def assert_refused(client: RawClient, kind: int) -> None:
    """An answer with an error code, or the end of the connection; in 3.1.1 a PUBACK may say success for what is dropped."""
    try:
        found = client.expect(kind, 5)
    except ClosedError:
        final = [one for one in client.received if one.kind == DISCONNECT]
        assert all(one.code >= 0x80 for one in final)
        return
    if kind == SUBACK:
        assert all(code >= 0x80 for code in found.codes)
    elif client.version == 5:
        assert found.code >= 0x80
    else:
        assert found.code or kind == PUBACK  # 3.1.1 has no other word for "dropped"


def user_properties(count: int) -> packets.Properties:
    return [(0x26, (f"name-{number}", "value")) for number in range(count)]


def test_ten_thousand_user_properties_are_capped(hub: Hub) -> None:
    """The time is linear, the hub does not grow over repetitions, in PUBLISH, CONNECT and will."""
    port, pid, rounds = hub.ports["tcp"], pid_of(hub), 20
    with RawClient(port, 5) as sample:
        few, many = (sample.publish_bytes("a", b"x", 1, 1, props=user_properties(count)) for count in (1_000, 10_000))
        connect = sample.connect_bytes("many", "acme/dev1", props=user_properties(10_000))
        will = ("will", b"x", 0, False)
        with_will = sample.connect_bytes("many", "acme/dev1", will=will, will_props=user_properties(10_000))

    def seconds(packet: bytes) -> float:
        begun = cpu_s(pid)
        for _ in range(rounds):
            with RawClient(port, 5) as client:
                client.connect("many", "acme/dev1")
                client.send(packet)
                found = client.next_packet(time.monotonic() + PATIENCE_S)
                assert found.kind in (PUBACK, DISCONNECT)
                assert found.code >= 0x80
        return (cpu_s(pid) - begun) / rounds

    with Witness(hub):
        thousand = seconds(few)
        before = rss_bytes(pid)
        ten_thousand = seconds(many)
        for packet in (connect, with_will) * rounds:
            with RawClient(port, 5) as client:
                client.send(packet)
                assert_answered(client)
        grown = rss_bytes(pid) - before

    assert ten_thousand <= 15 * max(thousand, 0.002)
    assert grown < 16 << 20


def assert_answered(client: RawClient) -> None:
    try:
        client.expect(CONNACK, 5)
    except ClosedError:
        return


def test_one_identifier_again_and_again_is_one_message(hub: Hub) -> None:
    """QoS 2: 20,000 PUBLISHes with the same identifier and no PUBREL are one message, and cost no memory."""
    port, pid = hub.ports["tcp"], pid_of(hub)
    with Witness(hub), RawClient(port, 4) as reader, RawClient(port, 4) as client:
        reader.connect("storm-reader", "acme/dev1")
        reader.subscribe(("storm", 0))
        client.connect("storm", "acme/dev2")
        before = rss_bytes(pid)
        first = client.publish_bytes("storm", b"once", 2, 7)
        again = client.publish_bytes("storm", b"once", 2, 7, dup=True)
        client.send(first)
        client.expect(PUBREC)
        for _ in range(200):
            client.send(again * 100)
            for _ in range(100):
                assert client.expect(PUBREC).packet_id == 7
        grown = rss_bytes(pid) - before
        client.ack(6, 7)
        client.expect(PUBCOMP)
        got = [one for one in reader.fence() if one.kind == PUBLISH]

    assert len(got) == 1
    assert grown < 8 << 20


def test_too_many_open_identifiers_end_the_connection(hub: Hub) -> None:
    """PUBREL never comes: above the hub's Receive Maximum there is DISCONNECT 0x93, and memory stays bounded [MQTT-3.3.4-9]."""
    port, pid = hub.ports["tcp"], pid_of(hub)
    before = rss_bytes(pid)
    with Witness(hub), RawClient(port, 5) as client:
        announced = client.connect("hoarder", "acme/dev1").property(0x21)
        maximum = announced if isinstance(announced, int) else 65535
        sent = 0
        if maximum == 65535:
            ids: list[int] = [*range(1, 65536)]
        else:
            ids = [*range(1, maximum + 2)]
        codes: list[int] = []
        try:
            for start in range(0, len(ids), 500):
                part = ids[start : start + 500]
                client.send(b"".join(client.publish_bytes("hoard", b"x", 2, one) for one in part))
                for _ in part:
                    client.expect(PUBREC)
                    sent += 1
        except (ClosedError, ConnectionError):
            codes = [one.code for one in client.received if one.kind == DISCONNECT]

    if maximum < 65535:
        assert sent <= maximum
        assert codes == [0x93]
    assert rss_bytes(pid) - before < 32 << 20


@pytest.mark.parametrize("version", [4, 5])
def test_pubrel_storms_for_unknown_identifiers_are_answered(hub: Hub, version: int) -> None:
    """Each gets its PUBCOMP, in 5.0 with 0x92; unknown PUBACK, PUBREC and PUBCOMP do no harm."""
    port, pid = hub.ports["tcp"], pid_of(hub)
    with Witness(hub), RawClient(port, version) as client:
        client.connect("storm", "acme/dev1")
        before = rss_bytes(pid)
        for start in range(1, 20_001, 500):
            client.send(b"".join(packets.packet(0x62, struct.pack(">H", one)) for one in range(start, start + 500)))
            for one in range(start, start + 500):
                found = client.expect(PUBCOMP)
                assert found.packet_id == one
                assert found.code == (NOT_FOUND if version == 5 else 0)
        for header in (0x40, 0x50, 0x70):
            client.send(b"".join(packets.packet(header, struct.pack(">H", one)) for one in range(1, 501)))
        grown = rss_bytes(pid) - before
    with RawClient(port, version) as client:
        assert client.connect("storm", "acme/dev1").code == 0

    assert grown < 8 << 20


def test_stalled_subscribers_cost_a_bounded_memory(hub: Hub) -> None:
    """Twenty subscribers stop reading under fan-in: at most 64 MiB more, and healthy subscribers get everything."""
    port, pid = hub.ports["tcp"], pid_of(hub)
    stalled = [stalling(port, number) for number in range(20)]
    payload = b"p" * 8192
    healthy = RawClient(port, 5)
    healthy.connect("healthy", "acme/dev1")
    healthy.subscribe(("flood/#", 1))
    publishers = [RawClient(port, 5) for _ in range(4)]
    for number, one in enumerate(publishers):
        one.connect(f"flood-{number}", "acme/dev2")
    before, peak, sent = rss_bytes(pid), 0, 0

    with Witness(hub):
        while sent < by_day(600, 3000):
            for number, one in enumerate(publishers):
                one.publish(f"flood/{number}", payload, 1, sent // 4 % 65535 + 1)
                sent += 1
            for _ in publishers:
                healthy.ack(PUBACK, healthy.expect(PUBLISH).packet_id)
            peak = max(peak, rss_bytes(pid))

    for client in (healthy, *publishers):
        client.close()
    for sock in stalled:
        sock.close()
    assert peak - before < 64 << 20, f"{(peak - before) >> 20} MiB more after {sent} messages"
    assert "Traceback" not in hub.log


def stalling(port: int, number: int) -> socket.socket:
    """Subscribe at QoS 0 and 1 and never read again; half of them ask for big windows."""
    client = RawClient(port, 5 if number % 2 else 4)
    client.connect(f"stalled-{number}", "acme/dev1")
    client.subscribe(("flood/#", number // 2 % 2))
    assert isinstance(client.stream, socket.socket)
    return client.stream


def test_reconnect_storms_leave_nothing(hub: Hub) -> None:
    """One client id fought over 300 times: one session, everybody else served, no descriptor left."""
    port = hub.ports["tcp"]
    with RawClient(port) as sample:
        connect = sample.connect_bytes("fought-over", "acme/dev1")
    with Witness(hub), Crowd(port) as crowd:
        for _ in range(300):
            crowd.add(connect)
        until(lambda: sum(1 for _ in crowd.wait_closed(0.2)) >= 299, "all but the last are closed")
        assert sum(1 for one in crowd.members if one.closed_s is None) <= 1
