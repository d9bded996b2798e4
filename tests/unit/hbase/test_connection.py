"""Connections: pipelined in order, bounded in flight, silent connections given up, the next gateway tried, nobody left without an outcome."""

from __future__ import annotations

from collections import Counter

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from tests.unit.hbase.conftest import TWO, MakeClient, World

BATCH = 10


def append(value: bytes = b"x", pin: bytes | None = None) -> Call[bytes]:
    return calls.append(b"t", b"r", b"f:a", value, pin)


def errors_of(answers: list[Deferred[bytes]]) -> list[BackendError]:
    found: list[BackendError] = []
    for answer in answers:
        answer.addErrback(lambda failure: found.append(failure.value))
    return found


class Sink:
    """Keeps the outcomes of a batch."""

    def __init__(self) -> None:
        self.is_over = False
        self.outcomes: dict[int, bytes | BackendError] = {}

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        assert index not in self.outcomes
        self.outcomes[index] = outcome


def test_calls_are_pipelined_and_answered_in_order(world: World, make_client: MakeClient) -> None:
    """No call waits for the answer of the one before."""
    client = make_client()
    (wire,) = world.accept()
    answers = [client.call(append(letter)) for letter in (b"a", b"b", b"c")]
    got: list[bytes] = []
    for answer in answers:
        answer.addCallback(got.append)

    assert len(wire.requests) == 3
    world.serve()
    assert got == [b"a", b"ab", b"abc"]


def test_calls_wait_for_the_connection(world: World, make_client: MakeClient) -> None:
    """A hub that starts before HBase does not fail its first calls."""
    client = make_client()
    answer = client.call(append())
    assert (client.is_up, client.problem) == (False, "HBase's gateway one:9090 is not connected yet")

    world.accept()
    world.serve()

    assert (answer.result, client.is_up, client.problem) == (b"x", True, "")


def test_only_so_many_calls_are_in_flight(world: World, make_client: MakeClient) -> None:
    """A batch of any size; what has no room waits, and goes as answers come."""
    client, sink = make_client(in_flight=4), Sink()
    (wire,) = world.accept()

    client.begin([append() for _ in range(BATCH)], sink)

    assert (len(wire.requests), client.connections[0].in_flight) == (4, 4)
    wire.answer(1)
    assert len(wire.requests) == 3  # filled up when half are answered, in one write
    wire.answer(1)
    assert len(wire.requests) == 4
    world.serve()
    assert len(sink.outcomes) == BATCH
    assert client.connections[0].in_flight == 0


def test_only_so_many_bytes_are_in_flight(world: World, make_client: MakeClient) -> None:
    """One call more than the bound at most, and never none."""
    client, sink = make_client(in_flight_bytes=2000, frame_bytes=5000), Sink()
    (wire,) = world.accept()

    client.begin([append(b"x" * 1500), append(b"x" * 1500), append(b"x" * 4000), append()], sink)

    assert len(wire.requests) == 2
    wire.answer(2)
    assert len(wire.requests) == 1
    world.serve()
    assert len(sink.outcomes) == 4


def test_large_batch_does_not_keep_others_waiting(world: World, make_client: MakeClient) -> None:
    """One call of each in turn."""
    client, sink = make_client(in_flight=1), Sink()
    (wire,) = world.accept()
    client.begin([append() for _ in range(BATCH)], sink)
    read = client.call(calls.get_row(b"t", b"r"))

    wire.answer(3)

    assert read.called
    assert len(sink.outcomes) == 2


def test_call_above_the_frame_limit_is_refused_here(world: World, make_client: MakeClient) -> None:
    """The gateway would hang up on all."""
    client = make_client(frame_bytes=1000)
    (wire,) = world.accept()

    (error,) = errors_of([client.call(append(b"x" * 1000))])

    assert "hbase.frame_limit" in str(error)
    assert (error.retryable, error.is_written, wire.requests) == (False, False, [])


def test_silence_ends_the_connection(world: World, make_client: MakeClient) -> None:
    """Its calls may be written, those that waited are certainly not, and a late answer reaches nobody."""
    client = make_client(in_flight=2, timeout_s=10)
    (wire,) = world.accept()
    errors = errors_of([client.call(append()) for _ in range(3)])
    world.advance(9.9)
    assert errors == []

    world.advance(0.2)

    assert wire.is_aborted
    assert [(error.retryable, error.is_written) for error in errors] == [(True, True), (True, True), (True, False)]
    assert "has not answered for 10 s" in str(errors[0])
    world.advance(1)
    (new,) = world.accept()
    later = client.call(append())
    wire.is_aborted = False
    wire.answer()  # what comes late
    assert not later.called
    new.answer()
    assert later.called
    assert len(errors) == 3


def test_slow_is_not_silent(world: World, make_client: MakeClient) -> None:
    """A deep pipeline on a slow server: as long as answers come, nothing is given up."""
    client, sink = make_client(timeout_s=10), Sink()
    (wire,) = world.accept()
    client.begin([append() for _ in range(BATCH)], sink)

    for _ in range(BATCH):
        world.advance(9)
        wire.answer(1)

    assert not wire.is_aborted
    assert not [outcome for outcome in sink.outcomes.values() if isinstance(outcome, BackendError)]


def test_time_begins_with_the_work(world: World, make_client: MakeClient) -> None:
    """An idle hour before a call does not count against it."""
    client = make_client(timeout_s=10)
    (wire,) = world.accept()
    client.call(append())
    wire.answer()
    for _ in range(19):
        world.advance(0.5)
    client.call(append())

    world.advance(9.5)

    assert not wire.is_aborted
    wire.answer()


def test_lost_connection_fails_what_waits_too(world: World, make_client: MakeClient) -> None:
    """Otherwise a later call of a queue would overtake an earlier one that its caller repeats."""
    client = make_client(in_flight=1)
    (wire,) = world.accept()
    errors = errors_of([client.call(append()), client.call(append())])

    wire.lose()

    assert [error.is_written for error in errors] == [True, False]
    assert "one:9090 closed the connection" in str(errors[0])


def test_read_that_was_lost_wrote_nothing(world: World, make_client: MakeClient) -> None:
    """`is_written` is about the tables, not about the wire."""
    client = make_client()
    (wire,) = world.accept()
    answer = client.call(calls.get_row(b"t", b"r"))
    (errors) = errors_of([answer])  # type: ignore[list-item]

    wire.lose()

    assert [error.is_written for error in errors] == [False]


def test_call_made_by_who_is_told_of_a_failure_waits_for_the_next_connection(
    world: World, make_client: MakeClient
) -> None:
    """It must not go out on the connection that is being given up."""
    client = make_client(timeout_s=10)
    (wire,) = world.accept()
    again: list[Deferred[bytes]] = []
    client.call(append()).addErrback(lambda _: again.append(client.call(append())))
    world.advance(10)
    assert wire.is_aborted

    world.advance(1)
    world.accept()
    world.serve()

    assert [answer.result for answer in again] == [b"x"]
    assert len(wire.requests) == 1


def test_unreachable_gateway_fails_calls_in_time(world: World, make_client: MakeClient) -> None:
    """Not written for certain, and with the reason."""
    client = make_client(timeout_s=10)
    errors = errors_of([client.call(append())])

    for _ in range(11):
        world.refuse()
        world.advance(1)

    (error,) = errors
    assert (error.retryable, error.is_written) == (True, False)
    assert "one:9090 cannot be reached (Connection was refused by other side" in str(error)


def test_next_gateway_is_tried_at_once(world: World, make_client: MakeClient) -> None:
    """And the connections begin at different ones."""
    client = make_client(TWO)
    assert [attempt.host for attempt in world.attempts] == ["one", "two"]

    world.refuse()
    world.advance(0.026)

    assert [attempt.host for attempt in world.attempts] == ["two", "one"]
    world.accept()
    assert client.is_up


def test_attempts_become_rarer_and_never_stop(world: World, make_client: MakeClient) -> None:
    """Back within 2 s of the server's return, without a storm before it."""
    make_client()
    pauses = []
    for _ in range(8):
        world.refuse()
        began = world.seconds()
        while not world.attempts:
            world.advance(1 / 64)
        pauses.append(round(world.seconds() - began, 1))

    assert pauses == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]


def test_answer_ends_the_back_off(world: World, make_client: MakeClient) -> None:
    """An accepted connection alone does not: a paused server accepts as well."""
    client = make_client()
    for _ in range(6):
        world.refuse()
        world.advance(2)
    (wire,) = world.accept()
    client.call(append())
    wire.answer()

    wire.lose()
    world.advance(0.1)

    assert len(world.attempts) == 1


def test_stranger_on_the_port_is_hung_up_on(world: World, make_client: MakeClient) -> None:
    """Its answers are nobody's."""
    client = make_client()
    (wire,) = world.accept()
    errors = errors_of([client.call(append())])

    wire.send(b"HTTP/1.1 400 Bad Request\r\n")

    assert wire.is_aborted
    assert "above the limit" in str(errors[0])


def test_call_waits_while_a_stranger_is_on_the_port(world: World, make_client: MakeClient) -> None:
    """It was not sent there; in the end it fails, with the reason."""
    client = make_client(timeout_s=10)
    errors = errors_of([client.call(append())])
    for _ in range(22):
        for wire in world.accept("one"):
            wire.send(b"HTTP/1.1 400 Bad Request\r\n")
        world.advance(0.5)

    assert [(error.is_written, "above the limit" in str(error)) for error in errors] == [(False, True)]


def test_same_pin_same_connection(world: World, make_client: MakeClient) -> None:
    """Pins are spread over all connections; one pin never changes its connection."""
    client = make_client(TWO, each=2)
    pins = [b"queue %d" % number for number in range(100)]

    assert [client.connection(pin) for pin in pins] == [client.connection(pin) for pin in pins]
    assert {client.connections.index(client.connection(pin)) for pin in pins} == {0, 1, 2, 3}


def test_pins_that_are_numbers_take_all_connections_evenly(make_client: MakeClient) -> None:
    client = make_client(each=8)

    used = Counter(client.connection(number) for number in range(16))

    assert list(used.values()) == [2] * 8


def test_close_fails_what_is_open_and_stays_closed(world: World, make_client: MakeClient) -> None:
    """No timer, no connection and no attempt is left behind."""
    client = make_client()
    (wire,) = world.accept()
    errors = errors_of([client.call(append())])

    client.close()
    client.close()
    errors += errors_of([client.call(append())])

    assert wire.is_aborted
    assert [(error.retryable, error.is_written) for error in errors] == [(False, True), (False, False)]
    assert world.getDelayedCalls() == []


def test_close_gives_up_an_attempt(world: World, make_client: MakeClient) -> None:
    """Also one whose end comes later."""
    client = make_client()
    (attempt,) = world.attempts

    client.close()
    attempt.refuse()

    assert attempt.is_given_up
    assert world.getDelayedCalls() == []


def test_batch_that_nobody_waits_for_is_not_sent(world: World, make_client: MakeClient) -> None:
    """Its caller was told that it failed; what goes out later would be a surprise."""
    client, sink = make_client(in_flight=1), Sink()
    (wire,) = world.accept()
    client.begin([append() for _ in range(BATCH)], sink)

    sink.is_over = True
    world.serve()

    assert len(world.gateway.seen) == 1
    assert wire.requests == []


def test_outcome_of_every_call_that_was_sent_is_counted(world: World, make_client: MakeClient) -> None:
    """Answered (also with a refusal), lost, silent: with the time it took."""
    seen: list[tuple[str, str, float]] = []
    client = make_client(on_outcome=lambda *outcome: seen.append(outcome), timeout_s=10)
    (wire,) = world.accept()
    client.call(append())
    world.advance(0.5)
    wire.answer()
    errors_of([client.call(append())])
    wire.lose()
    world.advance(1)
    world.accept()
    errors_of([client.call(append())])
    world.advance(10)

    assert seen == [("append", "answered", 0.5), ("append", "lost", 0.0), ("append", "silent", 10.0)]


def test_refusal_reaches_the_caller_as_an_error(world: World, make_client: MakeClient) -> None:
    """The connection goes on."""
    client = make_client()
    world.accept()
    errors = errors_of([client.call(calls.append(b"nope", b"r", b"f:a", b"x"))])

    world.serve()

    (said,) = [str(error) for error in errors]
    assert said.startswith(
        "HBase refused append: TableNotFoundException: nope; create them: iothub hbase create-tables"
    )
    assert client.is_up


@pytest.mark.parametrize("each", [1, 3])
def test_each_gateway_has_equally_many_connections(world: World, make_client: MakeClient, each: int) -> None:
    """Load is spread from the start."""
    make_client(TWO, each=each)

    assert sorted(attempt.host for attempt in world.attempts) == ["one"] * each + ["two"] * each
