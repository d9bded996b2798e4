"""Gateways that hang: they accept connections and never answer. Idle lanes notice, nothing is lost, and who is back is used again."""

from __future__ import annotations

from typing import cast

from structlog.testing import capture_logs
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.gateway_prober import PAUSE_S, Scout
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.replies import Scanner
from iothub_services.hbase.wire import Attempt, Owner, Wire
from tests.support.hbase_gateway import framed
from tests.unit.hbase.conftest import ONE, TWO, MakeClient, World
from tests.unit.hbase.test_lane import append, errors_of

REST_S = 3.0
SILENCE_S = 3.0
STEP_S = 0.1


def pass_by(world: World, seconds: float, *hung: str) -> None:
    """Time goes by; whoever tries to connect can, also to gateways that hang."""
    for _ in range(round(seconds / STEP_S)):
        world.advance(STEP_S)
        world.accept(*hung)


def test_call_goes_to_the_next_gateway_when_its_own_hangs(world: World, make_client: MakeClient) -> None:
    """It was not sent yet: it neither fails nor is done twice."""
    client = make_client(TWO)
    answers = [client.call(append(pin).pinned(pin)) for pin in (b"a", b"b", b"c", b"d")]
    world.accept("one")
    assert not client.is_up

    pass_by(world, SILENCE_S + STEP_S, "one")
    world.serve()

    assert all(answer.called for answer in answers)
    assert errors_of(cast("list[Deferred[bytes]]", answers)) == []
    assert client.is_up
    assert {lane.gateway.host for lane in client.lanes} == {"two"}
    assert [name for name, _ in world.gateway.seen].count("append") == 4


def test_idle_lane_finds_out_that_its_gateway_hangs(world: World, make_client: MakeClient) -> None:
    """Within seconds, without a call; the address is in the log and in the metric, once."""
    client = make_client(TWO)
    wires = world.accept()
    for wire in wires:
        wire.is_hung = wire.host == "one"

    with capture_logs() as lines:
        pass_by(world, REST_S + SILENCE_S + 3 * STEP_S, "one")

    assert [wire.is_aborted for wire in wires] == [True, False]
    assert client.is_up
    assert [(line["gateway"], line["cause"]) for line in lines] == [("one:9090", "has not answered for 3 s")]
    assert client.gateways.are_up == {"one:9090": 0, "two:9090": 1}


def test_call_that_comes_while_an_idle_gateway_is_asked_waits_for_that(world: World, make_client: MakeClient) -> None:
    """Nothing is sent to a gateway of which nobody knows whether it is there."""
    client = make_client(TWO)
    lane = client.lane(b"r")
    wire = next(each for each in world.accept() if each.host == lane.gateway.host)
    wire.is_hung = True
    pass_by(world, REST_S + STEP_S)
    answer = client.call(append())
    assert wire.requests == []

    pass_by(world, SILENCE_S + STEP_S, wire.host)
    world.serve()

    assert answer.result == b"x"


def test_busy_lane_is_not_asked(world: World, make_client: MakeClient) -> None:
    """Its calls are question enough, and a slow one has all of its time."""
    client = make_client()
    (wire,) = world.accept()
    wire.is_hung = True
    answer = client.call(append())

    world.advance(9.9)

    assert (wire.questions, wire.is_aborted) == (1, False)
    wire.answer()
    assert answer.result == b"x"


def test_idle_lane_asks_now_and_then(world: World, make_client: MakeClient) -> None:
    """Not more often than it rests."""
    make_client()
    (wire,) = world.accept()

    pass_by(world, 10 * REST_S)

    assert 9 <= wire.questions - 1 <= 10
    assert not wire.is_aborted


def test_lane_goes_home_when_its_gateway_is_back_and_nothing_is_under_way(
    world: World, make_client: MakeClient
) -> None:
    """A scout asks for what needs HBase; lanes return when they are idle, so no call is lost by that."""
    client = make_client(TWO)
    world.accept("one")
    pass_by(world, SILENCE_S + STEP_S, "one")
    assert {lane.gateway.host for lane in client.lanes} == {"two"}

    pass_by(world, PAUSE_S)
    (scout,) = world.accept_scouts()
    assert len(scout.requests) == 1
    with capture_logs() as lines:
        scout.answer()
        pass_by(world, 2 * REST_S)

    assert [line["event"] for line in lines] == ["a gateway of HBase answers again"]
    assert scout.is_aborted
    assert [lane.gateway.host for lane in client.lanes] == ["one", "two"]
    assert client.is_up


def test_lost_while_waiting_for_the_answer_keeps_what_waits(world: World, make_client: MakeClient) -> None:
    """A gateway that closes the connection before it has said anything was sent nothing."""
    client = make_client(TWO)
    wires = world.accept("one", "two")
    answer = client.call(append())

    for wire in wires:
        wire.lose()
    pass_by(world, 1.0)
    world.serve()

    assert answer.result == b"x"


def test_gateway_that_says_more_than_it_was_asked_gets_no_call(world: World, make_client: MakeClient) -> None:
    """Nothing that follows could be trusted."""
    client = make_client(TWO)
    answer = client.call(append())
    for wire in world.accept("one", "two"):
        wire.send(2 * framed(world.gateway.answer(wire.asked)))
        assert wire.is_aborted
        assert wire.requests == []

    pass_by(world, 1.0)
    world.serve()

    assert answer.result == b"x"


def test_calls_that_no_gateway_takes_fail_in_time(world: World, make_client: MakeClient) -> None:
    """For certain not written; that another gateway would answer is not to be hoped for."""
    client = make_client(TWO, timeout_s=10)
    errors: list[BackendError] = errors_of([client.call(append())])

    pass_by(world, 10 + STEP_S, "one", "two")

    (error,) = errors
    assert "has not answered for 3 s" in str(error)
    assert (error.retryable, error.is_written, isinstance(error, LostError)) == (True, False, False)


def test_closed_client_leaves_neither_lane_nor_scout(world: World, make_client: MakeClient) -> None:
    """Also in the middle of a question."""
    client = make_client(TWO)
    world.accept("one", "two")
    pass_by(world, SILENCE_S + PAUSE_S + STEP_S, "one", "two")
    world.accept_scouts()

    client.close()

    assert world.getDelayedCalls() == []
    assert all(wire.is_aborted for wire in world.wires)


def test_client_that_is_opened_again_knows_of_no_trouble_and_sends_scouts(
    world: World, make_client: MakeClient
) -> None:
    """Otherwise nobody would ever see that a gateway is back."""
    client = make_client(TWO)
    world.accept("one")
    pass_by(world, SILENCE_S + STEP_S, "one")
    assert list(client.gateways.troubles) == [TWO[0]]

    client.close()
    world.scouting.clear()
    assert client.gateways.are_up == {"one:9090": 1, "two:9090": 1}
    client.open()
    pass_by(world, 2 * (REST_S + SILENCE_S) + PAUSE_S, "one")

    assert list(client.gateways.troubles) == [TWO[0]]
    assert [attempt.host for attempt in world.scouting] == ["one"]


def test_slow_region_is_no_trouble_of_the_gateways(world: World, make_client: MakeClient) -> None:
    """They say that they are there. The same one is asked first; when that has not helped, the next one."""
    client = make_client(TWO, lanes_each=1, timeout_s=10)
    lane = client.lane(b"r")
    hosts = [lane.gateway.host]
    world.accept()
    with capture_logs() as lines:
        for _ in range(3):
            errors: list[BackendError] = errors_of([client.call(append())])
            pass_by(world, 10 + STEP_S)
            assert [isinstance(error, LostError) for error in errors] == [True]
            hosts.append(lane.gateway.host)

    other = "two" if hosts[0] == "one" else "one"
    assert hosts == [hosts[0], hosts[0], other, hosts[0]]
    assert lines == []
    assert client.gateways.are_up == {"one:9090": 1, "two:9090": 1}
    answer = client.call(append())
    pass_by(world, 1.0)
    world.serve()
    assert answer.called


def test_gateway_that_hangs_under_a_call_is_in_trouble_when_it_does_not_say_that_it_is_there(
    world: World, make_client: MakeClient
) -> None:
    """The question on the next connection decides; what waits for that goes to the next gateway."""
    client = make_client(TWO, timeout_s=10)
    host = client.lane(b"r").gateway.host
    world.accept()
    errors: list[BackendError] = errors_of([client.call(append())])
    pass_by(world, 10 + STEP_S, host)
    assert len(errors) == 1
    assert client.gateways.troubles == {}

    answer = client.call(append())
    pass_by(world, SILENCE_S + 1, host)
    world.serve()

    assert [each.host for each in client.gateways.troubles] == [host]
    assert answer.called
    assert client.lane(b"r").gateway.host != host


def test_answer_above_the_frame_limit_is_an_error_of_its_call(world: World, make_client: MakeClient) -> None:
    """No gateway has a smaller one; those behind it are lost with the connection, and can be asked for again."""
    client = make_client(TWO, frame_bytes=1000)
    world.gateway.tables[b"t"][b"r"] = {b"f:a": (b"x" * 2000, 1)}
    host = client.lane(b"r").gateway.host
    world.accept()
    errors: list[BackendError] = errors_of(
        [client.call(call) for call in (calls.get_row(b"t", b"r"), append())]  # type: ignore[misc]
    )

    with capture_logs() as lines:
        world.serve()
        pass_by(world, 1.0)

    assert [isinstance(error, LostError) for error in errors] == [False, True]
    assert all(error.retryable for error in errors)
    assert "above the limit of 1000" in str(errors[0])
    assert (lines, dict(client.gateways.troubles)) == ([], {})
    assert client.lane(b"r").gateway.host == host
    assert client.is_up


def test_next_gateway_is_one_in_no_trouble() -> None:
    """When all are in trouble, simply the next one: each is tried."""
    three = [Endpoint(host, 9090) for host in ("one", "two", "three")]
    told: list[Endpoint] = []
    gateways = Gateways(three, told.append)
    gateways.failed(three[1], "hangs")
    gateways.failed(three[1], "hangs still")

    assert (gateways.after(0), gateways.after(2)) == (2, 0)
    assert gateways.troubles == {three[1]: "hangs"}
    gateways.failed(three[2], "hangs")
    gateways.failed(three[0], "hangs")
    assert [gateways.after(at) for at in range(3)] == [1, 2, 0]
    assert told == [three[1], three[2], three[0]]
    gateways.answers(three[1])
    assert gateways.after(0) == 1


def test_scout_tries_until_it_is_answered(world: World) -> None:
    """Refused, lost, silent, spoken to by a stranger: each time after a pause."""
    back: list[Endpoint] = []
    scout = Scout(world, ONE[0], 1 << 20, SILENCE_S, back.append)
    scout.open()
    for trouble in ("refused", "lost", "silent", "stranger", ""):
        assert world.scouting == []
        world.advance(PAUSE_S)
        if trouble == "refused":
            world.scouting.pop().refuse()
            continue
        (wire,) = world.accept_scouts()
        if trouble == "lost":
            wire.lose()
        elif trouble == "silent":
            world.advance(SILENCE_S)
        elif trouble == "stranger":
            wire.send(b"HTTP/1.1 400 Bad Request\r\n")
        else:
            wire.answer()
        assert wire.is_aborted

    assert back == [ONE[0]]
    assert world.getDelayedCalls() == []


def test_wire_tells_its_owner() -> None:
    """What Twisted says, as words."""
    told: list[tuple[str, object]] = []

    class Deaf:
        def made(self, wire: Wire) -> None:
            told.append(("made", wire))

        def received(self, wire: Wire, octets: bytes) -> None:
            told.append(("received", octets))

        def lost(self, wire: Wire, reason: str) -> None:
            told.append(("lost", reason))

        def missed(self, reason: str) -> None:
            told.append(("missed", reason))

    owner: Owner = Deaf()
    wire = Attempt(owner).buildProtocol(None)
    wire.dataReceived(b"x")
    wire.connectionLost()

    assert told == [("received", b"x"), ("lost", "closed the connection (Connection was closed cleanly)")]


def test_reads_that_are_asked_again_are_reads_alone() -> None:
    """A scanner is one gateway's; a write may be done."""
    assert calls.get_row(b"t", b"r").verb.is_repeatable
    assert calls.open_scan(calls.Scan(b"t")).verb.is_repeatable
    assert not calls.next_rows(Scanner(1, 1), 1, b"r").verb.is_repeatable
    assert not calls.close_scan(Scanner(1, 1), b"r").verb.is_repeatable
    assert not append().verb.is_repeatable
