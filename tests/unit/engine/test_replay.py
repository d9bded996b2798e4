"""Replays by themselves: slices, expectations, and clients that go in the middle."""

from __future__ import annotations

from iothub.engine.limits import PlaneLimits
from iothub.engine.message import Message
from iothub.engine.replay import LIVE_TOPICS, Replay
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


def test_page_by_page_the_feeder_is_called_when_a_page_is_through() -> None:
    """Not before, once for each, and not for what went at once."""
    bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=200))
    client = bench.client("s")
    replay = make_replay(bench)
    called: list[int] = []
    running = replay.open(client.session, client.subscribe(b"r/#"))
    assert replay.feed(running, messages(1), lambda: called.append(1))
    client.transport.is_stuck = True
    assert not replay.feed(running, messages(30), lambda: called.append(2))
    replay.go_on()
    assert called == []

    client.transport.is_stuck = False
    for _ in range(20):
        taken(client)
        replay.go_on()
    assert called == [2]
    assert replay.running == [running]

    assert replay.feed(running, [], None)
    assert replay.running == []
    assert client.session.replay_topics is None


def test_feeder_is_called_when_the_connection_ends() -> None:
    """What it brings then is dropped."""
    bench = Bench(PlaneLimits(out_soft_bytes=0))
    client = bench.client("s")
    called: list[int] = []
    replay = bench.plane.replays
    running = replay.open(client.session, client.subscribe(b"r/#"))
    client.transport.is_stuck = True
    client.connection.out += b"x"
    assert not replay.feed(running, messages(3), lambda: called.append(1))

    client.drop()

    assert called == [1]
    assert not running.is_wanted
    assert replay.feed(running, messages(3), lambda: called.append(2))
    assert called == [1]


def test_names_of_live_topics_are_not_collected_without_end() -> None:
    """So many are remembered; they are still skipped when later ones are not noted any more."""
    bench = Bench(PlaneLimits(replay_slice=10))
    client = bench.client("s")
    replay = make_replay(bench)
    running = replay.open(client.session, client.subscribe(b"r/#"))
    assert client.session.replay_topics is not None
    client.session.replay_topics.update(b"r/%d" % number for number in range(LIVE_TOPICS + 1))

    replay.go_on()

    assert client.session.replay_topics is None
    replay.feed(running, [*messages(1), Message(b"r/new", b"x", 0, True)], None)
    client.transport.flush()
    assert [body for _, body in packets(client.take())] == [b"\x00\x05r/newx"]
