"""A worker's batch hops to the reactor once and comes back whole; nobody waits for ever.

Failed calls leave nothing behind: an error that goes up is kept by none of the frames that it has passed, nor they by it.
"""

from __future__ import annotations

import gc
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import TypeVar

import pytest

from iothub.base.errors import BackendError, LocalProtocolError
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller, ThreadCaller, _process_reactor
from iothub_services.hbase.calls import Call, Scan
from iothub_services.hbase.pages import pages
from tests.unit.hbase.conftest import MakeClient, World

T = TypeVar("T")


class GoneCaller(Caller):
    """The first call of each batch fails."""

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        return [BackendError("gone", retryable=True) for _ in calls]


class Held:
    """What a caller holds while it calls."""


@pytest.fixture
def _uncollected() -> Iterator[None]:
    """As while a hub loads its sessions."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


ONE = calls.get_row(b"t", b"r")
WAYS: dict[str, Callable[[Caller], object]] = {
    "call": lambda caller: caller.call(ONE),
    "call all": lambda caller: caller.call_all([ONE, ONE]),
    "pages": lambda caller: list(pages(caller, Scan(b"t"))),
}


@pytest.mark.usefixtures("_uncollected")
@pytest.mark.parametrize("way", WAYS)
def test_nothing_is_left_of_who_called_in_vain(way: str) -> None:
    """Without the collector: it is off while a hub loads."""
    held: list[weakref.ref[Held]] = []

    def load() -> None:
        state = Held()
        held.append(weakref.ref(state))
        WAYS[way](GoneCaller())

    with pytest.raises(BackendError, match="gone") as caught:
        load()
    del caught

    assert [ref() for ref in held] == [None]


# --- over a client


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


def test_silent_reactor_is_not_waited_for_for_ever(make_client: MakeClient) -> None:
    """What was not answered may be written, a read is not; what was not sent is never sent."""
    caller = ThreadCaller(make_client(), lambda call: call(), patience_s=0)

    write, read = caller.call_many([calls.append(b"t", b"r", b"f:a", b"x"), calls.get_row(b"t", b"r")])  # type: ignore[list-item]

    assert isinstance(write, BackendError)
    assert isinstance(read, BackendError)
    assert (write.retryable, write.is_written, read.is_written) == (True, True, False)


def test_reactor_thread_must_not_wait(make_client: MakeClient) -> None:
    """It would wait for itself."""
    client = make_client()
    client.open()
    caller = ThreadCaller(client, lambda call: call(), patience_s=0)

    with pytest.raises(LocalProtocolError, match="reactor thread"):
        caller.call(calls.table_names())


def test_reactor_of_a_tool_goes_by_a_clock_that_nobody_sets() -> None:
    assert _process_reactor().seconds is time.monotonic
