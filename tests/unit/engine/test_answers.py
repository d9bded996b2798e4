"""The order of PUBACK and PUBREC, and PUBREL in each state of its identifier."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Reason
from iothub.engine.answers import Answers
from iothub.engine.emission import Emission
from iothub.engine.inbound_qos2 import FINISHING, ROUTED, STORING
from iothub.engine.state import AckSlot
from iothub.testing.engine import Bench, ack, publish


def make_answers(bench: Bench) -> Answers:
    return Answers(bench.plane.turn, Emission(bench.plane.turn))


def test_answers_wait_for_those_before_them() -> None:
    """Whatever becomes known first, the order is that of the PUBLISHes [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
    bench = Bench()
    client = bench.client("c", version=5)
    answers = make_answers(bench)
    slots = [AckSlot(number, 1) for number in (1, 2, 3)]
    client.connection.pending = list(slots)
    client.connection.inbound_open = 3

    answers.answer(client.connection, 2, 4, 0x87)
    slots[1].code = 0
    answers.flush(client.connection)
    answers.release()
    assert bytes(client.connection.out) == b""
    slots[0].code = 0x97
    answers.flush(client.connection)
    answers.release()
    assert bytes(client.connection.out) == ack(0x40, 1, 0x97) + ack(0x40, 2)
    slots[2].code = 0
    answers.flush(client.connection)
    answers.release()

    assert bytes(client.connection.out) == ack(0x40, 1, 0x97) + ack(0x40, 2) + ack(0x40, 3) + ack(0x50, 4, 0x87)
    assert client.connection.pending is None
    assert client.connection.inbound_open == 0


def test_answers_of_one_connection_leave_together_at_the_end_of_the_batch() -> None:
    """One commit answers many PUBLISHes of a client."""
    bench = Bench()
    client = bench.client("c", version=5)
    answers = make_answers(bench)
    slots = [AckSlot(number, 1) for number in (1, 2)]
    client.connection.pending = list(slots)

    for slot in slots:
        slot.code = 0
        answers.flush(client.connection)

    assert (bytes(client.connection.out), bench.plane.turn.answered) == (b"", [client.connection])
    answers.release()
    assert bytes(client.connection.out) == ack(0x40, 1) + ack(0x40, 2)


@pytest.mark.parametrize(
    ("state", "reply", "asked"),
    [(0, ack(0x70, 5, 0x92), 0), (ROUTED, b"", 1), (STORING, b"", 1), (FINISHING, b"", 0)],
)
def test_pubrel_of_a_persistent_session(state: int, reply: bytes, asked: int) -> None:
    """Unknown: answered at once; known: after the removal is durable, asked for once."""
    bench = Bench()
    client = bench.client("c", version=5, queue_id=9)
    bench.settle()
    client.session.inbound = {5: state} if state else None

    make_answers(bench).pubrel(client.connection, client.session, 5)

    assert bytes(client.connection.out) == reply
    assert len(bench.store.waiting) == asked


def test_finished_answers_only_what_was_being_finished() -> None:
    """An identifier that is in use again is left alone."""
    bench = Bench()
    client = bench.client("c", version=5, queue_id=9)
    client.session.inbound = {5: STORING, 6: FINISHING}
    answers = make_answers(bench)

    answers.finished(client.session, 5)
    answers.finished(client.session, 6)

    assert bytes(client.connection.out) == ack(0x70, 6)
    assert client.session.inbound == {5: STORING}


def guarded(bench: Bench) -> list[bool]:
    """Let acknowledgements leave while the list has True at its end."""
    may = [True]
    bench.plane.answers.guard(lambda: may[-1])
    return may


def test_guarded_acknowledgement_leaves_at_the_end_of_the_batch_if_it_may() -> None:
    """What was read while the hub stood still must not be acknowledged as if it had been routed; PINGRESP and deliveries are no promise."""
    bench = Bench()
    client = bench.client("c", version=5)
    may = guarded(bench)
    may.append(False)
    assert (
        client.send(publish(b"t", b"1", 1, 1, properties=b"") + publish(b"t", b"2", 2, 2, properties=b"") + b"\xc0\x00")
        == b"\xd0\x00"
    )

    may.append(True)
    bench.plane.tick()

    assert client.take() == ack(0x40, 1, 0x10) + ack(0x50, 2, 0x10)
    assert client.connection.inbound_open == 1  # PUBREL is to come


def test_guarded_acknowledgements_keep_their_order_with_those_of_the_store() -> None:
    """The first waits for its commit, the second for nothing but the first."""
    bench = Bench()
    keeper = bench.client("k", version=5, queue_id=9)
    keeper.subscribe(b"kept", 1)
    client = bench.client("c", version=5)
    guarded(bench)
    client.send(publish(b"kept", b"1", 1, 1, properties=b"") + publish(b"t", b"2", 1, 2, properties=b""))
    assert client.take() == b""

    bench.settle()

    assert client.take() == ack(0x40, 1) + ack(0x40, 2, 0x10)


def test_acknowledgements_that_wait_leave_when_nobody_guards_them_any_more() -> None:
    bench = Bench()
    client = bench.client("c", version=5)
    guarded(bench).append(False)
    assert client.send(publish(b"t", b"1", 1, 1, properties=b"")) == b""

    bench.plane.answers.guard(None)
    answers = client.send(publish(b"t", b"2", 1, 2, properties=b""))

    assert answers == ack(0x40, 1, 0x10) + ack(0x40, 2, 0x10)
    assert client.connection.pending is None


def test_connection_that_ends_takes_its_waiting_acknowledgements_with_it() -> None:
    bench = Bench()
    client = bench.client("c", version=5)
    may = guarded(bench)
    may.append(False)
    client.send(publish(b"t", b"1", 1, 1, properties=b""))
    bench.plane.close(client.connection, Reason.ADMINISTRATIVE)
    client.take()

    may.append(True)
    bench.plane.tick()

    assert client.take() == b""
