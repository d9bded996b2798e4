"""The periodic task that removes expired messages from queues: how far one run goes, what it counts, and what it keeps."""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
from types import SimpleNamespace
from typing import cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.reasons import Drop
from iothub.engine.plane import Plane
from iothub.hub.queue_expiry import LOOK_RECORDS, LOOKS_PER_TURN, QueueExpiry
from iothub.peers.cluster_clock import ClusterClock, HubClock
from iothub.testing.clock import ManualClock
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import Append, Delivery, DueRecord, Expired, ExpiryMark, Move, MoveKind, QueueLimits
from iothub_tenants.broker.brokers import Brokers

TENANT = 7


class Queues:
    """The memory driver's verbs, awaitable; counts the looks."""

    def __init__(self) -> None:
        self.store = MemoryQueues()
        self.looks = 0

    async def expire(self, now_ms: int, count: int, after: ExpiryMark) -> Expired:
        self.looks += 1
        return self.store.expire(now_ms, count, after)

    async def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        return self.store.expire_unsent(now_ms, records)


class Bench:
    """One tenant with one session, and its queue."""

    def __init__(
        self, sent_upto: int = -1, connection: object | None = None, others: Sequence[float] | None = None
    ) -> None:
        """`others`: how far the clocks of other hubs are ahead of this machine's."""
        self.queues = Queues()
        self.queues.store.create(TENANT, 1, QueueLimits(0, 0))
        self.epoch = self.queues.store.claim(1, b"hub").epoch
        self.clock = ManualClock()
        self.dropped: list[tuple[object, Drop, int]] = []
        window = SimpleNamespace(sent_upto=sent_upto)
        session = SimpleNamespace(queue_id=1, is_persistent=True, connection=connection, window=window)
        tenant = SimpleNamespace(sessions=SimpleNamespace(awake={"away": session}))
        brokers = SimpleNamespace(
            present=lambda tenant_id: SimpleNamespace(plane=tenant) if tenant_id == TENANT else None
        )
        turn = SimpleNamespace(drop=lambda tenant, _, drop, count: self.dropped.append((tenant, drop, count)))
        plane = cast("Plane", SimpleNamespace(turn=turn))
        self.tenant = tenant
        clock = ClusterClock(self.clock, self.clock.boottime)
        now = self.clock.wall() - self.clock.boottime()
        clock.judge([HubClock(now + ahead_s, now) for ahead_s in others or ()], [], serves=True)
        self.task = QueueExpiry(self.queues, cast("Brokers", brokers), plane, self.clock if others is None else clock)

    def store(self, count: int, expires_in_s: float) -> None:
        expires_at_ms = int((self.clock.wall() + expires_in_s) * 1000)
        self.queues.store.append([Append(b"", b"m", expires_at_ms, (Delivery(1, 1),)) for _ in range(count)])

    def reserve(self, upto: int) -> None:
        self.queues.store.apply([Move(MoveKind.RESERVE, 1, self.epoch, upto)])

    @property
    def stored(self) -> int:
        return self.queues.store.stats(1).messages

    def turn(self) -> None:
        done(self.task.turn())


def done(call: Awaitable[None]) -> None:
    finished: list[object] = []
    Deferred.fromCoroutine(call).addBoth(finished.append)  # type: ignore[arg-type]
    assert finished == [None]


def test_expired_messages_leave_and_are_counted_by_name() -> None:
    """What is not due stays."""
    bench = Bench()
    bench.store(3, 5.0)
    bench.store(2, 60.0)
    bench.turn()
    assert (bench.stored, bench.dropped) == (5, [])

    bench.clock.advance(5.0)
    bench.turn()

    assert bench.stored == 2
    assert bench.dropped == [(bench.tenant, Drop.EXPIRED, 3)]


def test_what_may_have_been_sent_is_spared_while_nobody_knows() -> None:
    """After a crash of the hub only the reservation says what the client may have."""
    bench = Bench(sent_upto=-1)
    bench.store(3, 1.0)
    bench.reserve(1024)
    bench.clock.advance(2.0)

    bench.turn()

    assert (bench.stored, bench.dropped) == (3, [])


def test_hub_that_knows_what_it_sent_removes_the_rest_below_the_reservation() -> None:
    """One of three was sent before the client went away: the other two leave."""
    bench = Bench(sent_upto=1)
    bench.store(3, 1.0)
    bench.reserve(1024)
    bench.clock.advance(2.0)

    bench.turn()

    assert bench.stored == 1
    assert bench.dropped == [(bench.tenant, Drop.EXPIRED, 2)]


def test_reserved_messages_of_a_session_that_is_here_are_left_to_its_reader() -> None:
    """It may be sending them at this moment."""
    bench = Bench(sent_upto=1, connection=object())
    bench.store(3, 1.0)
    bench.reserve(1024)
    bench.clock.advance(2.0)

    bench.turn()

    assert bench.stored == 3


def test_turn_is_bounded_and_the_next_goes_on() -> None:
    """A queue of a million expired messages is no long operation of anybody."""
    bench = Bench()
    more = 10
    bench.store(LOOK_RECORDS * LOOKS_PER_TURN + more, 1.0)
    bench.clock.advance(2.0)

    bench.turn()
    assert (bench.queues.looks, bench.stored) == (LOOKS_PER_TURN, more)
    bench.turn()
    assert (bench.queues.looks, bench.stored) == (LOOKS_PER_TURN + 1, 0)


def test_what_is_spared_does_not_hide_what_lies_behind_it() -> None:
    """Spared records are looked at again only after everything else was."""
    bench = Bench()
    bench.store(LOOK_RECORDS * LOOKS_PER_TURN, 1.0)
    bench.reserve(LOOK_RECORDS * LOOKS_PER_TURN)
    bench.store(5, 1.0)
    bench.clock.advance(2.0)

    bench.turn()
    bench.turn()

    assert bench.stored == LOOK_RECORDS * LOOKS_PER_TURN


@pytest.mark.parametrize("others", [[0.0], [0.0, 0.0]], ids=["two hubs", "three hubs"])
def test_hub_whose_clock_jumps_removes_messages_when_they_are_due_at_the_others(others: list[float]) -> None:
    bench = Bench(others=others)
    bench.store(3, 600.0)
    bench.clock.jump_wall(3600.0)

    bench.turn()
    assert bench.dropped == []
    bench.clock.advance(601.0)
    bench.turn()

    assert bench.dropped == [(bench.tenant, Drop.EXPIRED, 3)]
