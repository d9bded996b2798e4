"""Limits that a PUBLISH can hit, each driven to half above it at every QoS where the reaction differs."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from tests.support.clients.packets import DISCONNECT, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.quota_harness import Tenancy, closing_packets, publish_until_refused

Make = Callable[..., Tenancy]
SIZE = 100  # bytes of a PUBLISH of these tests


def received(client: RawClient) -> list[bytes]:
    """The payloads of the PUBLISHes that are here when the hub has answered twice."""
    client.ping()
    client.ping()
    found = [packet.payload for packet in client.received if packet.kind == PUBLISH]
    client.received.clear()
    return found


def sized(client: RawClient, topic: str, size: int = SIZE) -> bytes:
    """A payload that makes the QoS 1 packet `size` bytes long."""
    return b"x" * (size - len(client.publish_bytes(topic, b"", 1, 1)))


# --- bounds of the packet


@pytest.mark.parametrize(
    ("limit", "allowed", "topic"),
    [
        ("topic_levels=4", "a/b/c/d", "a/b/c/d/e/f"),
        ("topic_levels=unlimited", "/" * 1023, "/" * 1024),
        ("topic_bytes=20", "x" * 20, "x" * 30),
    ],
)
def test_topic_limits(tenant: Make, version: int, limit: str, allowed: str, topic: str) -> None:
    """Close, or DISCONNECT 0x90; a topic that was fine before the limit came is refused from then on."""
    quota = limit.partition("=")[0]
    here = tenant(limit)
    client = here.connect(version)
    client.publish(allowed, b"x", 1)

    client.send(client.publish_bytes(topic, b"x", 1, 2))

    assert closing_packets(client) == ([] if version == 4 else [(DISCONNECT, 0x90)])
    assert here.refused(quota) == 1
    _, connack = here.ask(version, will=(topic, b"x", 0, False))
    assert (connack.code if connack else None) == (None if version == 4 else 0x90)
    assert here.refused(quota) == 2


def test_topic_limit_holds_for_topics_in_use(tenant: Make, version: int) -> None:
    """A cached route is no permission."""
    here = tenant()
    client = here.connect(version)
    client.publish("a/b/c/d", b"x", 1)

    here.set("topic_levels=2")

    client.send(client.publish_bytes("a/b/c/d", b"x", 1, 2))
    assert closing_packets(client) == ([] if version == 4 else [(DISCONNECT, 0x90)])


# --- fan-out


@pytest.mark.parametrize("limit", ["fanout=4", "fanout_bytes=400"])
def test_fanout(tenant: Make, version: int, limit: str) -> None:
    """Deliveries above it are dropped and counted; the publisher is told nothing."""
    here = tenant(limit)
    subscribers = [here.connect(version) for _ in range(6)]
    for subscriber in subscribers:
        subscriber.subscribe(("t", 0))

    answer = here.connect(version).publish("t", b"x" * 100, 1)

    assert answer is not None
    assert answer.code == 0
    assert sum(len(received(subscriber)) for subscriber in subscribers) == 4
    assert (here.refused(limit.partition("=")[0]), here.dropped("fanout")) == (2, 2)


def persistent(here: Tenancy, version: int, name: str = "kept", topic: str = "t") -> None:
    """A session that is kept, subscribed and gone."""
    client = here.keep(version, name, device="dev2")
    client.subscribe((topic, 1))
    client.disconnect()


@pytest.mark.parametrize("window", ["1m", "1h"])
def test_persistent_fanout(tenant: Make, version: int, window: str) -> None:
    """Close, or PUBACK 0x97: at once, when waiting would take too long. QoS 0 is not stored and passes."""
    here = tenant(f"persistent_fanout=4/{window}")
    persistent(here, version)
    client = here.connect(version)

    assert publish_until_refused(client, "t", 6, 1) == ([0] * 4 + [-1] if version == 4 else [0] * 4 + [0x97] * 2)
    assert here.refused("persistent_fanout") == (1 if version == 4 else 2)
    assert here.used("queued_messages") == 4
    other = here.connect(version)
    other.publish("t", b"x", 0)
    other.ping()


# --- rates: what happens when waiting would take longer than a publisher may be left unread


@pytest.mark.parametrize(
    "quota", ["publish_messages", "device_publish_messages", "publish_bytes", "device_publish_bytes"]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_inbound_rate_beyond_the_pause(tenant: Make, version: int, quota: str, qos: int) -> None:
    """3.x: close. 5.0: QoS 1 and 2 are answered 0x97 and the connection stays, QoS 0 ends it with 0x96."""
    here = tenant(f"{quota}={4 * SIZE if quota.endswith('bytes') else 4}/1m")
    client, watcher = here.connect(version), here.connect(version, device="dev2")
    watcher.subscribe(("t", 0))
    payload = sized(client, "t", SIZE + (0 if qos else 2))

    codes: list[int] = []
    with suppress(OSError):  # closed while we wrote
        codes = publish_until_refused(client, "t", 6, qos, payload)
    if qos == 0:
        assert closing_packets(client) == ([] if version == 4 else [(DISCONNECT, 0x96)])
    else:
        assert codes == ([0] * 4 + [-1] if version == 4 else [0] * 4 + [0x97] * 2)
    assert len(received(watcher)) == 4
    assert here.refused(quota) == here.dropped("quota") == (1 if qos == 0 or version == 4 else 2)


@pytest.mark.parametrize(
    "quota", ["publish_messages", "device_publish_messages", "publish_bytes", "device_publish_bytes"]
)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_calendar_window(tenant: Make, version: int, quota: str, qos: int) -> None:
    """QoS 0 is dropped; QoS 1 and 2: 3.x closes, 5.0 answers 0x97."""
    here = tenant(f"{quota}={4 * SIZE if quota.endswith('bytes') else 4}/1d")
    client, watcher = here.connect(version), here.connect(version, device="dev2")
    watcher.subscribe(("t", 0))
    payload = sized(client, "t", SIZE + (0 if qos else 2))

    codes = publish_until_refused(client, "t", 6, qos, payload)

    if qos == 0:
        client.ping()  # still there
    else:
        assert codes == ([0] * 4 + [-1] if version == 4 else [0] * 4 + [0x97] * 2)
    assert len(received(watcher)) == 4
    assert here.refused(quota) == here.dropped("quota") == (1 if qos and version == 4 else 2)
    other = here.connect(version, device="dev2")
    answer = publish_until_refused(other, "t", 1, 1)
    assert answer == ([0] if quota.startswith("device") else [-1] if version == 4 else [0x97])


def test_two_windows_of_one_name(tenant: Make) -> None:
    """Each holds by itself: what the short one refuses costs nothing of the day."""
    here = tenant("publish_messages=4/1m,6/1d")
    client = here.connect(5)
    client.subscribe(("t", 0))

    assert publish_until_refused(client, "t", 8, 1) == [0] * 4 + [0x97] * 4
    here.set("publish_messages=100/1m,6/1d")
    assert publish_until_refused(client, "t", 4, 1) == [0] * 2 + [0x97] * 2


def test_refused_qos2_identifier_is_free_again(tenant: Make) -> None:
    """PUBREC 0x97 ends the exchange [MQTT-4.3.3-9]."""
    here = tenant("publish_messages=1/1d")
    client = here.connect(5)
    client.subscribe(("t", 0))

    assert publish_until_refused(client, "t", 1, 2) == [0]
    for _ in range(3):
        answer = client.publish("t", b"x", 2, 7)
        assert answer is not None
        assert answer.code == 0x97
    assert here.refused("publish_messages") == 3


# --- outbound


@pytest.mark.parametrize(
    "quota", ["deliver_messages", "device_deliver_messages", "deliver_bytes", "device_deliver_bytes"]
)
def test_outbound_rate_delivers_later(tenant: Make, version: int, quota: str) -> None:
    """Nothing is refused: the backlog waits, in order, and leaves when the limit is lifted."""
    here = tenant(f"{quota}={4 * 101 if quota.endswith('bytes') else 4}/1m")
    subscriber, publisher = here.connect(version), here.connect(version, device="dev2")
    subscriber.subscribe(("t", 1))

    for number in range(6):
        publisher.publish("t", b"%100d" % number, number % 2, number + 1)

    assert [int(payload) for payload in received(subscriber)] == [0, 1, 2, 3]
    here.set(f"{quota}=unlimited")
    assert [int(subscriber.expect(PUBLISH).payload) for _ in range(2)] == [4, 5]
    assert here.refused(quota) == 0


# --- retained


def test_retained_messages(tenant: Make, version: int) -> None:
    """Delivered live, not retained; 5.0 is told 0x97. The same topic again needs no place, an empty payload makes one."""
    here = tenant("retained_messages=4")
    client, watcher = here.connect(version), here.connect(version)
    watcher.subscribe(("#", 0))
    last = 0 if version == 4 else 0x97

    def retain(topic: str, payload: bytes = b"x") -> int:
        answer = client.publish(topic, payload, 1, retain=True)
        assert answer is not None
        return answer.code

    assert [retain(topic) for topic in "abcdef"] == [0] * 4 + [last] * 2
    assert len(received(watcher)) == 6
    assert here.refused("retained_messages") == 2
    assert retain("a", b"again") == 0
    late = here.connect(version)
    late.subscribe(("#", 0))
    here.comes_to_use("retained_messages", 4)
    assert sorted(late.expect(PUBLISH).payload for _ in range(4)) == [b"again", b"x", b"x", b"x"]
    assert received(late) == []
    retain("a", b"")
    here.comes_to_use("retained_messages", 3)
    assert [retain(topic) for topic in "ef"] == [0, last]
    client.publish("g", b"x", 0, retain=True)
    assert len(received(watcher)) == 5
    assert here.refused("retained_messages") == 4


def test_retained_bytes(tenant: Make, version: int) -> None:
    """What is stored counts, the record's head too: so four of 1000 bytes fit into 5000, and no fifth one."""
    here = tenant("retained_bytes=5000")
    client = here.connect(version)

    codes = []
    for topic in "abcdef":
        answer = client.publish(topic, b"x" * 1000, 1, retain=True)
        assert answer is not None
        codes.append(answer.code)

    assert codes == [0] * 4 + [0 if version == 4 else 0x97] * 2
    assert here.refused("retained_bytes") == 2
    assert 4000 < here.used("retained_bytes") <= 5000
    assert here.used("retained_messages") == 4


# --- queues


def answers(client: RawClient, count: int, payload: bytes = b"x") -> list[int]:
    return publish_until_refused(client, "t", count, 1, payload)


def assert_queued(here: Tenancy, version: int, count: int) -> None:
    """So many messages, and no more, does a kept session get when it comes back."""
    client = here.keep(version, "kept", device="dev2")
    for _ in range(count):
        client.ack(4, client.expect(PUBLISH).packet_id)
    assert client.fence() + client.fence() == []


@pytest.mark.parametrize(
    "limit", ["queued_messages=4", "session_queued_messages=4", "queued_bytes=5000", "session_queued_bytes=5000"]
)
def test_queue_is_full(tenant: Make, version: int, limit: str) -> None:
    """The newest is dropped and counted by reason; 5.0 is told 0x97, since no queue took it; 3.x and everybody else live on."""
    here = tenant(limit)
    persistent(here, version)
    client = here.connect(version)

    assert answers(client, 6, b"x" * 1000) == [0] * 4 + [0 if version == 4 else 0x97] * 2
    assert here.dropped("queue_full") == 2
    assert here.refused(limit.partition("=")[0]) == 2
    assert here.used("queued_messages") == 4
    assert_queued(here, version, 4)
    here.comes_to_use("queued_messages", 0)
    assert answers(client, 1) == [0]


def test_full_queue_is_no_refusal_while_another_takes_it(tenant: Make) -> None:
    """0x97 only if every queue refused."""
    here = tenant()
    persistent(here, 5, "kept")
    here.set("session_queued_messages=2", device="dev2")
    other = here.keep(5, "other", device="dev1")
    other.subscribe(("t", 1))
    other.disconnect()

    assert answers(here.connect(5), 4) == [0] * 4
    assert here.dropped("queue_full") == 2
    assert_queued(here, 5, 2)


def test_changed_queue_limits_reach_queues_that_are_there(tenant: Make, version: int) -> None:
    """Offline sessions too: the tenant's and the device's, lower and higher."""
    here = tenant()
    persistent(here, version)
    client = here.connect(version)
    refused = 0 if version == 4 else 0x97

    here.set("session_queued_messages=2")
    assert answers(client, 3) == [0, 0, refused]
    here.set("session_queued_messages=3", device="dev2")
    assert answers(client, 2) == [0, refused]
    here.set("queued_messages=1")
    assert answers(client, 1) == [refused]
    here.set("queued_messages=unlimited", "session_queued_messages=1")
    assert answers(client, 1) == [refused]
    here.set("session_queued_messages=unlimited", device="dev2")
    assert answers(client, 2) == [0, 0]
    assert_queued(here, version, 5)


def test_closed_by_a_quota_is_an_abnormal_end(tenant: Make, version: int) -> None:
    """The Will of a publisher that was closed is published."""
    here = tenant("packet_bytes=300")
    watcher = here.connect(version)
    watcher.subscribe(("will", 0))
    client = here.connect(version, will=("will", b"gone", 0, False))

    client.send(client.publish_bytes("t", b"x" * 400))

    client.expect_closed()
    assert watcher.expect(PUBLISH).payload == b"gone"
