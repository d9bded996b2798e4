"""Scans while connections change their gateways: a scanner's number means another scan elsewhere, so it is opened anew; no row is missed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.caller import ThreadCaller
from iothub_services.hbase.calls import Call, Scan
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.connection import LONGEST_PAUSE_S
from iothub_services.hbase.pages import first_rows, pages
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.replies import Row, Scanner
from tests.support.hbase.hbase_gateway import FakeGateway
from tests.unit.hbase.conftest import ONE, TWO, MakeClient, World
from tests.unit.hbase.test_hung_gateways import REST_S, SILENCE_S, STEP_S, pin_of

OURS = [b"row %02d" % number for number in range(40)]
PAGE = 5


@pytest.fixture
def world() -> World:
    """Two gateways to the same tables; at each others scan as well, so a number that is strange there is somebody's."""
    world = World()
    for host in ("one", "two"):
        gateway = world.gateways[host] = FakeGateway()
        gateway.tables[b"t"] = {key: {b"f:a": (b"x", 1)} for key in OURS}
        gateway.tables[b"other"] = {b"strange " + key: {b"f:a": (b"x", 1)} for key in OURS}
        open_others(gateway)
    return world


def open_others(gateway: FakeGateway) -> None:
    """Scans of another hub: numbers 0 to 9."""
    for number in range(10):
        gateway._scanners[number] = (b"other", sorted(gateway.tables[b"other"]), None)
    gateway._opened = -1


def answered(world: World, seconds: float, *hung: str) -> None:
    """Time goes by, connections come about and calls are answered, but at gateways that hang."""
    for wire in world.wires:
        wire.is_hung = wire.host in hung
    for _ in range(round(seconds / STEP_S)):
        world.advance(STEP_S)
        world.accept(*hung)
        for wire in world.accept_probes():
            wire.is_hung = wire.host in hung
        while sum(0 if wire.is_hung else wire.answer() for wire in world.wires):
            pass


def opened(world: World, client: HBaseClient, pin: bytes) -> Scanner:
    call = calls.open_scan(Scan(b"t"))
    answer = client.call(Call(call.verb, call.body, pin))
    answered(world, STEP_S)
    scanner = answer.result
    assert isinstance(scanner, Scanner)
    return scanner


def keys(rows: object) -> list[bytes]:
    assert isinstance(rows, list)
    return [row.key for row in rows]


def error_of(answer: Deferred[list[Row]]) -> BackendError:
    found: list[BackendError] = []
    answer.addErrback(lambda failure: found.append(failure.value))
    (error,) = found
    return error


def verbs(world: World) -> list[str]:
    return [verb for gateway in world.gateways.values() for verb, _ in gateway.seen]


def test_scanner_does_not_outlive_its_connection(world: World, make_client: MakeClient) -> None:
    """While the consumer takes its time the gateway hangs, and the connection moves: what would be somebody else's rows is an error, unsent."""
    client = make_client(TWO)
    world.accept()
    pin = pin_of(client, "one")
    scanner = opened(world, client, pin)
    first = client.call(calls.next_rows(scanner, PAGE, pin))
    answered(world, STEP_S)
    assert keys(first.result) == OURS[:PAGE]

    answered(world, REST_S + SILENCE_S + 1, "one")
    assert client.connection(pin).gateway.host == "two"
    again = client.call(calls.next_rows(scanner, PAGE, pin))
    closed = client.call(calls.close_scan(scanner, pin))

    error = error_of(again)
    assert isinstance(error, LostError)
    assert (error.retryable, error.is_written) == (True, False)
    assert isinstance(error_of(closed), LostError)  # type: ignore[arg-type]
    assert verbs(world).count("scannerGetList") == 1
    assert "scannerClose" not in verbs(world)


def test_scanner_does_not_go_home_with_its_connection(world: World, make_client: MakeClient) -> None:
    """Nothing failed: the gateway of the connection's choice is back, and it was idle between two pages."""
    client = make_client(TWO)
    pin = pin_of(client, "one")
    world.accept("one")
    answered(world, SILENCE_S + STEP_S, "one")
    scanner = opened(world, client, pin)

    answered(world, SILENCE_S + 2 * LONGEST_PAUSE_S + 2 * REST_S + 1)
    assert client.connection(pin).gateway.host == "one"
    again = client.call(calls.next_rows(scanner, PAGE, pin))

    assert isinstance(error_of(again), LostError)
    assert "scannerGetList" not in verbs(world)


def test_scan_call_that_waits_for_a_connection_is_not_sent_on_another(world: World, make_client: MakeClient) -> None:
    """What waits survives a move; with a scanner it does not, and those behind it go out."""
    client = make_client(TWO)
    world.accept()
    pin = pin_of(client, "one")
    scanner = opened(world, client, pin)
    for wire in world.wires:
        if wire.host == "one":
            wire.lose()
    waiting = client.call(calls.next_rows(scanner, PAGE, pin))
    read = client.call(calls.get_row(b"t", OURS[0], pin=pin))
    assert not waiting.called

    answered(world, 1.0)

    assert isinstance(error_of(waiting), LostError)
    assert isinstance(read.result, Row)


def threaded(world: World, client: HBaseClient) -> ThreadCaller:
    """As from another thread."""

    def call_in_reactor(call: Callable[[], None]) -> None:
        call()
        answered(world, 1.0)

    return ThreadCaller(client, call_in_reactor, patience_s=0)


def lose_all(world: World) -> None:
    """Each connection goes to the other gateway, or to the same one again."""
    for wire in list(world.wires):
        if not wire.is_aborted and wire.protocol is not None:
            wire.is_aborted = True
            wire.lose()


@pytest.mark.parametrize("gateways", [ONE, TWO])
def test_scan_goes_on_behind_its_last_row(
    world: World, make_client: MakeClient, gateways: tuple[Endpoint, ...]
) -> None:
    """Whatever happens to the connection between two pages, also with a single gateway, whose other scans have not gone."""
    client = make_client(gateways)
    caller = threaded(world, client)
    world.accept()
    found: list[bytes] = []
    for page in pages(caller, Scan(b"t"), page_bytes=50):
        found += [row.key for row in page]
        lose_all(world)

    assert found == OURS


def test_first_rows_of_many_scans_are_read_though_a_connection_moves(world: World, make_client: MakeClient) -> None:
    """Between opening and reading: those alone are opened again, and the others read once."""
    client = make_client(TWO)
    world.accept()
    moved: list[None] = []

    def call_in_reactor(call: Callable[[], None]) -> None:
        if verbs(world).count("scannerOpenWithScan") == len(scans) and not moved:
            moved.append(None)
            next(wire for wire in world.wires if wire.host == "one").lose()
            answered(world, 1.0)
        call()
        answered(world, 1.0)

    caller = ThreadCaller(client, call_in_reactor, patience_s=0)
    scans = [Scan(b"t", key) for key in OURS[:10]]
    gone = sum(client.connection(scan.pin).gateway.host == "one" for scan in scans)

    found = first_rows(caller, scans, 2)

    assert [keys(rows) for rows in found] == [OURS[at : at + 2] for at in range(10)]
    assert verbs(world).count("scannerOpenWithScan") == len(scans) + gone
    assert 0 < gone < len(scans)
    assert all(len(gateway._scanners) <= 10 + gone for gateway in world.gateways.values())


def test_error_of_one_scan_is_its_own(world: World, make_client: MakeClient) -> None:
    """The others are read and closed."""
    caller = threaded(world, make_client())
    world.accept()

    found, refused, nothing = first_rows(caller, [Scan(b"t"), Scan(b"nope"), Scan(b"t", b"x")], 1)

    assert (keys(found), nothing) == (OURS[:1], [])
    assert isinstance(refused, BackendError)
    assert "TableNotFound" in str(refused)
    assert verbs(world).count("scannerClose") == 2
