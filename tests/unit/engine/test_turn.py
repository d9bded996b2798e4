"""What a worker has buffered, and what happens when it is too much."""

from __future__ import annotations

import pytest

from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits
from iothub.engine.turn import Turn
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Bench, ManualStore, RecordingObserver, ack, packets, publish


@pytest.mark.parametrize(("held", "level"), [(0, 0), (699, 0), (700, 1), (849, 1), (850, 2), (999, 2), (1000, 3)])
def test_turn_says_how_full_the_worker_is(held: int, level: int) -> None:
    """70, 85 and 100 per cent of what it may buffer."""
    turn = Turn(ManualClock(), ManualStore(), PlaneLimits(buffered_bytes=1000), RecordingObserver())
    turn.buffered_bytes = held

    assert turn.overload_level() == level


def test_turn_looks_at_the_clock_once_per_batch() -> None:
    clock = ManualClock()
    turn = Turn(clock, ManualStore(), PlaneLimits(), RecordingObserver())
    turn.begin()
    before = (turn.now, turn.wall_now())

    clock.advance(5)
    turn.begin()
    assert (turn.now, turn.wall_now()) == before
    turn.is_open = False
    turn.begin()

    assert (turn.now, turn.wall_now()) == (before[0] + 5, before[1] + 5)


def test_long_out_buffers_are_on_the_books_until_they_are_written() -> None:
    """Of the tenant and of the worker; nothing is left when the client has gone."""
    bench = Bench()
    stuck = bench.client("s")
    stuck.subscribe(b"a")
    stuck.transport.is_stuck = True
    bench.client("p").send(publish(b"a", bytes(30_000)))
    assert bench.tenant.buffered_bytes == bench.plane.turn.buffered_bytes == len(stuck.connection.out)

    stuck.transport.is_stuck = False
    stuck.transport.flush()
    bench.pass_time(0.1)
    assert bench.tenant.buffered_bytes == 0
    stuck.transport.is_stuck = True
    bench.client("q").send(publish(b"a", bytes(30_000)))
    stuck.drop()

    assert bench.tenant.buffered_bytes == bench.plane.turn.buffered_bytes == 0


def test_a_full_worker_drops_qos0_for_the_congested_first() -> None:
    """Level 1: who takes its bytes gets them, who does not loses QoS 0."""
    bench = Bench(PlaneLimits(buffered_bytes=100_000))
    stuck, lively = bench.client("s"), bench.client("l")
    for client in (stuck, lively):
        client.subscribe(b"a")
    stuck.transport.is_stuck = True
    publisher = bench.client("p")
    publisher.send(publish(b"a", bytes(75_000)))
    lively.take()

    publisher.send(publish(b"a", b"x"))

    assert len(packets(lively.take())) == 1
    assert bench.tenant.counters.dropped == {Drop.QOS0_SLOW: 1}


def test_a_fuller_worker_pauses_publishers_then_refuses_connections() -> None:
    """Level 2 and 3; consumers go on, and publishers when there is room again."""
    bench = Bench(PlaneLimits(buffered_bytes=100_000))
    stuck = bench.client("s")
    stuck.subscribe(b"a", 1)
    stuck.transport.is_stuck = True
    publisher = bench.client("p")

    publisher.send(publish(b"a", bytes(90_000), 1, 1))
    assert publisher.send(publish(b"b", b"x", 1, 2)) == b""
    assert publisher.transport.is_paused
    bench.plane.turn.buffered_bytes += 20_000
    with pytest.raises(ConnectionRefusedError):
        bench.accept()
    bench.plane.turn.buffered_bytes -= 20_000
    stuck.transport.is_stuck = False
    stuck.transport.flush()
    bench.pass_time(0.2)

    assert publisher.take() == ack(0x40, 2)
    assert not publisher.transport.is_paused
