"""The order of PUBACK and PUBREC, and PUBREL in each state of its identifier."""

from __future__ import annotations

import pytest

from iothub.engine.answers import Answers
from iothub.engine.emission import Emission
from iothub.engine.inbound_qos2 import FINISHING, ROUTED, STORING
from iothub.engine.state import AckSlot
from iothub.testing.engine import Bench, ack


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
    assert bytes(client.connection.out) == b""
    slots[0].code = 0x97
    answers.flush(client.connection)
    assert bytes(client.connection.out) == ack(0x40, 1, 0x97) + ack(0x40, 2)
    slots[2].code = 0
    answers.flush(client.connection)

    assert bytes(client.connection.out) == ack(0x40, 1, 0x97) + ack(0x40, 2) + ack(0x40, 3) + ack(0x50, 4, 0x87)
    assert client.connection.pending is None
    assert client.connection.inbound_open == 0


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
