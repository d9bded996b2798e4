"""Publishers of QoS 2 at hubs that die, give up and lose their sessions to each other, while calls land late: each message is in each queue once.

A queue forgets a message id when it cannot come again: too early, and a queue has a message twice; never, and the rows grow with every message.
"""

from __future__ import annotations

from typing import TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule, run_state_machine_as_test

from iothub.base.errors import BackendError
from iothub_services.queues.port import Append, Delivery, Inbound, Move, MoveKind, QueueLimits, QueueStore
from tests.support.night import by_day
from tests.support.servers.lossy_queues import TENANT, OnHBase, OnRedis, Server
from tests.support.waiting import until_answered

QUEUES = (1, 2, 3)
PUBLISHERS = (8, 9)
MANY = 1 << 20
BATCH = 4
GOOD = 40  # messages at the end, when nothing is lost any more

T = TypeVar("T")


class Hub:
    """One life of a hub. `waiting`: the batch that its thread tries again."""

    def __init__(self, store: QueueStore) -> None:
        self.store = store
        self.waiting: list[Append] = []
        self.epochs: dict[int, int] = {}


class Client:
    """A publisher; it keeps its messages until PUBREC: Packet Identifier -> body, queues."""

    def __init__(self) -> None:
        self.hub: Hub | None = None
        self.unreceived: dict[int, tuple[bytes, tuple[int, ...]]] = {}


class Publishers(RuleBasedStateMachine):
    """The machine."""

    kind: type[Server]

    @initialize()
    def begin(self) -> None:
        self.server = self.kind()
        self.incarnation = 0
        self.number = 0
        self.hubs = [self.new_hub(), self.new_hub()]
        self.reader = self.server.store(1_000)
        self.clients = {queue_id: Client() for queue_id in PUBLISHERS}
        self.sent: list[tuple[int, bytes]] = []
        self.found: list[tuple[int, bytes]] = []
        for queue_id in (*QUEUES, *PUBLISHERS):
            self.reader.create(TENANT, queue_id, QueueLimits())
        self.epochs = {queue_id: self.reader.claim(queue_id, b"reader").epoch for queue_id in QUEUES}

    def new_hub(self) -> Hub:
        self.incarnation += 1
        return Hub(self.server.store(self.incarnation))

    def new_id(self) -> bytes:
        self.number += 1
        return self.number.to_bytes(16)

    def op(self, publisher: int, packet_id: int) -> Append:
        client = self.clients[publisher]
        assert client.hub is not None
        body, queues = client.unreceived[packet_id]
        deliveries = tuple(Delivery(queue_id, 2) for queue_id in queues)
        inbound = Inbound(publisher, client.hub.epochs[publisher], packet_id)
        return Append(self.new_id(), body, 0, deliveries, inbound)

    def submit(self, hub: Hub, ops: list[Append]) -> None:
        """Do a batch as the thread of the writer does, with what waits before it."""
        hub.waiting += ops
        if not hub.waiting:
            return
        try:
            with hub.store.group():
                answers = hub.store.append(hub.waiting)
        except BackendError as error:
            if not error.retryable:
                raise
            return
        ops, hub.waiting = hub.waiting, []
        for op, answer in zip(ops, answers, strict=True):
            inbound = op.inbound
            assert inbound is not None
            client = self.clients[inbound.queue_id]
            if client.hub is not hub or inbound.epoch != hub.epochs[inbound.queue_id]:
                continue  # of an earlier connection
            if answer.is_stale:
                client.hub = None
                continue
            assert answer.is_duplicate or all(position > 0 for position in answer.positions)
            del client.unreceived[inbound.packet_id]
            finished = Move(MoveKind.FINISH_INBOUND, inbound.queue_id, inbound.epoch, inbound.packet_id)
            until_answered(lambda finished=finished: hub.store.apply([finished]))  # type: ignore[misc]

    @rule(
        publisher=st.sampled_from(PUBLISHERS),
        at=st.integers(0, 1),
        count=st.integers(1, BATCH),
        queues=st.lists(st.sampled_from(QUEUES), min_size=1, unique=True),
        played=st.lists(st.integers(0, 7), max_size=6),
    )
    def publish(self, publisher: int, at: int, count: int, queues: list[int], played: list[int]) -> None:
        self.connect(publisher, at)
        client = self.clients[publisher]
        assert client.hub is not None
        packet_ids = []
        for _ in range(count):
            self.number += 1
            packet_ids.append(self.number)
            body = b"%d" % self.number
            client.unreceived[self.number] = body, tuple(queues)
            self.sent += [(queue_id, body) for queue_id in queues]
        self.server.played = list(played)
        self.submit(client.hub, [self.op(publisher, packet_id) for packet_id in packet_ids])
        self.server.played = []

    def connect(self, publisher: int, at: int) -> None:
        """Connect, unless it is, and send again what was not received."""
        client = self.clients[publisher]
        if client.hub is not None:
            return
        hub = self.hubs[at]
        hub.epochs[publisher] = until_answered(lambda: hub.store.claim(publisher, b"hub")).epoch
        client.hub = hub
        self.submit(hub, [self.op(publisher, packet_id) for packet_id in client.unreceived])

    @rule(publisher=st.sampled_from(PUBLISHERS), at=st.integers(0, 1), played=st.lists(st.integers(0, 7), max_size=6))
    def take_over(self, publisher: int, at: int, played: list[int]) -> None:
        """The client comes back at this hub; the other one, or the same, may still be at its messages."""
        self.clients[publisher].hub = None
        self.server.played = list(played)
        self.connect(publisher, at)
        self.server.played = []

    @rule(at=st.integers(0, 1), played=st.lists(st.integers(0, 7), max_size=6))
    def try_again(self, at: int, played: list[int]) -> None:
        self.server.played = list(played)
        self.submit(self.hubs[at], [])
        self.server.played = []

    @rule(at=st.integers(0, 1))
    def give_up(self, at: int) -> None:
        hub = self.hubs[at]
        for op in hub.waiting:
            assert op.inbound is not None
            client = self.clients[op.inbound.queue_id]
            client.hub = None if client.hub is hub else client.hub
        hub.waiting = []
        hub.store.idle()  # type: ignore[attr-defined]

    @rule(at=st.integers(0, 1))
    def die(self, at: int) -> None:
        dead, self.hubs[at] = self.hubs[at], self.new_hub()
        for client in self.clients.values():
            client.hub = None if client.hub is dead else client.hub

    @rule(which=st.integers(0, 3))
    def land(self, which: int) -> None:
        """What was taken for lost arrives."""
        if self.server.late:
            self.server.late.pop(which % len(self.server.late))()

    @rule(queue_id=st.sampled_from(QUEUES))
    def read(self, queue_id: int) -> None:
        epoch = self.epochs[queue_id]
        page = self.reader.read(queue_id, epoch, 0, MANY, MANY)
        self.found += [(queue_id, record.body) for record in page.records]
        assert self.reader.apply([Move(MoveKind.ACK, queue_id, epoch, page.upto)]) == [True]
        assert len(set(self.found)) == len(self.found), "nothing is in a queue twice"

    def teardown(self) -> None:
        for at in (0, 1):
            self.give_up(at)
        for publisher, client in self.clients.items():
            client.hub = None
            self.connect(publisher, 0)
            assert not client.unreceived
        while self.server.late:
            self.land(0)
        for queue_id in QUEUES:
            self.read(queue_id)
        assert sorted(self.found) == sorted(self.sent)
        before = [self.server.remembered(queue_id) for queue_id in QUEUES]
        for _ in range(GOOD // BATCH):
            for publisher in PUBLISHERS:
                self.publish(publisher, 0, BATCH, list(QUEUES), [])
        after = [self.server.remembered(queue_id) for queue_id in QUEUES]
        assert all(now <= was + BATCH for now, was in zip(after, before, strict=True)), (before, after)


@pytest.mark.parametrize("server", [OnHBase, OnRedis])
def test_each_message_is_in_each_queue_once(server: type[Server]) -> None:
    """And what is remembered at the end does not grow with the messages."""
    machine = type("Publishers", (Publishers,), {"kind": server})
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=by_day(10, 200), stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
        ),
    )
