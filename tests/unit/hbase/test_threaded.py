"""A worker's batch hops to the reactor once and comes back whole; scans page; nobody waits for ever."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from twisted.python import threadable

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.threaded import ThreadCaller
from tests.unit.hbase.conftest import MakeClient, World


@pytest.fixture
def hops() -> list[None]:
    return []


@pytest.fixture
def caller(world: World, make_client: MakeClient, hops: list[None]) -> ThreadCaller:
    """As from another thread: what is put into the reactor is answered before the worker looks."""
    client = make_client(in_flight=4)
    world.accept()

    def call_in_reactor(call: Callable[[], None]) -> None:
        hops.append(None)
        call()
        world.serve()

    return ThreadCaller(client, call_in_reactor, patience_s=0)


def test_batch_hops_once(world: World, caller: ThreadCaller, hops: list[None]) -> None:
    """However many calls; results and errors stand at their places."""
    batch = [calls.append(b"t", b"r", b"f:a", b"x") for _ in range(50)]
    batch[7] = calls.append(b"nope", b"r", b"f:a", b"x")

    results = caller.call_many(batch)

    assert len(hops) == 1
    assert isinstance(results[7], BackendError)
    assert results[:7] == [b"x" * count for count in range(1, 8)]
    assert results[-1] == b"x" * 49
    assert caller.call_many([]) == []


def test_single_call_returns_or_raises(caller: ThreadCaller) -> None:
    """For the rare verbs."""
    assert caller.call(calls.get_row(b"t", b"r")) is None
    with pytest.raises(BackendError, match="TableNotFoundException"):
        caller.call(calls.get_row(b"nope", b"r"))


def test_scan_pages_and_closes(world: World, caller: ThreadCaller) -> None:
    """Who stops in the middle leaves the scanner to the gateway: nothing is called when the rest is thrown away."""
    caller.call_many([calls.mutate_row(b"t", b"%02d" % number, {b"f:a": b"x"}) for number in range(10)])

    assert [row.key for row in caller.scan(Scan(b"t", b"03", b"09"), page=2)] == [
        b"03",
        b"04",
        b"05",
        b"06",
        b"07",
        b"08",
    ]
    reader = caller.scan(Scan(b"t"), page=3)
    assert next(reader).key == b"00"
    reader.close()  # type: ignore[attr-defined]

    assert [name for name, _ in world.gateway.seen].count("scannerClose") == 1
    assert list(caller.scan(Scan(b"t", b"x"))) == []


def test_silent_reactor_is_not_waited_for_for_ever(make_client: MakeClient) -> None:
    """What was not answered may be written, a read is not; what was not sent is never sent."""
    caller = ThreadCaller(make_client(), lambda call: call(), patience_s=0)

    write, read = caller.call_many([calls.append(b"t", b"r", b"f:a", b"x"), calls.get_row(b"t", b"r")])  # type: ignore[list-item]

    assert isinstance(write, BackendError)
    assert isinstance(read, BackendError)
    assert (write.retryable, write.is_written, read.is_written) == (True, True, False)


def test_reactor_thread_must_not_wait(caller: ThreadCaller, monkeypatch: pytest.MonkeyPatch) -> None:
    """It would wait for itself."""
    monkeypatch.setattr(threadable, "ioThread", threadable.getThreadID())

    with pytest.raises(LocalProtocolError, match="reactor thread"):
        caller.call(calls.table_names())
