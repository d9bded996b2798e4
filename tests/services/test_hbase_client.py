"""The client of HBase on the real one: every verb, order, bounds, a paused server, a killed one, the other gateway."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller, DirectCaller, ThreadCaller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.pages import pages
from iothub_services.hbase.refusals import HBaseError
from iothub_services.hbase.replies import Cell
from iothub_services.hbase.wire import Bounds
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase import table_calls

APPENDS = 10_000
ROWS = 100
WRITES = 5_000
IN_FLIGHT = 64
RETURN_S = 10.0  # from the server's first answer to ours


class Peak:
    """The most calls that were ever in flight on a connection."""

    def __init__(self) -> None:
        self.most = 0
        self.sent_count = 0
        self.client: HBaseClient | None = None

    def on_outcome(self, verb: str, result: str, seconds: float) -> None:
        assert self.client is not None
        self.sent_count += 1
        self.most = max(self.most, *(each.in_flight for each in self.client.connections))


@contextmanager
def hbase(
    ports: list[int], bounds: Bounds | None = None, peak: Peak | None = None
) -> Iterator[tuple[ThreadCaller, HBaseClient]]:
    """Run a client on a reactor of its own."""
    with ReactorThread() as reactor:
        gateways = [Endpoint(HOST, port) for port in ports]
        count = (lambda _verb, _result, _seconds: None) if peak is None else peak.on_outcome
        client = HBaseClient(reactor.reactor, gateways, connections=2 * len(gateways), bounds=bounds, on_outcome=count)
        if peak is not None:
            peak.client = client
        reactor.call(client.open)
        try:
            yield ThreadCaller(client, reactor.reactor.callFromThread), client
        finally:
            reactor.call(client.close)


def scanned(caller: Caller, scan: Scan) -> list[bytes]:
    """Return the keys of a scan's rows."""
    return [row.key for page in pages(caller, scan) for row in page]


def until(is_true: Callable[[], bool], limit_s: float) -> float:
    """Wait; return how long it took."""
    began = time.monotonic()
    while not is_true():
        assert time.monotonic() - began < limit_s
        time.sleep(0.02)
    return time.monotonic() - began


def test_every_verb_does_what_it_says(services: Services, table: bytes) -> None:
    """Through connections and threads, against the real gateway."""
    with hbase([services.ports.thrift]) as (caller, _):
        assert caller.call(calls.append(table, b"r", b"f:a", b"x")) == b"x"
        assert caller.call(calls.append(table, b"r", b"f:a", b"y")) == b"xy"
        claim = calls.check_and_put(table, b"slot", b"f:a", None, (b"f:a", b"1"))
        assert caller.call_many([claim, claim]) == [True, False]
        assert caller.call(calls.check_and_put(table, b"slot", b"f:a", b"1", (b"f:a", b"2")))
        assert caller.call(calls.increment(table, b"n", b"f:n", 41)) == 41
        caller.call(calls.mutate_row(table, b"s1", {b"f:a": b"1", b"f:b": b"2"}, timestamp=77))
        caller.call(calls.mutate_row(table, b"s1", {}, (b"f:b",), timestamp=78))
        caller.call(calls.mutate_rows(table, [Mutation(b"s%d" % number, {b"f:a": b"v"}) for number in (2, 3, 4)]))
        row = caller.call(calls.get_row(table, b"s1", (b"f",), {b"unknown": b"attribute"}))
        assert row is not None
        assert row.cells == {b"f:a": Cell(b"1", 77)}
        assert [each.key for each in caller.call(calls.get_rows(table, [b"s2", b"nobody", b"s4"], (b"f:a",)))] == [
            b"s2",
            b"s4",
        ]
        assert scanned(caller, Scan(table, b"s1", b"s4")) == [b"s1", b"s2", b"s3"]
        filtered = Scan(table, columns=(b"f:a",), filter_text=b"PrefixFilter('s')")
        assert scanned(caller, filtered)[0] == b"s1"
        assert table in caller.call(calls.table_names())
        assert [family.versions for family in caller.call(calls.families(table))] == [1]
        assert [region.start for region in caller.call(calls.regions(table))] == [b""]
        assert caller.call(calls.is_enabled(table))


def test_refusals_have_their_classes(services: Services, table: bytes) -> None:
    """As the unit tests believe."""
    asked = {
        "TableNotFoundException": calls.append(b"no_such_table", b"r", b"f:a", b"x"),
        "NoSuchColumnFamilyException": calls.append(table, b"r", b"zz:a", b"x"),
        "DoNotRetryIOException": calls.append(table, b"r", b"f:a", b"x" * (11 << 20)),
        "IllegalArgument": calls.mutate_row(table, b"", {b"f:a": b"x"}),
        "AlreadyExists": table_calls.create_table(table, (b"f",)),
    }
    with hbase([services.ports.thrift]) as (caller, _):
        results = caller.call_many(list(asked.values()))

    errors = [result for result in results if isinstance(result, HBaseError)]
    assert [error.java_class for error in errors] == list(asked)
    assert {(error.retryable, error.is_written) for error in errors} == {(False, False)}


def test_ten_thousand_appends_stay_in_order_and_within_bounds(services: Services, table: bytes) -> None:
    """One batch from one thread: every append of a row sees those before it, and no connection has more in flight than it may."""
    peak = Peak()
    letters = [
        calls.append(table, b"row %03d" % (number % ROWS), b"f:%d" % (number // 1000), b"x")
        for number in range(APPENDS)
    ]
    with hbase([services.ports.thrift], Bounds(in_flight=IN_FLIGHT, timeout_s=30), peak) as (caller, _):
        began, cpu = time.monotonic(), time.process_time()
        results = caller.call_many(letters)
        took_s, cpu_us = time.monotonic() - began, (time.process_time() - cpu) / APPENDS * 1e6

    assert results == [b"x" * (number % 1000 // ROWS + 1) for number in range(APPENDS)]
    assert peak.most <= IN_FLIGHT
    assert peak.sent_count == APPENDS
    print(f"{APPENDS / took_s:.0f} appends/s, {cpu_us:.1f} us of CPU each in the client")


def test_paused_server_ends_calls_in_time_and_its_connections_for_good(services: Services, table: bytes) -> None:
    """SIGSTOP: the kernel takes connections, nobody answers. Afterwards it goes on, on new connections."""
    with hbase([services.ports.thrift], Bounds(timeout_s=1.0, in_flight=4)) as (caller, client):
        caller.call(calls.append(table, b"r", b"f:a", b"x"))
        services.pause("hbase")
        began = time.monotonic()
        results = caller.call_many([calls.append(table, b"r", b"f:a", b"x") for _ in range(8)])
        took_s = time.monotonic() - began
        services.resume("hbase")
        until(lambda: client.is_up, RETURN_S)
        until(lambda: not isinstance(caller.call_many([calls.get_row(table, b"r")])[0], BackendError), RETURN_S)

    errors = [result for result in results if isinstance(result, BackendError)]
    assert [error.is_written for error in errors] == [True] * 4 + [False] * 4
    assert all(error.retryable for error in errors)
    assert took_s < 5


def test_killed_server_loses_no_answer_and_is_found_again(services: Services, table: bytes) -> None:
    """Kill -9 in the middle of writing; the same client goes on when it is back."""
    peak = Peak()

    def kill() -> None:
        until(lambda: peak.sent_count > WRITES // 10, RETURN_S)
        services.kill("hbase")

    with hbase([services.ports.thrift], Bounds(timeout_s=5.0), peak) as (caller, _):
        rows = [b"%05d" % number for number in range(WRITES)]
        killer = Thread(target=kill)
        killer.start()
        results = caller.call_many([calls.mutate_row(table, row, {b"f:a": row}) for row in rows])
        killer.join()
        answered = [row for row, result in zip(rows, results, strict=True) if result is None]
        errors = [result for result in results if isinstance(result, BackendError)]
        services.up()
        back_s = until(
            lambda: not isinstance(caller.call_many([calls.get_row(table, rows[0])])[0], BackendError), RETURN_S
        )
        stored = set(scanned(caller, Scan(table)))

    uncertain = sum(error.is_written for error in errors)
    assert answered
    assert 0 < uncertain <= 2 * IN_FLIGHT
    assert set(answered) <= stored
    assert len(stored) <= len(answered) + uncertain
    print(f"{len(answered)} answered, {uncertain} uncertain; back {back_s:.2f} s after HBase was")


def test_other_gateway_takes_over(services: Services, table: bytes) -> None:
    """Connections to a gateway that dies go to the one that lives, at once."""
    services.up("gateway")
    with hbase([services.ports.second_thrift, services.ports.thrift]) as (caller, client):
        until(lambda: client.is_up, RETURN_S)
        services.kill("gateway")
        took_s = until(
            lambda: client.is_up and {each.gateway.port for each in client.connections} == {services.ports.thrift},
            RETURN_S,
        )
        results = caller.call_many([calls.mutate_row(table, b"%d" % number, {b"f:a": b"x"}) for number in range(50)])

    assert results == [None] * 50
    assert took_s < 2


def test_tools_need_no_reactor_of_theirs(services: Services, table: bytes) -> None:
    """The same verbs over a connection of their own."""
    with DirectCaller([Endpoint(HOST, services.ports.thrift)]) as caller:
        results = caller.call_many([calls.append(table, b"r", b"f:a", b"x") for _ in range(200)])

    assert results == [b"x" * (number + 1) for number in range(200)]
