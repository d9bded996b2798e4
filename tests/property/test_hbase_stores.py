"""Hubs that share tables of HBase while answers are lost and calls refused: what was answered stays, and the newest counts."""

from __future__ import annotations

from functools import partial
from typing import TypeVar

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.records.events import partition_of
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.port import StateWrite
from tests.support.hbase.timed_gateway import GatewayCaller, TimedGateway
from tests.support.night import by_day
from tests.support.waiting import until_answered

T = TypeVar("T")

TABLES = Tables("t")

fates = st.lists(st.sampled_from(["done"] * 6 + ["lost", "refused"]), max_size=60)
clients = st.sampled_from(["a", "b", "d", "e"])  # two in each partition
topics = st.sampled_from([b"a", b"b", b"c"])


def caller(gateway: TimedGateway, coming: list[str]) -> GatewayCaller:
    """A caller whose calls have these fates, and then all succeed."""
    ahead = list(coming)
    return GatewayCaller(gateway, lambda _verb: ahead.pop() if ahead else "done")


def records(log: list[tuple[str, bool]], upto: tuple[int, ...]) -> dict[str, StateWrite]:
    """Fold a log of two partitions up to a place: each session's last event there, which may have ended it."""
    states: dict[str, StateWrite] = {}
    ends = [0, 0]
    for client_id, is_gone in log:
        partition = partition_of(f"1/{client_id}", 2)
        ends[partition] += 1
        if ends[partition] <= upto[partition]:
            record = None if is_gone else b"%d" % ends[partition]
            states[client_id] = StateWrite(1, client_id, ends[partition], record)
    return states


@settings(max_examples=by_day(75, 150), deadline=None)
@given(
    st.lists(st.tuples(clients, st.booleans()), max_size=20),
    st.lists(st.tuples(st.integers(0, 1), st.integers(0, 12), st.integers(0, 12)), max_size=12),
    fates,
    st.booleans(),
)
def test_states_are_those_of_the_highest_place(
    log: list[tuple[str, bool]], steps: list[tuple[int, int, int]], coming: list[str], is_compacting: bool
) -> None:
    """Two hubs fold the same log, each as far as it has come; in whatever order they write, and however often they repeat."""
    gateway = TimedGateway(TABLES.state)
    store = HBaseStates(caller(gateway, coming), TABLES)
    end = tuple(sum(partition_of(f"1/{client_id}", 2) == at for client_id, _ in log) for at in range(2))
    folded = [(0, 0), (0, 0)]
    for hub, *ahead in steps:
        before = folded[hub]
        upto = folded[hub] = tuple(min(was + more, last) for was, more, last in zip(before, ahead, end, strict=True))  # type: ignore[assignment]
        known = records(log, before)
        changed = [state for name, state in records(log, upto).items() if known.get(name) != state]
        until_answered(partial(store.apply, upto, changed))
        if is_compacting:
            gateway.compact()

    furthest = tuple(map(max, *folded))
    calm = HBaseStates(GatewayCaller(gateway), TABLES)
    assert {row.client_id: (row.offset, row.record) for row in calm.load()} == {
        name: (state.offset, state.record) for name, state in records(log, furthest).items() if state.record
    }
    if any(furthest):
        assert calm.applied_offsets() == furthest


@settings(max_examples=by_day(75, 150), deadline=None)
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
        (version,) = until_answered(partial(hubs[hub].put, [RetainedWrite(1, topic, body)]))
        assert version > highest
        highest = version
        last[topic] = (version, body)

    calm = HBaseRetained(GatewayCaller(gateway), TABLES)
    assert {body.topic: (body.version, body.body) for body in calm.fetch(1, [b"a", b"b", b"c"])} == {
        topic: each for topic, each in last.items() if each[1] is not None
    }
    assert calm.usage(1).messages == len([each for each in last.values() if each[1] is not None])
