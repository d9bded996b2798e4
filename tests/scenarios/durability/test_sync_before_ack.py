"""Shown with strace: nothing is acknowledged before the sync that covers it; and how few syncs that takes."""

from __future__ import annotations

import asyncio
import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.clients.ledger import Ledger
from tests.support.clients.load import settle, spawn
from tests.support.clients.packets import CONNECT, PUBACK, PUBCOMP, PUBLISH, PUBREC, PUBREL, Packet, parse
from tests.support.clients.publisher import Publisher, mark
from tests.support.clients.subscriber import Subscriber
from tests.support.clients.survivor import Plan
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.hubs.strace import RECEIVING, SENDING, SYNCING, WRITING, Call, Tracer, calls, syncs_written_to
from tests.support.hubs.wrapped import WrappedHub
from tests.support.waiting import PATIENCE_S


@dataclass(frozen=True)
class Seen:
    """One packet on one connection. `begun`..`ended`: the call that carried its last byte."""

    connection: str
    is_from_client: bool
    packet: Packet
    begun: int
    ended: int


class Disk:
    """What was written for which store, and when it was synced: to the log of its database, or to a segment of its journal."""

    def __init__(self, found: list[Call]) -> None:
        self.writes: defaultdict[str, list[Call]] = defaultdict(list)
        self._syncs: defaultdict[str, list[Call]] = defaultdict(list)
        for call in found:
            store = _store_of(Path(call.file))
            if store and call.name in WRITING:
                self.writes[store].append(call)
            elif store and call.name in SYNCING and call.result == 0:
                self._syncs[call.file].append(call)

    def is_safe(self, store: str, contents: list[bytes], after: int, before: int) -> bool:
        """Was one of `contents` written for `store` after the one moment, and that file synced before the other?"""
        writes = (
            one
            for one in self.writes[store]
            if one.begun > after and one.ended < before and any(content in one.data for content in contents)
        )
        return any(self._is_synced(write, before) for write in writes)

    def _is_synced(self, write: Call, before: int) -> bool:
        return any(sync.begun > write.ended and sync.ended < before for sync in self._syncs[write.file])


def _store_of(file: Path) -> str:
    if file.suffix == ".segment":
        return file.parent.stem
    return file.name.removesuffix(".db-wal") if file.name.endswith(".db-wal") else ""


def packets(found: list[Call]) -> Iterator[Seen]:
    """Put the bytes of every connection together again, both ways."""
    buffers: defaultdict[tuple[str, bool], bytes] = defaultdict(bytes)
    versions: dict[str, int] = {}
    for call in found:
        is_from_client = call.name in RECEIVING
        if not call.file.startswith("socket:") or not (is_from_client or call.name in SENDING) or call.result <= 0:
            continue
        key = (call.file, is_from_client)
        buffers[key] += call.data[: call.result]
        for header, body in _whole(buffers, key):
            if header >> 4 == CONNECT:
                versions[call.file] = body[6]
            yield Seen(call.file, is_from_client, parse(header, body, versions[call.file]), call.begun, call.ended)


def _whole(buffers: dict[tuple[str, bool], bytes], key: tuple[str, bool]) -> Iterator[tuple[int, bytes]]:
    while (buffer := buffers[key]) and (index := next((at for at in range(1, len(buffer)) if buffer[at] < 0x80), 0)):
        length = sum((buffer[at] & 0x7F) << 7 * (at - 1) for at in range(1, index + 1))
        if len(buffer) <= index + length:
            return
        buffers[key] = buffer[index + 1 + length :]
        yield buffer[0], buffer[index + 1 : index + 1 + length]


def run_load(
    hub: Hub, people: Callable[[Plan], tuple[list[Publisher], list[Subscriber]]], seconds: float, each: int = 0
) -> Ledger:
    """Let them publish for a while, and until each has had so many of each QoS acknowledged; to the last acknowledgement."""

    async def run() -> Ledger:
        plan = Plan(hub.ports["tcp"], Ledger(), random.Random(3))
        publishers, subscribers = people(plan)
        listening = spawn(*(one.run() for one in subscribers))
        assert await settle(lambda: all(one.is_subscribed.is_set() for one in subscribers), PATIENCE_S)
        speaking = spawn(*(one.run() for one in publishers))
        await asyncio.sleep(seconds)
        streams = [stream for stream in plan.ledger.streams.values() if stream.qos]
        assert await settle(lambda: all(len(stream.acknowledged) >= each for stream in streams), PATIENCE_S)
        plan.is_publishing, plan.is_draining = False, True
        assert await settle(lambda: all(task.done() for task in speaking), PATIENCE_S)
        plan.is_over = True
        await asyncio.wait(listening or speaking, timeout=PATIENCE_S)
        return plan.ledger

    return asyncio.run(run())


def everybody(plan: Plan) -> tuple[list[Publisher], list[Subscriber]]:
    publishers = [
        Publisher(plan, "p1", 4, is_persistent=True, rate_per_s=20),
        Publisher(plan, "p2", 5, is_persistent=True, rate_per_s=20),
        Publisher(plan, "p3", 5, is_persistent=False, rate_per_s=20),
        Publisher(plan, "kept", 5, is_persistent=True, rate_per_s=20, is_retained=True),  # nobody subscribes
        Publisher(plan, "kept-transient", 4, is_persistent=False, rate_per_s=20, is_retained=True),
    ]
    return publishers, [Subscriber(plan, "s1", 5), Subscriber(plan, "s2", 4, filters=("load/p2/#",))]


@pytest.fixture(scope="module", params=["true", "false"], ids=["journal", "tables"])
def trace(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[list[Seen], Disk]:
    """Some seconds of a hub's system calls under mixed load, with queues in a journal or in their tables alone."""
    directory = tmp_path_factory.mktemp("strace")
    hub = fresh_hub(directory, queues__journal=request.param)
    hub.start()
    assert hub.process is not None
    tracer = Tracer(hub.process.pid, directory / "trace")
    try:
        run_load(hub, everybody, 2.0, each=12)
    finally:
        found = tracer.stop()
        hub.close()
    disk = Disk(found)
    assert any(write.file.endswith(".segment") for write in disk.writes["queues"]) is (request.param == "true")
    return list(packets(found)), disk


def test_puback_and_pubrec_follow_the_sync_of_their_message(trace: tuple[list[Seen], Disk]) -> None:
    """For queues and, without any subscriber, for the retained store; QoS 1 and 2, persistent and transient publishers."""
    seen, disk = trace
    open_: dict[tuple[str, int], Packet] = {}
    checked: defaultdict[tuple[int, str], int] = defaultdict(int)

    for one in seen:
        key = (one.connection, one.packet.packet_id)
        if one.is_from_client and one.packet.kind == PUBLISH:
            open_[key] = one.packet
        elif not one.is_from_client and one.packet.kind in (PUBACK, PUBREC):
            published = open_.pop(key)
            is_retained = published.topic.startswith("state/")
            store = "retained" if is_retained else "queues"
            counter = int(published.payload.split(b"|", 1)[0])
            later = 20 if is_retained else 0  # one commit holds the last Retained Message of its batch
            contents = [mark(published.topic, number) for number in range(counter, counter + later + 1)]
            assert disk.is_safe(store, contents, -1, one.begun), f"line {one.begun}: {published} before its sync"
            checked[one.packet.kind, store] += 1

    assert all(checked[kind, store] > 10 for kind in (PUBACK, PUBREC) for store in ("queues", "retained")), checked


@pytest.mark.parametrize(
    ("asked", "answered", "is_from_client"), [(PUBREL, PUBCOMP, True), (PUBREC, PUBREL, True)], ids=["in", "out"]
)
def test_pubcomp_and_pubrel_follow_a_sync(
    trace: tuple[list[Seen], Disk], asked: int, answered: int, is_from_client: bool
) -> None:
    """Inbound, the removal of the identifier is durable before PUBCOMP; outbound, its release is durable before PUBREL."""
    seen, disk = trace
    transient = {one.connection for one in seen if one.packet.kind == CONNECT and one.packet.body[7] & 2}
    asked_at: dict[tuple[str, int], int] = {}
    checked = 0

    for one in seen:
        key = (one.connection, one.packet.packet_id)
        if one.is_from_client is is_from_client and one.packet.kind == asked:
            asked_at[key] = one.ended
        elif one.is_from_client is not is_from_client and one.packet.kind == answered and key in asked_at:
            if one.connection in transient:
                continue  # no session outlives the connection: nothing to make durable
            assert disk.is_safe("queues", [b""], asked_at.pop(key), one.begun), (
                f"line {one.begun}: {one.packet} too early"
            )
            checked += 1

    assert checked > 20


def test_a_hundred_publishers_share_their_syncs(tmp_path: Path) -> None:
    """Group commit: fewer than 0.2 syncs per acknowledged message (all stores together), where they come faster than a fast disk syncs."""
    plain = fresh_hub(tmp_path)
    trace_file = tmp_path / "syncs"
    hub = WrappedHub(plain.data_dir, prefix=syncs_written_to(trace_file))

    def crowd(plan: Plan) -> tuple[list[Publisher], list[Subscriber]]:
        publishers = [
            Publisher(plan, f"p{number}", 5, is_persistent=True, qualities=(1 + number % 2,), rate_per_s=200)
            for number in range(100)
        ]
        return publishers, [Subscriber(plan, "s", 5, filters=("load/#",))]

    hub.start()
    try:
        before = len(calls(trace_file))
        ledger = run_load(hub, crowd, 3.0)
        syncs = len([one for one in calls(trace_file) if one.name in SYNCING]) - before
    finally:
        status = hub.stop()

    assert status == 0
    assert ledger.acknowledged > 1000
    assert syncs / ledger.acknowledged < 0.2, (syncs, ledger.summary())
