"""`DirectCaller` over real sockets, with a fake gateway behind them: large batches, lost and silent connections, the next gateway."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.pages import pages
from iothub_services.hbase.refusals import LostError
from iothub_services.hbase.wire import Bounds
from tests.support.hbase.hbase_gateway import FakeGateway, framed, split_frames
from tests.support.waiting import PATIENCE_S

QUESTION = calls.SERVER_TYPE.name.encode()


class Served:
    """A fake gateway on a port of its own, one thread for each connection, one answer after another."""

    def __init__(self) -> None:
        self.gateway = FakeGateway()
        self.gateway.tables[b"t"] = {}
        self.answers_left = 1_000_000  # then connections are closed
        self.is_silent = False
        self.hung_up_on = b""  # calls that have this in them end the connection
        self.is_hung = False  # from the first moment on
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = Endpoint("127.0.0.1", self._listener.getsockname()[1])
        self.connections: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for connection in self.connections:
            connection.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        rest = b""
        try:
            while octets := connection.recv(65536):
                frames, rest = split_frames(rest + octets)
                for frame in frames if not self.is_hung else []:
                    if QUESTION in frame:
                        connection.sendall(framed(self.gateway.answer(frame)))
                        continue
                    if self.is_silent:
                        break
                    if not self.answers_left or (self.hung_up_on and self.hung_up_on in frame):
                        connection.shutdown(socket.SHUT_RDWR)
                        return
                    self.answers_left -= 1
                    connection.sendall(framed(self.gateway.answer(frame)))
        except OSError:
            return


@pytest.fixture
def served() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


def test_large_batch_with_large_answers_goes_through(served: Served) -> None:
    """Neither side may end up waiting for the other to read: 64 MiB there, 64 MiB back, through small windows."""
    value = b"x" * (256 << 10)
    batch = [calls.append(b"t", b"%d" % number, b"f:a", value) for number in range(256)]
    with DirectCaller([served.address]) as caller:
        results = caller.call_many(batch)

    assert results == [value] * 256


def test_lost_connection_is_made_anew(served: Served) -> None:
    """What was answered counts, what was in flight may be written, what was not sent is not."""
    served.answers_left = 3
    with DirectCaller([served.address], Bounds(in_flight=2)) as caller:
        results = caller.call_many([calls.append(b"t", b"r", b"f:a", b"x") for _ in range(10)])
        served.answers_left = 10
        again = caller.call(calls.append(b"t", b"r", b"f:a", b"x"))

    assert results[:3] == [b"x", b"xx", b"xxx"]
    errors = [result for result in results[3:] if isinstance(result, BackendError)]
    assert len(errors) == 7
    assert all(error.retryable for error in errors)
    assert [error.is_written for error in errors[2:]] == [False] * 5
    assert again == b"xxxx"


def test_silence_ends_in_time(served: Served) -> None:
    """As with a server that is paused."""
    served.is_silent = True
    with DirectCaller([served.address], Bounds(timeout_s=0.2)) as caller:
        (write, read) = caller.call_many(
            [calls.append(b"t", b"r", b"f:a", b"x"), calls.get_row(b"t", b"r")]  # type: ignore[list-item]
        )

    assert isinstance(write, BackendError)
    assert isinstance(read, BackendError)
    assert "has not answered for 0.2 s" in str(write)
    assert (write.is_written, read.is_written) == (True, False)


def test_next_gateway_is_used_when_one_is_gone(served: Served) -> None:
    """At once; without another one the call fails at once, too."""
    gone = Served()
    gone.close()
    with DirectCaller([gone.address, served.address]) as caller:
        assert caller.call(calls.append(b"t", b"r", b"f:a", b"x")) == b"x"
    with DirectCaller([gone.address]) as caller, pytest.raises(BackendError, match="Connection refused") as caught:
        caller.call(calls.append(b"t", b"r", b"f:a", b"x"))

    assert (caught.value.retryable, caught.value.is_written) == (True, False)


@pytest.fixture
def second() -> Iterator[Served]:
    made = Served()
    yield made
    made.close()


SHORT = Bounds(timeout_s=60.0, probe_timeout_s=1.5)  # more than a gateway that answers needs on a slow machine


def test_gateway_that_hangs_is_passed_over_before_anything_is_lost(served: Served, second: Served) -> None:
    """It accepts connections and never answers: a write goes to the next one, once."""
    served.is_hung = True
    with capture_logs() as lines, DirectCaller([served.address, second.address], SHORT) as caller:
        assert caller.call(calls.append(b"t", b"r", b"f:a", b"x")) == b"x"

    (line,) = lines
    assert (line["gateway"], line["cause"]) == (str(served.address), "has not answered for 1.5 s")
    assert served.gateway.seen == []


def test_every_gateway_that_hangs_is_named(served: Served, second: Served) -> None:
    """Each was asked once."""
    served.is_hung = second.is_hung = True
    with DirectCaller([served.address, second.address], SHORT) as caller, pytest.raises(BackendError) as caught:
        caller.call(calls.get_row(b"t", b"r"))

    assert str(served.address) in str(caught.value)
    assert str(second.address) in str(caught.value)
    assert (caught.value.retryable, caught.value.is_written) == (True, False)


def test_reads_are_asked_again_at_the_next_gateway(served: Served, second: Served) -> None:
    """One that falls silent in the middle; a write is its caller's to repeat, with what is behind it."""
    served.is_silent = True
    second.gateway.tables[b"t"][b"r"] = {b"f:a": (b"x", 1)}
    short = Bounds(timeout_s=1.5)
    with DirectCaller([served.address, second.address], short) as caller:
        row = caller.call(calls.get_row(b"t", b"r"))
    second.is_silent = True
    with DirectCaller([second.address, served.address], short) as caller:
        write, read = caller.call_many(
            [calls.append(b"t", b"r", b"f:a", b"x"), calls.get_row(b"t", b"r")]  # type: ignore[list-item]
        )

    assert row is not None
    assert row.cells[b"f:a"].value == b"x"
    assert isinstance(write, LostError)
    assert isinstance(read, LostError)
    assert (write.is_written, read.is_written) == (True, False)


def scanned(caller: DirectCaller) -> list[bytes]:
    """Return the keys of all rows, read in small pages."""
    return [row.key for page in pages(caller, Scan(b"t"), page_bytes=50) for row in page]


def test_scan_goes_on_at_the_next_gateway(served: Served, second: Served) -> None:
    """A scanner is its own gateway's: it is opened again behind the last row, and no row is missed or seen twice."""
    rows = {b"%02d" % number: {b"f:a": (b"x", 1)} for number in range(40)}
    served.gateway.tables[b"t"], second.gateway.tables[b"t"] = dict(rows), dict(rows)
    served.answers_left = 3
    keys = sorted(rows)
    with DirectCaller([served.address, second.address]) as caller:
        assert scanned(caller) == keys


def test_scan_goes_on_though_another_call_has_moved_to_the_next_gateway(served: Served, second: Served) -> None:
    """Between two pages; the scanner's number is somebody else's there."""
    rows = {b"%02d" % number: {b"f:a": (b"x", 1)} for number in range(40)}
    strange = {b"strange " + key: cells for key, cells in rows.items()}
    served.gateway.tables[b"t"], second.gateway.tables[b"t"] = dict(rows), dict(rows)
    second.gateway.tables[b"other"] = strange
    second.gateway._scanners[0] = (b"other", sorted(strange), None)
    second.gateway._opened = 0
    served.hung_up_on = b"getRow"
    keys: list[bytes] = []
    with DirectCaller([served.address, second.address]) as caller:
        for page in pages(caller, Scan(b"t"), page_bytes=50):
            if not keys:
                assert caller.call(calls.get_row(b"t", b"00", pin=b"t")) is not None
            keys += [row.key for row in page]

    assert keys == sorted(rows)
    assert second.gateway._scanners[0][1] == sorted(strange)


def test_scanner_is_not_asked_on_the_next_connection(served: Served) -> None:
    """Also to the same gateway."""
    served.hung_up_on = b"append"
    with DirectCaller([served.address]) as caller:
        scanner = caller.call(calls.open_scan(Scan(b"t")))
        with pytest.raises(LostError):
            caller.call(calls.append(b"t", b"r", b"f:a", b"x"))
        with pytest.raises(LostError, match="open it anew"):
            caller.call(calls.next_rows(scanner, 1, b"t"))

    assert [verb for verb, _ in served.gateway.seen] == ["scannerOpenWithScan"]


def test_answer_above_the_frame_limit_is_not_asked_for_again(served: Served, second: Served) -> None:
    """It is as large at each gateway, and this one is well: it is asked on."""
    for each in (served, second):
        each.gateway.tables[b"t"] = {b"large": {b"f:a": (b"x" * 2000, 1)}, b"small": {b"f:a": (b"x", 1)}}
    with DirectCaller([served.address, second.address], Bounds(frame_bytes=1000)) as caller:
        large, small = caller.call_many([calls.get_row(b"t", b"large"), calls.get_row(b"t", b"small")])
        again = caller.call(calls.get_row(b"t", b"small"))

    assert isinstance(large, BackendError)
    assert not isinstance(large, LostError)
    assert "above the limit of 1000" in str(large)
    assert large.retryable
    assert small == again
    assert [arguments[2] for _, arguments in served.gateway.seen].count(b"large") == 1
    assert second.gateway.seen == []


def test_call_above_the_frame_limit_fails_alone(served: Served) -> None:
    """Its neighbours are done."""
    with DirectCaller([served.address], Bounds(frame_bytes=1000)) as caller:
        large, small = caller.call_many(
            [calls.append(b"t", b"r", b"f:a", b"x" * 2000), calls.append(b"t", b"r", b"f:a", b"x")]
        )

    assert isinstance(large, BackendError)
    assert (large.retryable, large.is_written, small) == (False, False, b"x")


def test_stranger_is_hung_up_on() -> None:
    """A port that speaks something else."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = Endpoint("127.0.0.1", listener.getsockname()[1])

        def greet() -> None:
            connection, _ = listener.accept()
            with connection, suppress(ConnectionResetError):  # the caller hangs up
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
                connection.recv(1 << 16)

        thread = threading.Thread(target=greet)
        thread.start()
        with DirectCaller([address]) as caller, pytest.raises(BackendError, match="above the limit"):
            caller.call(calls.table_names())
        thread.join(PATIENCE_S)
