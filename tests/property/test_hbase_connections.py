"""Connections under any schedule of calls, answers, losses, silence, hung gateways and refused connections: one outcome each, honest, in order."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.hbase.wire import Bounds
from tests.support.night import by_day
from tests.unit.hbase.conftest import TWO, AskedClient, World

IN_FLIGHT = 3
TIMEOUT_S = 10.0
TABLE = b"t"
PINS = 4
NEVER = 1 << 30

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("single"), st.integers(0, 3)),
        st.tuples(st.just("batch"), st.integers(1, 8)),
        st.tuples(st.just("answer"), st.integers(1, 4)),
        st.tuples(st.just("lose"), st.integers(0, 3)),
        st.tuples(st.just("garbage"), st.integers(0, 3)),
        st.tuples(st.just("accept"), st.just(0)),
        st.tuples(st.just("refuse"), st.just(0)),
        st.tuples(st.just("wait"), st.integers(1, 6)),
        st.tuples(st.just("hang"), st.integers(0, 3)),
        st.tuples(st.just("accept hung"), st.just(0)),
    ),
    max_size=60,
)


def _append(number: int) -> Call[bytes]:
    return calls.append(TABLE, b"pin %d" % (number % PINS), b"f:%d" % number, b"%d" % number)


class _Shifted:
    """Hands the outcomes of a batch on, by the numbers of its calls."""

    is_over = False

    def __init__(self, harness: Harness, first: int) -> None:
        self._harness = harness
        self._first = first

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        number = self._first + index
        is_error = isinstance(outcome, BackendError)
        self._harness.on_outcome(number, outcome if is_error else _append(number).decode(outcome))


class Harness:
    """A client, its world, and everything that was asked with its outcome. Each call appends its own number to its own cell."""

    def __init__(self) -> None:
        self.world = World()
        bounds = Bounds(in_flight=IN_FLIGHT, timeout_s=TIMEOUT_S)
        self.client = AskedClient(self.world, TWO, connections=4, bounds=bounds, jitter=lambda: 0.5)
        self.client.open()
        self.asked = 0
        self.outcomes: dict[int, bytes | BackendError] = {}
        self.batches: list[range] = []

    def on_outcome(self, index: int, outcome: bytes | BackendError) -> None:
        assert index not in self.outcomes
        self.outcomes[index] = outcome

    def ask(self, count: int) -> None:
        """Make a batch."""
        numbers = range(self.asked, self.asked + count)
        self.batches.append(numbers)
        self.asked += count
        self.client.begin([_append(number) for number in numbers], _Shifted(self, numbers.start))

    def ask_one(self) -> None:
        """Make a single call."""
        number, self.asked = self.asked, self.asked + 1
        answer = self.client.call(_append(number))
        answer.addCallbacks(
            lambda value: self.on_outcome(number, value), lambda failure: self.on_outcome(number, failure.value)
        )

    def step(self, kind: str, count: int) -> None:
        wires = [wire for wire in self.world.wires if not wire.is_aborted]
        if kind == "single":
            self.ask_one()
        elif kind == "batch":
            self.ask(count)
        elif kind == "accept":
            self.world.accept()
        elif kind == "accept hung":
            self.world.accept("one")
        elif kind == "refuse":
            self.world.refuse()
        elif kind == "wait":
            self.world.advance(count)
        elif kind == "answer":
            for wire in wires:
                wire.answer(0 if wire.is_hung else count)
        elif count < len(wires) and kind == "hang":
            wires[count].is_hung = True
        elif count < len(wires) and kind == "lose":
            wires[count].is_aborted = True
            wires[count].lose()
        elif count < len(wires):
            wires[count].send(b"HTTP/1.1 400 Bad Request\r\n")

    def sent(self) -> list[int]:
        """Return the numbers of all calls that ever reached a gateway, answered or not, in the order of each wire."""
        waiting = [frame for wire in self.world.wires for frame in wire.requests]
        for frame in waiting:
            self.world.gateway.answer(frame)
        return [int(arguments[1][4][0]) for name, arguments in self.world.gateway.seen if name == "append"]


@settings(max_examples=by_day(75, 150), deadline=None)
@given(STEPS)
def test_connections_keep_their_promises(steps: list[tuple[str, int]]) -> None:
    """Every call has exactly one outcome in the end; "not written" is never a lie; answers are one's own; bounds hold."""
    harness = Harness()
    harness.world.gateway.tables[TABLE] = {}

    for kind, count in steps:
        harness.step(kind, count)
        assert all(each.in_flight <= IN_FLIGHT for each in harness.client.connections)
        assert all(len(wire.requests) <= IN_FLIGHT for wire in harness.world.wires if not wire.is_aborted)
    for _ in range(3):
        harness.world.advance(TIMEOUT_S)

    answered_by_now = len(harness.outcomes)
    harness.client.close()
    assert harness.world.getDelayedCalls() == []
    assert answered_by_now == len(harness.outcomes) == harness.asked, "silence was not ended by its time-out"
    sent = harness.sent()
    assert len(sent) == len(set(sent)), "a call was sent twice"
    for number, outcome in harness.outcomes.items():
        if isinstance(outcome, BackendError):
            assert outcome.is_written == (number in sent)
        else:
            assert outcome == b"%d" % number


@settings(max_examples=by_day(50, 100), deadline=None)
@given(STEPS)
def test_calls_of_a_batch_with_one_pin_keep_their_order(steps: list[tuple[str, int]]) -> None:
    """Whatever happened to them: none is sent before an earlier one, or after one of them has failed with the connection."""
    harness = Harness()
    harness.world.gateway.tables[TABLE] = {}

    for kind, count in steps:
        harness.step(kind, count)
    harness.client.close()

    place = {number: at for at, number in enumerate(harness.sent())}
    for batch in harness.batches:
        for pin in range(PINS):
            places = [place.get(number, NEVER) for number in batch if number % PINS == pin]
            assert places == sorted(places), "one was sent before, or in place of, an earlier one"
