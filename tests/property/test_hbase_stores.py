"""Hubs that share tables of HBase while answers are lost and calls refused: what was answered stays, and the newest counts."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.errors import BackendError
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from iothub_services.state.hbase import HBaseStates
from iothub_services.state.port import StateWrite
from tests.support.timed_gateway import GatewayCaller, TimedGateway

T = TypeVar("T")

TABLES = Tables("t")

fates = st.lists(st.sampled_from(["done"] * 6 + ["lost", "refused"]), max_size=60)
clients = st.sampled_from(["a", "b", "c"])
topics = st.sampled_from([b"a", b"b", b"c"])


def caller(gateway: TimedGateway, coming: list[str]) -> GatewayCaller:
    """A caller whose calls have these fates, and then all succeed."""
    ahead = list(coming)
    return GatewayCaller(gateway, lambda _verb: ahead.pop() if ahead else "done")


def until_done(do: Callable[[], T]) -> T:
    """Do something again until it is answered, as the thread of a store does."""
    while True:
        try:
            return do()
        except BackendError as error:
            if not error.retryable:
                raise


@settings(max_examples=150, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 1), clients, st.integers(1, 30), st.booleans()), max_size=25),
    fates,
    st.booleans(),
)
def test_states_are_those_of_the_highest_offset(
    writes: list[tuple[int, str, int, bool]], coming: list[str], is_compacting: bool
) -> None:
    """In whatever order two hubs write, and however often they repeat; what is gone stays gone below its offset."""
    gateway = TimedGateway(TABLES.state)
    store = HBaseStates(caller(gateway, coming), TABLES)
    newest: dict[str, tuple[int, bytes | None]] = {}
    applied = [0, 0]
    for hub, client_id, offset, is_gone in writes:
        record = None if is_gone else b"%d" % offset
        if newest.get(client_id, (0, None))[0] == offset:
            continue  # the same offset is the same record
        applied[hub] += 1
        vector = (applied[0], 0) if hub == 0 else (0, applied[1])
        until_done(partial(store.apply, vector, [StateWrite(1, client_id, offset, record)]))
        newest[client_id] = max(newest.get(client_id, (0, None)), (offset, record), key=lambda each: each[0])
        if is_compacting:
            gateway.compact()

    calm = HBaseStates(GatewayCaller(gateway), TABLES)
    assert {row.client_id: (row.offset, row.record) for row in calm.load()} == {
        name: each for name, each in newest.items() if each[1] is not None
    }
    if writes:
        assert calm.applied_offsets() == tuple(applied)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1), topics, st.sampled_from([None, b"x", b"yy"])), max_size=25), fates)
def test_retained_messages_are_those_of_the_highest_version(
    writes: list[tuple[int, bytes, bytes | None]], coming: list[str]
) -> None:
    """Versions rise and are never given twice, whatever is lost."""
    gateway = TimedGateway(TABLES.retained)
    hubs = [HBaseRetained(caller(gateway, coming[at::2]), TABLES) for at in range(2)]
    last: dict[bytes, tuple[int, bytes | None]] = {}
    highest = 0
    for hub, topic, body in writes:
        (version,) = until_done(partial(hubs[hub].put, [RetainedWrite(1, topic, body)]))
        assert version > highest
        highest = version
        last[topic] = (version, body)

    calm = HBaseRetained(GatewayCaller(gateway), TABLES)
    assert {body.topic: (body.version, body.body) for body in calm.fetch(1, [b"a", b"b", b"c"])} == {
        topic: each for topic, each in last.items() if each[1] is not None
    }
    assert calm.usage(1).messages == len([each for each in last.values() if each[1] is not None])
