"""A PUBREC that refuses frees the identifier, so it leaves when the store has forgotten it: what comes under it next is not taken for a repeat."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.engine.inbound_qos2 import REFUSED, UNSTORED
from iothub.testing.engine import Bench, Client, TopicPolicy, ack, publish

RECEIVER, OWN = 8, 9


def harness() -> tuple[Bench, Client]:
    """A receiver whose queue is full, and a publisher."""
    bench = Bench()
    bench.client("s", queue_id=RECEIVER).subscribe(b"a", 2)
    bench.store.commit_all()
    bench.store.full = {RECEIVER}
    return bench, connected(bench)


def connected(bench: Bench) -> Client:
    return bench.client("p", version=5, queue_id=OWN)


def sent(payload: bytes, packet_id: int = 1, *, dup: bool = False) -> bytes:
    return publish(b"a", payload, 2, packet_id, dup=dup, properties=b"")


def test_refusal_leaves_when_the_identifier_is_durably_free() -> None:
    """Nobody has room (0x97); the order of answers stays [MQTT-4.6.0-3]."""
    bench, publisher = harness()
    publisher.send(sent(b"1") + sent(b"2", 2))
    bench.store.commit()

    assert publisher.take() == b""
    assert publisher.session.inbound == {1: REFUSED, 2: REFUSED}
    bench.store.commit()

    assert publisher.take() == ack(0x50, 1, 0x97) + ack(0x50, 2, 0x97)
    assert publisher.session.inbound == {}
    assert publisher.connection.inbound_open == 0
    assert not bench.store.queue(OWN).inbound


def test_refusal_that_nobody_hears_leaves_a_message_for_the_repeat() -> None:
    """Its connection has gone while the store forgot it: a transient receiver does not get it twice."""
    bench, publisher = harness()
    publisher.send(sent(b"1"))
    bench.store.commit()
    publisher.drop()
    bench.store.commit()
    assert publisher.session.inbound == {1: UNSTORED}
    live = bench.client("t", receive_maximum=9)
    live.subscribe(b"a", 2)
    bench.store.full = set()

    again = connected(bench)
    again.send(sent(b"1", dup=True))
    bench.store.commit_all()

    assert again.take() == ack(0x50, 1)
    assert live.take() == b""
    assert bench.store.queue(RECEIVER).tail == 1


def test_pubrel_before_the_refusal_changes_nothing() -> None:
    bench, publisher = harness()
    publisher.send(sent(b"1"))
    bench.store.commit()

    assert publisher.send(ack(0x62, 1)) == b""
    bench.store.commit_all()

    assert publisher.take() == ack(0x50, 1, 0x97)


@pytest.mark.parametrize("is_repeat", [False, True])
def test_refusal_of_a_repeat_says_nothing_of_what_was_recorded_before(is_repeat: bool) -> None:
    """Nothing was recorded now, by a store that fails; but an earlier hub may have."""
    bench, publisher = harness()
    bench.store.fails = False

    publisher.send(sent(b"1", dup=is_repeat))
    bench.store.commit()

    if is_repeat:
        assert bench.control.closes[-1] == (publisher.connection, Reason.STORE_UNAVAILABLE)
        assert publisher.session.inbound == {1: UNSTORED}
    else:
        assert publisher.take() == ack(0x50, 1, 0x97)
        assert publisher.session.inbound == {}


@pytest.mark.parametrize("dup", [False, True])
def test_denied_repeat_is_forgotten_before_its_client_hears_of_it(dup: bool) -> None:
    """An earlier hub may have recorded it, when it was allowed."""
    bench, publisher = harness()
    bench.plane.policy_changed(publisher.session, TopicPolicy(set(), set()))
    bench.store.queue(OWN).intents[1] = b"earlier"

    heard = publisher.send(sent(b"1", dup=dup))

    assert heard == (b"" if dup else ack(0x50, 1, 0x87))
    bench.store.commit_all()
    assert publisher.take() == (ack(0x50, 1, 0x87) if dup else b"")
    assert (1 in bench.store.queue(OWN).intents) != dup
