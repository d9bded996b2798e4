"""Clients of one worker and clients of another are clients of one hub."""

from __future__ import annotations

import json

import pytest

from tests.support.clients.clients import unique
from tests.support.clients.packets import PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL
from tests.support.hubs.workers import FIRST, SECOND, Workers
from tests.support.waiting import until


def test_clients_come_to_both_workers(workers: Workers) -> None:
    first, second = workers.join(FIRST), workers.join(SECOND)

    counts = {str(row["name"]): int(str(row["clients"])) for row in workers.hub.rows("cluster", "status")}
    assert min(counts[FIRST], counts[SECOND]) >= 1
    first.ping()
    second.ping()


@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize("keep", [False, True], ids=["transient", "persistent"])
def test_message_reaches_a_subscriber_of_the_other_worker(workers: Workers, qos: int, keep: bool) -> None:
    topic = unique()
    reader, writer = workers.join(FIRST, keep=keep), workers.join(SECOND, device="dev2")
    reader.subscribe((topic, qos))

    for number in (1, 2, 3):
        writer.publish(topic, str(number).encode(), qos, number)

    assert reader.payloads(3) == [b"1", b"2", b"3"]
    reader.nothing()


@pytest.mark.parametrize("qos", [1, 2])
def test_messages_of_an_offline_session_are_delivered_at_either_worker(workers: Workers, qos: int) -> None:
    topic, name = unique(), unique()
    reader = workers.join(FIRST, client_id=name, keep=True)
    reader.subscribe((topic, qos))
    reader.disconnect()
    for number, place in ((1, FIRST), (2, SECOND)):
        workers.join(place, device="dev2").publish(topic, place.encode(), qos, number)

    again = workers.join(SECOND, client_id=name, keep=True)

    assert again.connack.session_present
    assert again.payloads(2) == [FIRST.encode(), SECOND.encode()]
    again.nothing()


def test_retained_message_of_one_worker_is_there_at_the_other(workers: Workers) -> None:
    topic = unique()
    writer = workers.join(FIRST)
    writer.publish(topic, b"kept", 1, 1, retain=True)

    reader = workers.join(SECOND, device="dev2")
    reader.subscribe((topic, 1))

    assert reader.payloads() == [b"kept"]


def test_shared_subscription_spans_workers(workers: Workers) -> None:
    """Each message goes to one member, wherever it was published; both get some."""
    topic = unique()
    members = [workers.join(place) for place in (FIRST, SECOND)]
    for member in members:
        member.subscribe((f"$share/g/{topic}", 1))
    writers = [workers.join(place, device="dev2") for place in (FIRST, SECOND)]

    for number in range(1, 11):
        for writer in writers:
            writer.publish(topic, str(number).encode(), 1, number)

    taken: list[bytes] = []

    def all_taken() -> bool:
        for member in members:
            member.ping()
            taken.extend(packet.payload for packet in member.take(len(member.received)))
        return len(taken) >= 20

    until(all_taken, "every message")
    assert sorted(taken) == sorted(str(number).encode() for number in range(1, 11) for _ in writers)


def test_client_that_comes_to_the_other_worker_replaces_itself(workers: Workers) -> None:
    """One connection for each Client Identifier, for transient and persistent sessions."""
    for keep in (False, True):
        name = unique()
        old = workers.join(FIRST, client_id=name, keep=keep)
        moved = [old]
        while workers.worker_of(name) == FIRST:
            moved.append(workers._join(5, name, keep=keep))

        for replaced in moved[:-1]:
            assert [packet.code for packet in replaced.expect_closed()][-1:] == [0x8E]
        moved[-1].ping()


def test_exchange_of_qos_2_is_completed_at_the_other_worker(workers: Workers) -> None:
    """A PUBLISH that was received at one worker and comes again at the other is published once."""
    topic, name = unique(), unique()
    reader = workers.join(SECOND, device="dev2")
    reader.subscribe((topic, 2))
    writer = workers.join(FIRST, client_id=name, keep=True)
    writer.send(writer.publish_bytes(topic, b"once", 2, 7))
    writer.expect(PUBREC)
    writer.drop()

    again = workers.join(SECOND, client_id=name, keep=True)
    again.send(again.publish_bytes(topic, b"once", 2, 7, dup=True))
    again.expect(PUBREC)
    again.ack(PUBREL, 7)
    again.expect(PUBCOMP)

    assert reader.payloads() == [b"once"]
    reader.nothing()


def test_publisher_and_subscriber_of_many_are_all_heard(workers: Workers) -> None:
    """20 subscribers wherever the kernel puts them, 20 messages: each gets each, in order."""
    topic = unique()
    readers = [workers._join(5) for _ in range(20)]
    for reader in readers:
        reader.subscribe((topic, 1))
    writer = workers._join(5, device="dev2")

    for number in range(1, 21):
        writer.send(writer.publish_bytes(topic, str(number).encode(), 1, number))
    for _ in range(20):
        writer.expect(PUBACK)

    for reader in readers:
        assert reader.payloads(20) == [str(number).encode() for number in range(1, 21)]
    assert {workers.worker_of(reader.client_id) for reader in readers} == {FIRST, SECOND}
    assert PUBLISH not in {packet.kind for packet in writer.received}


def test_events_of_one_worker_reach_a_subscriber_of_the_other(workers: Workers) -> None:
    """A connect there, and a refused login there; the events of both workers come once each."""
    workers.hub.run("acl", "allow", "acme", "dev1", "subscribe", "$events/#")
    reader, name = workers.join(FIRST), unique()
    until(lambda: reader.subscribe((f"$events/client/+/{name}", 1)).codes == [1], "the rule is applied")

    workers.join(SECOND, client_id=name, device="dev2").disconnect()

    wanted = [f"$events/client/connected/{name}", f"$events/client/disconnected/{name}"]
    topics: list[str] = []
    while wanted[1] not in topics:
        (packet,) = reader.take(1)
        if (
            json.loads(packet.payload)["node"] == 1
        ):  # of the second worker: the kernel may have sent it to the first one before
            topics.append(packet.topic)
    assert topics == wanted
    reader.nothing()
