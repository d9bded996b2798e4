"""Replays by themselves: slices, expectations, and clients that go in the middle."""

from __future__ import annotations

from iothub.engine.limits import PlaneLimits
from iothub.engine.message import Message
from iothub.engine.replay import Replay
from iothub.testing.engine import Bench, Client, packets


def make_replay(bench: Bench) -> Replay:
    return Replay(bench.plane.turn, bench.plane.publishing, bench.plane.outbound)


def messages(count: int, qos: int = 0) -> list[Message]:
    return [Message(b"r/%d" % number, b"x", qos, True) for number in range(count)]


def taken(client: Client) -> int:
    client.transport.flush()
    return len(packets(client.take()))


def test_replay_waits_for_a_client_that_does_not_keep_up() -> None:
    """QoS 1 beyond the window waits here, not in the backlog; a full out-buffer stops everything."""
    bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=200))
    client = bench.client("s")
    replay = make_replay(bench)
    client.transport.is_stuck = True

    replay.start(client.session, client.subscribe(b"r/#"), messages(50))
    replay.go_on()
    replay.go_on()
    assert len(client.connection.out) < 300
    client.transport.is_stuck = False
    seen = 0
    for _ in range(20):
        seen += taken(client)
        replay.go_on()

    assert seen == 50
    assert client.session.replay_topics is None


def test_two_expected_replays_end_with_the_second() -> None:
    """What came live is remembered as long as one of them may still overtake it."""
    bench = Bench()
    client = bench.client("s")
    replay = make_replay(bench)
    replay.expect(client.session)
    replay.expect(client.session)

    replay.start(client.session, client.subscribe(b"r/#"), [])
    assert client.session.replay_topics == set()
    replay.start(client.session, client.subscribe(b"r/+"), messages(1))

    assert client.session.replay_topics is None


def test_a_replay_ends_with_its_connection() -> None:
    bench = Bench(PlaneLimits(replay_slice=10))
    client = bench.client("s")
    bench.plane.replay(client.session, client.subscribe(b"r/#"), messages(100))

    client.drop()
    bench.pass_time(1)

    assert bench.plane.replays.running == []
    assert bench.plane.replays.expected == {}
    bench.plane.replay(client.session, client.subscribe(b"r/#"), messages(1))
    assert bench.plane.replays.running == []
