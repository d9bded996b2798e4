"""Replays by themselves: slices, what was overtaken, and clients that go in the middle."""

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
    assert replay.running == {}


def test_what_overtakes_one_replay_is_sent_by_another() -> None:
    """Of two subscriptions of a session each has its own replay [MQTT-3.3.1-9]."""
    bench = Bench()
    client = bench.client("s")
    replay = make_replay(bench)

    replay.start(client.session, client.subscribe(b"r/#"), messages(2), lambda topic: topic == b"r/0")
    bench.plane.end_batch()
    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/1x"]
    replay.start(client.session, client.subscribe(b"r/+"), messages(2), lambda topic: False)
    bench.plane.end_batch()

    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/0x", b"\x00\x03r/1x"]


def test_what_is_overtaken_while_a_slice_waits_is_left_out() -> None:
    """It is asked for each message when that is sent, not when its page comes."""
    bench = Bench(PlaneLimits(replay_slice=1))
    client = bench.client("s")
    overtaken: set[bytes] = set()
    bench.plane.replay(client.session, client.subscribe(b"r/#"), messages(3), overtaken.__contains__)
    overtaken.add(b"r/1")

    bench.pass_time(1)

    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/0x", b"\x00\x03r/2x"]


def test_filter_that_is_subscribed_again_ends_its_earlier_replay() -> None:
    """Whoever feeds that one is called, and brings no more."""
    bench = Bench(PlaneLimits(out_soft_bytes=0))
    client = bench.client("s")
    replay = bench.plane.replays
    called: list[int] = []
    client.transport.is_stuck = True
    client.connection.out += b"x"
    earlier = replay.open(client.session, client.subscribe(b"r/#"))
    assert not replay.feed(earlier, messages(3), lambda: called.append(1))

    later = replay.open(client.session, client.subscribe(b"r/#"))

    assert (called, earlier.is_wanted, later.is_wanted) == ([1], False, True)
    assert replay.running == {client.session: {(None, b"r/#"): later}}


def test_a_replay_ends_with_its_connection() -> None:
    bench = Bench(PlaneLimits(replay_slice=10))
    client = bench.client("s")
    bench.plane.replay(client.session, client.subscribe(b"r/#"), messages(100))

    client.drop()
    bench.pass_time(1)

    assert bench.plane.replays.running == {}
    bench.plane.replay(client.session, client.subscribe(b"r/#"), messages(1))
    assert bench.plane.replays.running == {}


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
    assert replay.running == {client.session: {(None, b"r/#"): running}}

    assert replay.feed(running, [], None)
    assert replay.running == {}


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
