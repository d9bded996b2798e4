"""A PUBREC that refuses frees the identifier, so it leaves when the store has forgotten it: what comes under it next is not taken for a repeat."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.engine.inbound_qos2 import REFUSED, UNSTORED
from iothub.testing.engine import Bench, Client, TopicPolicy, ack, publish

READABLE, UNREADABLE, OWN = 8, 7, 9


def house(*, is_own: bool = False) -> tuple[Bench, Client]:
    """Two receivers, one with a queue that cannot be read, and a publisher; `is_own`: the publisher's is the one."""
    bench = Bench()
    for queue_id in (READABLE, UNREADABLE):
        bench.client(f"s{queue_id}", queue_id=queue_id).subscribe(b"a", 2)
    bench.store.commit_all()
    bench.store.unreadable = {OWN if is_own else UNREADABLE}
    return bench, connected(bench)


def connected(bench: Bench) -> Client:
    return bench.client("p", version=5, queue_id=OWN)


def sent(payload: bytes, packet_id: int = 1, *, dup: bool = False) -> bytes:
    return publish(b"a", payload, 2, packet_id, dup=dup, properties=b"")


def stored(bench: Bench) -> list[bytes]:
    return [record.message.payload for record in bench.store.queue(READABLE).records.values()]


@pytest.mark.parametrize("is_full", [False, True])
def test_refusal_leaves_when_the_identifier_is_durably_free(is_full: bool) -> None:
    """Not all have it (0x83), or nobody has room (0x97); the order of answers stays [MQTT-4.6.0-3]."""
    bench, publisher = house()
    if is_full:
        bench.store.unreadable, bench.store.full = set(), {READABLE, UNREADABLE}
    publisher.send(sent(b"1") + sent(b"2", 2))
    bench.store.commit()

    assert publisher.take() == b""
    assert publisher.session.inbound == {1: REFUSED, 2: REFUSED}
    bench.store.commit()

    code = 0x97 if is_full else 0x83
    assert publisher.take() == ack(0x50, 1, code) + ack(0x50, 2, code)
    assert publisher.session.inbound == {}
    assert publisher.connection.inbound_open == 0
    assert not bench.store.queue(OWN).intents


def test_publisher_whose_own_queue_takes_no_message_is_refused_as_others_are() -> None:
    """It takes the intent all the same, so the refusal waits, and the next message under the identifier is another one."""
    bench, publisher = house()
    bench.store.unreadable, bench.store.blocked = set(), {OWN}
    publisher.subscribe(b"a", 2)

    for payload in (b"1", b"2"):
        publisher.send(sent(payload))
        bench.store.commit()
        assert publisher.take() == b""
        bench.store.commit()
        assert publisher.take() == ack(0x50, 1, 0x83)

    assert stored(bench) == [b"1", b"2"]


def test_message_behind_a_refused_one_survives_a_crash() -> None:
    """What a hub that dies has not forgotten yet, its client has not heard of: it does not use the identifier for another message."""
    bench, publisher = house()
    publisher.send(sent(b"1"))
    bench.store.commit()
    refused = publisher.take()
    bench.store.crash()
    number = b"2" if refused else b"1"

    bench = Bench(store=bench.store)
    for queue_id in (READABLE, UNREADABLE):
        bench.client(f"s{queue_id}", queue_id=queue_id).subscribe(b"a", 2)
    bench.store.unreadable = set()
    again = connected(bench)
    again.send(sent(number, dup=not refused))
    bench.store.commit_all()

    assert again.take() == ack(0x50, 1)
    assert number in stored(bench)
    assert stored(bench) == [b"1"]


def test_refusal_that_nobody_hears_leaves_a_message_for_the_repeat() -> None:
    """Its connection has gone while the store forgot it: a transient receiver does not get it twice."""
    bench, publisher = house()
    live = bench.client("t", receive_maximum=9)
    live.subscribe(b"a", 2)
    publisher.send(sent(b"1"))
    assert live.take()
    bench.store.commit()
    publisher.drop()
    bench.store.commit()
    assert publisher.session.inbound == {1: UNSTORED}
    bench.store.unreadable = set()

    again = connected(bench)
    again.send(sent(b"1", dup=True))
    bench.store.commit_all()

    assert again.take() == ack(0x50, 1)
    assert live.take() == b""


def test_refusal_that_cannot_be_forgotten_ends_the_connection() -> None:
    """The store fails for good there: the repeat of a later connection finishes it."""
    bench, publisher = house()
    publisher.send(sent(b"1"))
    bench.store.commit()
    bench.store.unreadable = {OWN}
    bench.store.commit()

    assert publisher.session.inbound == {1: UNSTORED}
    assert bench.control.closes[-1] == (publisher.connection, Reason.STORE_UNAVAILABLE)
    bench.store.unreadable = set()
    again = connected(bench)
    again.send(sent(b"1", dup=True))
    bench.store.commit_all()
    assert again.take() == ack(0x50, 1)
    assert stored(bench) == [b"1"]


def test_pubrel_before_the_refusal_changes_nothing() -> None:
    bench, publisher = house()
    publisher.send(sent(b"1"))
    bench.store.commit()

    assert publisher.send(ack(0x62, 1)) == b""
    bench.store.commit_all()

    assert publisher.take() == ack(0x50, 1, 0x83)


@pytest.mark.parametrize("is_repeat", [False, True])
def test_refusal_of_a_repeat_says_nothing_of_what_was_recorded_before(is_repeat: bool) -> None:
    """Nothing was recorded now, in an own queue that cannot be read or by a store that fails; but an earlier hub may have."""
    bench, publisher = house(is_own=True)

    publisher.send(sent(b"1", dup=is_repeat))
    bench.store.commit()

    if is_repeat:
        assert bench.control.closes[-1] == (publisher.connection, Reason.STORE_UNAVAILABLE)
        assert publisher.session.inbound == {1: UNSTORED}
        return
    assert publisher.take() == ack(0x50, 1, 0x83)
    bench.store.fails = False
    for packet_id, answer in ((1, ack(0x50, 1, 0x97)), (2, b"\xe0\x01\x97")):
        publisher.send(sent(b"1", packet_id, dup=packet_id == 2))
        bench.store.commit()
        assert publisher.take() == answer


@pytest.mark.parametrize("dup", [False, True])
def test_denied_repeat_is_forgotten_before_its_client_hears_of_it(dup: bool) -> None:
    """An earlier hub may have recorded it, when it was allowed."""
    bench, publisher = house()
    bench.plane.policy_changed(publisher.session, TopicPolicy(set(), set()))
    bench.store.queue(OWN).intents[1] = b"earlier"

    heard = publisher.send(sent(b"1", dup=dup))

    assert heard == (b"" if dup else ack(0x50, 1, 0x87))
    bench.store.commit_all()
    assert publisher.take() == (ack(0x50, 1, 0x87) if dup else b"")
    assert (1 in bench.store.queue(OWN).intents) != dup
