"""Traces end by themselves, at their time and at their size; without one nothing stands in a connection; packets are described without secrets."""

from __future__ import annotations

import dataclasses
import os
from pathlib import Path
from typing import Any

import pytest

from iothub.base.errors import ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.records.admin_commands import Json, Request, Verb, answer_with
from iothub_tenants.background.admin_traces import AdminTraces
from iothub_tenants.broker.trace_files import KEPT_S, TraceFiles
from iothub_tenants.broker.trace_packets import PacketReader, describe
from iothub_tenants.broker.tracing import Tracing
from tests.support.in_process.control_harness import Harness, now, run


class Traced:
    """Tenant `acme` of a harness, with traces."""

    def __init__(self, harness: Harness, path: Path) -> None:
        self.harness = harness
        self.files = TraceFiles(path / "traces")
        pool: Any = run
        self.tracing = harness.hub.traces = Tracing(
            harness.plane, harness.hub.brokers, self.files, harness.clock, harness.later, pool, 5
        )
        self.sent: list[Json] = []

        async def find(name: str) -> Any:
            return harness.accounts.tenants.get(name)

        self.verbs = AdminTraces(self.tracing, self.files, find, pool, 5).verbs

    async def rows(self, rows: Any) -> None:
        self.sent += rows

    def ask(self, verb: Verb, tenant: str = "acme", **argument: Any) -> Any:
        self.sent.clear()
        return now(answer_with(self.verbs, Request(verb, tenant, argument), self))

    def start(self, number: int, **options: Any) -> str:
        asked = {"kind": "client", "value": "c", "for_s": 60, "max_bytes": 64 << 10, "payload_bytes": 0}
        self.ask(Verb.TRACE_START, id=f"t-{number:016x}", **{**asked, "has_pings": False, **options})
        return f"t-{number:016x}"

    def events(self, trace: str) -> list[str]:
        self.harness.pass_time(1.0)
        self.ask(Verb.TRACE_READ, id=trace, offsets={}, lines=500)
        return [str(row["line"]).partition('"event":"')[2].partition('"')[0] for row in self.sent]


@pytest.fixture
def traced(harness: Harness, tmp_path: Path) -> Traced:
    return Traced(harness, tmp_path)


def test_connection_is_as_before_when_its_trace_has_ended(traced: Traced) -> None:
    traced.harness.join("c")
    connection = traced.harness.session("c").connection
    assert connection is not None
    before = connection.plane, connection.transport
    trace = traced.start(1)
    assert (connection.plane, connection.transport) != before

    traced.harness.pass_time(61.0)

    assert (connection.plane, connection.transport) == before
    assert traced.events(trace) == ["trace_started", "trace_ended"]
    assert len(traced.tracing) == 0


def test_trace_that_is_full_says_so_and_stays_within_its_limit(traced: Traced) -> None:
    trace = traced.start(1)
    client = traced.harness.join("c")

    for _ in range(1000):
        client.publish("a/b", b"x")

    assert not traced.tracing.is_active(trace)
    traced.harness.pass_time(1.0)
    kept = traced.files.describe(trace)
    assert (kept.last["event"], kept.last["reason"]) == ("trace_ended", "size")
    assert kept.size <= 64 << 10


def test_traces_of_a_tenant_are_bounded_and_its_own(traced: Traced) -> None:
    first, *_ = [traced.start(number) for number in range(3)]

    with pytest.raises(ConflictError, match="at most 10 and 3"):
        traced.start(4)
    with pytest.raises(NotFoundError):
        traced.ask(Verb.TRACE_READ, tenant="other", id=first, offsets={}, lines=1)
    with pytest.raises(ConflictError, match="stop it first"):
        traced.ask(Verb.TRACE_DELETE, id=first)
    with pytest.raises(NotFoundError):
        traced.ask(Verb.TRACE_STOP, id="../../etc/passwd")
    with pytest.raises(ConfigError):
        traced.start(5, kind="topic", value="a/#/b")


def test_tenant_with_the_name_of_a_deleted_one_sees_none_of_its_traces(traced: Traced) -> None:
    trace, tenants = traced.start(1), traced.harness.accounts.tenants
    tenants["acme"] = dataclasses.replace(tenants["acme"], id=8)

    traced.ask(Verb.TRACE_LIST)
    assert traced.sent == []
    for verb in (Verb.TRACE_READ, Verb.TRACE_STOP, Verb.TRACE_DELETE):
        with pytest.raises(NotFoundError):
            traced.ask(verb, id=trace, offsets={}, lines=1)


def test_traces_go_with_their_tenant(traced: Traced) -> None:
    first, second = traced.start(1), traced.start(2)
    traced.ask(Verb.TRACE_STOP, id=first)
    traced.harness.pass_time(1.0)

    traced.tracing.forget_tenant(7)

    assert (len(traced.tracing), traced.files.kept()) == (0, [])
    with pytest.raises(NotFoundError):
        traced.files.describe(second)


def kept(traced: Traced, tenant: str = "acme") -> list[str]:
    traced.ask(Verb.TRACE_LIST, tenant=tenant)
    return sorted(str(row["id"]) for row in traced.sent)


def started_in(harness: Harness, path: Path) -> Traced:
    traced = Traced(harness, path)
    for number in range(5):
        traced.ask(Verb.TRACE_STOP, id=traced.start(number))
        os.utime(path / f"traces/t-{number:016x}.jsonl", (number, number))
    return traced


def test_oldest_trace_that_has_ended_makes_room_for_a_new_one_of_its_tenant(harness: Harness, tmp_path: Path) -> None:
    traced = started_in(harness, tmp_path)

    traces = [traced.start(number) for number in (5, 6)]

    assert kept(traced) == [f"t-{number:016x}" for number in range(2, 7)]
    assert all(traced.tracing.is_active(trace) for trace in traces)


def test_running_trace_makes_no_room(harness: Harness, tmp_path: Path) -> None:
    traced = Traced(harness, tmp_path)
    first = traced.start(9)
    os.utime(tmp_path / f"traces/{first}.jsonl", (0, 0))
    for number in range(5):
        traced.ask(Verb.TRACE_STOP, id=traced.start(number))

    assert first in kept(traced)
    assert len(kept(traced)) == 5


def test_trace_is_deleted_a_day_after_its_end(traced: Traced) -> None:
    first, second = traced.start(1), traced.start(2, for_s=24 * 3600)
    traced.harness.pass_time(61.0)
    traced.ask(Verb.TRACE_LIST)
    until_ms = {row["id"]: row["until_ms"] for row in traced.sent}
    assert (until_ms[second], until_ms[first] > traced.harness.clock.wall() * 1000) == (0, True)

    traced.harness.pass_time(KEPT_S - 1.0)
    now(traced.tracing.expire())
    assert kept(traced) == [first, second]
    traced.harness.pass_time(2.0)
    now(traced.tracing.expire())

    assert kept(traced) == [second]


def test_trace_whose_last_line_was_not_written_whole_is_deleted_after_its_start(traced: Traced, tmp_path: Path) -> None:
    """As a hub leaves it that was killed."""
    (tmp_path / "traces").mkdir()
    at_ms = int(traced.harness.clock.wall() * 1000)
    traced.files.create("t-00000000000000ff", f'{{"at_ms":{at_ms},"tenant_id":7}}\n{{"at_ms":9'.encode())

    now(traced.tracing.expire())
    assert kept(traced) == ["t-00000000000000ff"]
    traced.harness.pass_time(KEPT_S + 1.0)
    now(traced.tracing.expire())

    assert kept(traced) == []


def test_trace_that_could_not_begin_leaves_nothing_in_the_way(traced: Traced, monkeypatch: pytest.MonkeyPatch) -> None:
    traced.harness.join("c")
    connection = traced.harness.session("c").connection
    assert connection is not None
    before = connection.plane, connection.transport

    def create(*_given: object) -> None:
        traced.tracing._tap(connection, "c", 5, set(traced.tracing._active.values()))  # as a client that comes now
        raise UnavailableError("the disk is full")

    monkeypatch.setattr(traced.files, "create", create)
    with pytest.raises(UnavailableError):
        traced.start(1)

    assert (connection.plane, connection.transport) == before


def test_trace_is_not_begun_twice(traced: Traced) -> None:
    trace = traced.start(1)

    with pytest.raises(ConflictError, match="active already"):
        traced.start(1)
    assert traced.tracing.is_active(trace)


def test_topic_is_traced_and_its_hooks_go_with_the_trace(traced: Traced) -> None:
    client = traced.harness.join("c")
    client.subscribe(("a/#", 0))
    trace = traced.start(1, kind="topic", value="a/b")

    client.publish("a/b", b"x")
    client.publish("a/c", b"x")
    traced.ask(Verb.TRACE_STOP, id=trace)

    assert traced.events(trace) == ["trace_started", "published", "delivered", "trace_ended"]
    assert traced.harness.acme.plane.publish_hook is None


@pytest.mark.parametrize("step", [1, 2, 7, 1000])
def test_packets_are_found_in_any_chunks(step: int) -> None:
    found: list[tuple[int, bytes]] = []
    reader = PacketReader(lambda size, head: found.append((size, head)), 8)
    data = b"\xc0\x00" + b"\x30\x81\x01" + bytes(129) + b"\xe0\x00"

    for at in range(0, len(data), step):
        reader.feed(data[at : at + step])

    assert [(size, len(head)) for size, head in found] == [(2, 2), (132, 8), (2, 2)]


def test_malformed_packet_is_described_as_cut() -> None:
    assert describe(4, b"\x32\x02\x00\x09", 5, 0, has_pings=False) == {"packet": "PUBLISH", "bytes": 4, "is_cut": True}
    assert describe(2, b"\xc0\x00", 5, 0, has_pings=False) is None
