"""Gateways that hang: they accept connections and never answer. Idle connections notice, nothing is lost, and who is back is used again."""

from __future__ import annotations

from typing import cast

from structlog.testing import capture_logs
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.client import GatewayProber, HBaseClient
from iothub_services.hbase.connection import LONGEST_PAUSE_S
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.replies import Scanner
from iothub_services.hbase.wire import Attempt, Bounds, Owner, Wire
from tests.support.hbase.hbase_gateway import framed
from tests.unit.hbase.conftest import ONE, TWO, MakeClient, World
from tests.unit.hbase.test_connection import append, errors_of

REST_S = 3.0
SILENCE_S = 3.0
STEP_S = 0.1


def pass_by(world: World, seconds: float, *hung: str) -> None:
    """Time goes by; whoever tries to connect can, also to gateways that hang."""
    for _ in range(round(seconds / STEP_S)):
        world.advance(STEP_S)
        world.accept(*hung)


def pin_of(client: HBaseClient, host: str) -> bytes:
    """Return a pin whose connection has this gateway."""
    return next(pin for pin in (b"%d" % at for at in range(99)) if client.connection(pin).gateway.host == host)


def test_call_goes_to_the_next_gateway_when_its_own_hangs(world: World, make_client: MakeClient) -> None:
    """It was not sent yet: it neither fails nor is done twice."""
    client = make_client(TWO)
    answers = [client.call(append(pin, pin)) for pin in (b"a", b"b", b"c", b"d")]
    world.accept("one")
    assert not client.is_up

    pass_by(world, SILENCE_S + STEP_S, "one")
    world.serve()

    assert all(answer.called for answer in answers)
    assert errors_of(cast("list[Deferred[bytes]]", answers)) == []
    assert client.is_up
    assert {each.gateway.host for each in client.connections} == {"two"}
    assert [name for name, _ in world.gateway.seen].count("append") == 4


def test_idle_connection_finds_out_that_its_gateway_hangs(world: World, make_client: MakeClient) -> None:
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
    connection = client.connection(b"r")
    wire = next(each for each in world.accept() if each.host == connection.gateway.host)
    wire.is_hung = True
    pass_by(world, REST_S + STEP_S)
    answer = client.call(append())
    assert wire.requests == []

    pass_by(world, SILENCE_S + STEP_S, wire.host)
    world.serve()

    assert answer.result == b"x"


def test_busy_connection_is_not_asked(world: World, make_client: MakeClient) -> None:
    """Its calls are question enough, and a slow one has all of its time."""
    client = make_client()
    (wire,) = world.accept()
    wire.is_hung = True
    answer = client.call(append())

    world.advance(9.9)

    assert (wire.questions, wire.is_aborted) == (1, False)
    wire.answer()
    assert answer.result == b"x"


def test_idle_connection_asks_now_and_then(world: World, make_client: MakeClient) -> None:
    """Not more often than it rests."""
    make_client()
    (wire,) = world.accept()

    pass_by(world, 10 * REST_S)

    assert 9 <= wire.questions - 1 <= 10
    assert not wire.is_aborted


def test_connection_goes_home_when_its_gateway_is_back_and_nothing_is_under_way(
    world: World, make_client: MakeClient
) -> None:
    """A prober asks for what needs HBase; connections return when they are idle, so no call is lost by that."""
    client = make_client(TWO)
    world.accept("one")
    pass_by(world, SILENCE_S + STEP_S, "one")
    assert {each.gateway.host for each in client.connections} == {"two"}

    pass_by(world, LONGEST_PAUSE_S)
    (prober,) = world.accept_probes()
    assert (prober.host, len(prober.requests)) == ("one", 1)
    with capture_logs() as lines:
        prober.answer()
        pass_by(world, 2 * REST_S)

    assert [line["event"] for line in lines] == ["a gateway of HBase answers again"]
    assert prober.is_aborted
    assert [each.gateway.host for each in client.connections] == ["one", "two"]
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


def test_hasty_client_fails_calls_when_every_gateway_was_tried(world: World, make_client: MakeClient) -> None:
    """As a command wants it: each gateway is named with what it did, the last one in the error alone."""
    client = make_client(TWO, is_hasty=True)
    errors: list[BackendError] = errors_of([client.call(append())])

    with capture_logs() as lines:
        world.refuse()
        pass_by(world, 2 * SILENCE_S, "one", "two")

    (error,) = errors
    for trouble in ("one:9090 cannot be reached", "two:9090 cannot be reached"):
        assert trouble in str(error)
    assert (error.retryable, error.is_written, isinstance(error, LostError)) == (True, False, False)
    assert [line["gateway"] for line in lines] == ["one:9090"]


def test_hasty_client_waits_for_a_gateway_that_is_still_to_be_tried(world: World, make_client: MakeClient) -> None:
    """Also longer than a call may be silent: the next gateway may answer."""
    client = make_client(TWO, is_hasty=True, timeout_s=SILENCE_S)
    pin = pin_of(client, "one")
    answer = client.call(append(pin=pin))
    world.accept("one")

    pass_by(world, SILENCE_S + 2 * STEP_S, "one")
    world.serve()

    assert answer.result == b"x"


def test_closed_client_leaves_neither_connection_nor_prober(world: World, make_client: MakeClient) -> None:
    """Also in the middle of a question."""
    client = make_client(TWO)
    world.accept("one", "two")
    pass_by(world, SILENCE_S + LONGEST_PAUSE_S + STEP_S, "one", "two")
    world.accept_probes()

    client.close()

    assert world.getDelayedCalls() == []
    assert all(wire.is_aborted for wire in world.wires)


def test_client_that_is_opened_again_knows_of_no_trouble_and_probes_anew(world: World, make_client: MakeClient) -> None:
    """Otherwise nobody would ever see that a gateway is back."""
    client = make_client(TWO)
    world.accept("one")
    pass_by(world, SILENCE_S + STEP_S, "one")
    assert list(client.gateways.troubles) == [TWO[0]]

    client.close()
    world.probing.clear()
    assert client.gateways.are_up == {"one:9090": 1, "two:9090": 1}
    client.open()
    pass_by(world, 2 * (REST_S + SILENCE_S), "one")
    assert list(client.gateways.troubles) == [TWO[0]]
    pass_by(world, LONGEST_PAUSE_S)
    world.accept_probes()
    world.serve()

    assert list(client.gateways.troubles) == []


def test_slow_region_is_no_trouble_of_the_gateways(world: World, make_client: MakeClient) -> None:
    """They say that they are there. The same one is asked first; when that has not helped, the next one."""
    client = make_client(TWO, timeout_s=10)
    connection = client.connection(b"r")
    hosts = [connection.gateway.host]
    world.accept()
    with capture_logs() as lines:
        for _ in range(3):
            errors: list[BackendError] = errors_of([client.call(append())])
            pass_by(world, 10 + STEP_S)
            assert [isinstance(error, LostError) for error in errors] == [True]
            hosts.append(connection.gateway.host)

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
    host = client.connection(b"r").gateway.host
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
    assert client.connection(b"r").gateway.host != host


def test_answer_above_the_frame_limit_is_an_error_of_its_call(world: World, make_client: MakeClient) -> None:
    """No gateway has a smaller one; those behind it are lost with the connection, and can be asked for again."""
    client = make_client(TWO, frame_bytes=1000)
    world.gateway.tables[b"t"][b"r"] = {b"f:a": (b"x" * 2000, 1)}
    host = client.connection(b"r").gateway.host
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
    assert client.connection(b"r").gateway.host == host
    assert client.is_up


def test_next_gateway_is_one_in_no_trouble() -> None:
    """When all are in trouble, simply the next one: each is tried."""
    three = [Endpoint(host, 9090) for host in ("one", "two", "three")]
    heard: list[tuple[Endpoint, str]] = []
    gateways = Gateways(three, lambda gateway, reason: heard.append((gateway, reason)))
    gateways.failed(three[1], "hangs")
    gateways.failed(three[1], "hangs still")

    assert (gateways.after(0), gateways.after(2)) == (2, 0)
    assert gateways.troubles == {three[1]: "hangs"}
    gateways.failed(three[2], "hangs")
    gateways.failed(three[0], "hangs")
    assert [gateways.after(at) for at in range(3)] == [1, 2, 0]
    assert heard == [(three[1], "hangs"), (three[2], "hangs"), (three[0], "hangs")]
    gateways.answers(three[1])
    assert gateways.after(0) == 1


def test_prober_tries_until_it_is_answered(world: World) -> None:
    """Refused, lost, silent, spoken to by a stranger: each time after a pause."""
    back: list[Endpoint] = []
    bounds = Bounds(probe_timeout_s=SILENCE_S)
    prober = GatewayProber(world, ONE[0], bounds, lambda: 1.0, back.append)
    prober.open()
    for trouble in ("refused", "lost", "silent", "hung", "stranger", ""):
        while not world.attempts:
            world.advance(STEP_S)
        if trouble == "refused":
            world.refuse()
            continue
        (wire,) = world.accept(*(["one"] if trouble == "hung" else []))
        if trouble == "lost":
            wire.lose()
            continue
        if trouble in ("silent", "hung"):
            world.advance(SILENCE_S)
        elif trouble == "stranger":
            wire.send(b"HTTP/1.1 400 Bad Request\r\n")
        else:
            assert back == []
            wire.answer()
            prober.close()
        assert wire.is_aborted

    assert back == [ONE[0]]
    assert world.getDelayedCalls() == []


def test_wire_notifies_its_owner() -> None:
    """What Twisted says, as words."""
    heard: list[tuple[str, object]] = []

    class Deaf:
        def on_connected(self, wire: Wire) -> None:
            heard.append(("connected", wire))

        def on_received(self, wire: Wire, octets: bytes) -> None:
            heard.append(("received", octets))

        def on_lost(self, wire: Wire, reason: str) -> None:
            heard.append(("lost", reason))

        def on_unreachable(self, reason: str) -> None:
            heard.append(("unreachable", reason))

    owner: Owner = Deaf()
    wire = Attempt(owner).buildProtocol(None)
    wire.dataReceived(b"x")
    wire.connectionLost()

    assert heard == [("received", b"x"), ("lost", "closed the connection (Connection was closed cleanly)")]


def test_reads_that_are_asked_again_are_reads_alone() -> None:
    """A scanner is one gateway's; a write may be done."""
    assert calls.get_row(b"t", b"r").verb.is_repeatable
    assert calls.open_scan(calls.Scan(b"t")).verb.is_repeatable
    assert not calls.next_rows(Scanner(1, 1), 1, b"r").verb.is_repeatable
    assert not calls.close_scan(Scanner(1, 1), b"r").verb.is_repeatable
    assert not append().verb.is_repeatable
