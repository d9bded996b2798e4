"""Readers of a stream to devices that die, sleep and come back where they were, while calls and commits land late: each record is in each queue once.

No reader is fenced: what recognises a repeated record is its id alone, which queues keep for a day. See docs/adr/0027.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from iothub.base.errors import BackendError
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, QueueLimits, QueueStore
from tests.support.night import by_day
from tests.support.servers.lossy_queues import TENANT, OnHBase, OnRedis, Server

QUEUES = (1, 2, 3)
MANY = 1 << 20
PAGE = 3  # records


class Hub:
    """One life of a hub. `place`: what it reads next, -1 while it does not read the stream; `waiting`: what is not durable of its page."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store
        self.place = -1
        self.page_end = -1
        self.waiting: list[Append] = []


class Readers(RuleBasedStateMachine):
    """The machine. `targets`: for each record, by its offset, the queues that get it; `committed`: what Kafka has, whoever said it last."""

    kind: type[Server]

    @initialize()
    def begin(self) -> None:
        self.server = self.kind()
        self.incarnation = 0
        self.hubs = [self.new_hub(), self.new_hub()]
        self.reader = self.server.store(1_000)
        self.targets: list[tuple[int, ...]] = []
        self.committed = 0
        self.found: list[tuple[int, bytes]] = []
        for queue_id in QUEUES:
            self.reader.create(TENANT, queue_id, QueueLimits())
        self.write([[1], [2, 3], [1, 2, 3]] * 10)
        self.follow(0)
        self.follow(1)
        self.epochs = {queue_id: self.reader.claim(queue_id, b"reader").epoch for queue_id in QUEUES}

    def new_hub(self) -> Hub:
        self.incarnation += 1
        return Hub(self.server.store(self.incarnation))

    def op(self, offset: int) -> Append:
        deliveries = tuple(Delivery(queue_id, 2) for queue_id in self.targets[offset])
        return Append((offset + 1).to_bytes(16), b"%d" % offset, 0, deliveries)

    @rule(written=st.lists(st.lists(st.sampled_from(QUEUES), min_size=1, unique=True), min_size=1, max_size=2 * PAGE))
    def write(self, written: list[list[int]]) -> None:
        """An application writes records."""
        self.targets += [tuple(queues) for queues in written]

    @rule(at=st.integers(0, 1))
    def follow(self, at: int) -> None:
        """The hub becomes the reader in its own opinion; the other one may be of the same opinion."""
        self.stop(self.hubs[at])
        self.hubs[at].place = self.committed

    @rule(at=st.integers(0, 1), pages=st.integers(1, 5), played=st.lists(st.integers(0, 7), max_size=6))
    def work(self, at: int, pages: int, played: list[int]) -> None:
        """Each page is committed before the next one is read; the last one is not yet."""
        for _ in range(pages):
            self.try_again(at, [])
            self.commit(at)
            self.read_page(at, played)

    def read_page(self, at: int, played: list[int]) -> None:
        hub = self.hubs[at]
        if 0 <= hub.place < len(self.targets) and hub.page_end < 0:
            hub.page_end = min(hub.place + PAGE, len(self.targets))
            hub.waiting = [self.op(offset) for offset in range(hub.place, hub.page_end)]
            self.try_again(at, played)

    @rule(at=st.integers(0, 1), played=st.lists(st.integers(0, 7), max_size=6))
    def try_again(self, at: int, played: list[int]) -> None:
        hub = self.hubs[at]
        if not hub.waiting:
            return
        self.server.played = list(played)
        try:
            with hub.store.group():
                answers = hub.store.append(hub.waiting)
        except BackendError as error:
            if not error.retryable:
                raise
            return
        finally:
            self.server.played = []
        assert all(position > 0 for answer in answers for position in answer.positions)
        hub.waiting = []

    @rule(at=st.integers(0, 1))
    def give_up(self, at: int) -> None:
        """The store gave up: the records come again in new calls."""
        hub = self.hubs[at]
        hub.waiting = [self.op(int(op.body)) for op in hub.waiting]
        hub.store.idle()  # type: ignore[attr-defined]

    @rule(at=st.integers(0, 1))
    def commit(self, at: int) -> None:
        """However late: Kafka takes it, also from a hub that slept while the other one went on, and then its offset goes back."""
        hub = self.hubs[at]
        if hub.page_end >= 0 and not hub.waiting:
            self.committed = hub.place = hub.page_end
            hub.page_end = -1

    @rule(at=st.integers(0, 1))
    def die(self, at: int) -> None:
        self.hubs[at] = self.new_hub()

    @rule(which=st.integers(0, 3))
    def land(self, which: int) -> None:
        """What was taken for lost arrives."""
        if self.server.late:
            self.server.late.pop(which % len(self.server.late))()

    @rule(queue_id=st.sampled_from(QUEUES))
    def read_queue(self, queue_id: int) -> None:
        epoch = self.epochs[queue_id]
        page = self.reader.read(queue_id, epoch, 0, MANY, MANY)
        self.found += [(queue_id, record.body) for record in page.records]
        assert self.reader.apply([Move(MoveKind.ACK, queue_id, epoch, page.upto)]) == [True]
        assert len(set(self.found)) == len(self.found), "nothing is in a queue twice"

    def stop(self, hub: Hub) -> None:
        hub.waiting, hub.place, hub.page_end = [], -1, -1
        hub.store.idle()  # type: ignore[attr-defined]

    def teardown(self) -> None:
        self.stop(self.hubs[1])
        self.follow(0)
        while self.committed < len(self.targets):
            self.read_page(0, [])
            self.commit(0)
        while self.server.late:
            self.land(0)
        for queue_id in QUEUES:
            self.read_queue(queue_id)
            records = [offset for offset, queues in enumerate(self.targets) if queue_id in queues]
            assert sorted(int(body) for found_in, body in self.found if found_in == queue_id) == records
            assert self.server.remembered(queue_id) <= len(records), (
                "at most one id for each record, however often it came"
            )


@pytest.mark.parametrize("server", [OnHBase, OnRedis])
def test_each_record_is_in_each_queue_once(server: type[Server]) -> None:
    machine = type("Readers", (Readers,), {"kind": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=by_day(15, 40), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
