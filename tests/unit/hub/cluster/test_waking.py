"""A hub whose machine was suspended holds publishers and durable queues in its first turn: others may have gone on without it."""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.engine.waking import WakingClock
from iothub.testing.clock import ManualClock
from iothub.testing.engine import Bench, packets, publish
from tests.support.in_process.clustered_hub import Node, other


def test_a_suspension_is_noticed_once_and_by_whoever_reads_the_clock_first() -> None:
    clock = ManualClock()
    woken: list[float] = []
    watched = WakingClock(clock, clock, lambda: woken.append(clock.boottime()))
    clock.advance(1)
    assert (watched.monotonic(), watched.wall(), woken) == (clock.monotonic(), clock.wall(), [])

    clock.suspend(30)
    times = [watched.monotonic(), watched.monotonic()]

    assert (times, woken) == ([clock.monotonic()] * 2, [clock.boottime()])


def test_nothing_is_routed_in_the_first_turn_after_a_suspension() -> None:
    """Neither what a publisher has sent meanwhile nor what another hub has stored: both wait until it is known who there is."""
    bench = Bench()
    plane, clock = bench.plane, bench.clock
    durable, watcher, publisher = bench.client("q", queue_id=1), bench.client("w"), bench.client("p")
    durable.subscribe(b"t", 1)
    watcher.subscribe(b"t", 1)
    plane.hold_from(clock.monotonic() + 3)
    plane.turn.clock = WakingClock(clock, clock, lambda: plane.hold_from(clock.monotonic()))

    clock.suspend(30)
    publisher.connection.feed(publish(b"t", b"x", 1, 1))
    plane.queued_arrived(Message(b"t", b"y", 1, False), [(durable.session, 1, 1, False, ())])
    plane.end_batch()

    assert [list(packets(each.take())) for each in (publisher, watcher, durable)] == [[], [], []]


def test_a_hub_asks_in_that_turn_whether_the_others_still_count_it(node: Node) -> None:
    """Links have heard of nobody since before the suspension; it goes on when they have, and the log is read to its end."""
    two, links = other(node), node.links
    node.begin()
    node.follower.round()
    node.pass_time(2, two)
    node.follower.round()
    assert links is not None
    assert node.plane.turn.held_at > node.clock.monotonic()

    node.clock.suspend(60)
    links.silent_s = 60.0
    node.stores.woken()
    held_at = node.plane.turn.held_at
    links.silent_s = 0.0
    links.calls[0]()
    node.clock.advance(0.1)
    node.follower.round()

    assert held_at <= node.clock.monotonic() - 0.1
    assert node.plane.turn.held_at > node.clock.monotonic()
