"""Frames out, answers in: matched by sequence number, in any pieces, and given up at the first that does not match."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.hbase.pipeline import PendingCall, Pipeline
from iothub_services.hbase.replies import Scanner
from tests.support.hbase.hbase_gateway import FakeGateway, framed


class Nobody:
    """Receives nothing: these tests look at the pipeline alone."""

    is_over = False

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        raise AssertionError


def pending(call: Call[object]) -> PendingCall:
    return PendingCall(call, Nobody())


@pytest.fixture
def gateway() -> FakeGateway:
    made = FakeGateway()
    made.tables[b"t"] = {}
    return made


@pytest.fixture
def pipeline() -> Pipeline:
    return Pipeline(frame_bytes=1000)


def append(value: bytes) -> PendingCall:
    return pending(calls.append(b"t", b"r", b"f:a", value))


def sent_by(pipeline: Pipeline, asked: PendingCall) -> bytes:
    """Send a call; return its frame whole."""
    return b"".join(pipeline.encode_call(asked))


def answers(gateway: FakeGateway, *frames: bytes) -> bytes:
    return b"".join(framed(gateway.answer(frame[4:])) for frame in frames)


def test_answers_are_matched_with_their_calls(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """In order; what is in flight is counted."""
    asked = [append(b"a"), append(b"b")]
    sent = [sent_by(pipeline, each) for each in asked]
    assert (pipeline.in_flight, pipeline.in_flight_bytes) == (2, sum(map(len, sent)))

    answered = pipeline.receive(answers(gateway, *sent))

    assert [each for each, _ in answered] == asked
    assert [each.call.decode(frame) for each, frame in answered] == [b"a", b"ab"]
    assert (pipeline.in_flight, pipeline.in_flight_bytes, pipeline.broken) == (0, 0, "")


@pytest.mark.parametrize("size", [1, 3, 4, 5, 40])
def test_answers_may_come_in_any_pieces(gateway: FakeGateway, pipeline: Pipeline, size: int) -> None:
    """TCP keeps no boundaries."""
    octets = answers(gateway, *[sent_by(pipeline, append(b"a")) for _ in range(3)])

    found = [each for at in range(0, len(octets), size) for each in pipeline.receive(octets[at : at + size])]

    assert [each.call.decode(frame) for each, frame in found] == [b"a", b"aa", b"aaa"]


def test_answer_out_of_step_breaks_the_connection(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """It is somebody else's data. Those before it are good, nothing after it is read."""
    first, second, third = (sent_by(pipeline, append(b"a")) for _ in range(3))

    answered = pipeline.receive(answers(gateway, first, third, second))

    assert len(answered) == 1
    assert pipeline.broken == "an answer out of step to append"
    assert pipeline.receive(answers(gateway, second)) == []


@pytest.mark.parametrize(
    ("octets", "what"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "above the limit"),
        (framed(b""), "not one to append"),
        (framed(b"\x80\x01\x00\x02" + b"\0\0\0\6getRow" + b"\0\0\0\1\0"), "not one to append"),
        (framed(b"\x80\x01\x00\x01" + b"\0\0\0\6append" + b"\0\0\0\1\0"), "kind 1"),
        (framed(b"x" * 1001), "above the limit of 1000"),
    ],
)
def test_stranger_is_given_up(pipeline: Pipeline, octets: bytes, what: str) -> None:
    """No answer is made of what is none, and no buffer grows for it."""
    sent_by(pipeline, append(b"a"))

    assert pipeline.receive(octets) == []
    assert what in pipeline.broken


def test_answer_that_nobody_asked_for_breaks_the_connection(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """There is no unasked answer in Thrift."""
    sent = sent_by(pipeline, append(b"a"))

    assert len(pipeline.receive(answers(gateway, sent, sent))) == 1
    assert "nobody asked" in pipeline.broken


def test_lost_connection_gives_back_what_was_in_flight(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """And the pipeline begins anew: half an answer of the old connection is forgotten."""
    asked = append(b"a")
    octets = answers(gateway, sent_by(pipeline, asked))
    pipeline.receive(octets[:-3])

    assert list(pipeline.lost()) == [asked]

    sent = sent_by(pipeline, append(b"b"))
    assert len(pipeline.receive(answers(gateway, sent))) == 1


def test_scanner_is_of_the_connection_that_opened_it(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """Of no earlier and no later one, however many calls there are: the numbers on the wire begin again, those of connections do not."""
    pipeline.count = (1 << 31) - 3
    pipeline.lost()
    seen: list[Scanner] = []
    for _ in range(3):
        for _ in range(2):
            asked = pending(calls.open_scan(calls.Scan(b"t")))
            ((_, frame),) = pipeline.receive(answers(gateway, sent_by(pipeline, asked)))
            scanner = asked.call.decode(frame)
            assert isinstance(scanner, Scanner)
            seen.append(scanner)
            assert pipeline.has(scanner)
        assert [pipeline.has(each) for each in seen] == [False] * (len(seen) - 2) + [True] * 2
        pipeline.lost()
        assert not any(pipeline.has(each) for each in seen)

    assert [scanner.opened_by for scanner in seen] == [(1 << 31) - 2, (1 << 31) - 1, 0, 1, 2, 3]


def test_answer_above_the_limit_is_told_from_other_trouble(gateway: FakeGateway, pipeline: Pipeline) -> None:
    """It is the answer to the first call in flight."""
    sent_by(pipeline, append(b"a"))
    pipeline.receive((1001).to_bytes(4, "big"))
    assert (pipeline.is_too_large, "above the limit of 1000" in pipeline.broken) == (True, True)

    pipeline.lost()
    sent_by(pipeline, append(b"a"))
    pipeline.receive(framed(b"HTTP/1.1 400 Bad Request"))
    assert (pipeline.is_too_large, bool(pipeline.broken)) == (False, True)
