"""Replays by themselves: slices, what was overtaken, whose turn it is, and clients that go in the middle."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

from iothub.engine.limits import PlaneLimits
from iothub.engine.message import Message
from iothub.engine.replay import IsOvertaken, Replay, Replays
from iothub.testing.engine import Bench, Client, packets

NO_PAGES = cast("Any", None)  # nothing here reads any


def messages(count: int, qos: int = 0) -> list[Message]:
    return [Message(b"r/%d" % number, b"x", qos, True) for number in range(count)]


def taken(client: Client) -> int:
    client.transport.flush()
    return len(packets(client.take()))


def opened(client: Client, filter: bytes = b"r/#", is_overtaken: IsOvertaken = lambda _topic: False) -> deque[Replay]:
    """Subscribe; the replay, which is the first one of the session's queue."""
    replays: Replays = client.bench.plane.replays
    queue = replays.open(client.session, client.subscribe(filter), NO_PAGES, is_overtaken)
    assert queue is not None
    return queue


def stuck(bench: Bench) -> Client:
    """A client to which nothing may be sent."""
    client = bench.client("s")
    client.transport.is_stuck = True
    client.connection.out += b"x"
    return client


def test_replay_waits_for_a_client_that_does_not_keep_up() -> None:
    """QoS 1 beyond the window waits here, not in the backlog; a full out-buffer stops everything."""
    bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=200))
    client = bench.client("s")
    replays = bench.plane.replays
    client.transport.is_stuck = True
    called: list[int] = []

    assert not replays.feed(opened(client)[0], messages(50), lambda: called.append(1))
    replays.go_on()
    replays.go_on()
    assert len(client.connection.out) < 300
    client.transport.is_stuck = False
    seen = 0
    for _ in range(20):
        seen += taken(client)
        replays.go_on()

    assert seen == 50
    assert called == [1]


def test_long_page_is_sliced_and_bounded() -> None:
    """Thousands of retained messages do not fill the backlog."""
    bench = Bench()
    client = bench.client("s", receive_maximum=10)

    assert not bench.plane.replays.feed(opened(client)[0], messages(1000), lambda: None)
    bench.plane.end_batch()
    first = taken(client)
    bench.pass_time(0.5)

    assert first == 256
    assert first + taken(client) == 1000


def test_what_overtakes_one_replay_is_sent_by_another() -> None:
    """Each replay of a session answers for itself [MQTT-3.3.1-9]."""
    bench = Bench()
    client = bench.client("s")
    replays = bench.plane.replays
    queue = opened(client, b"r/#", lambda topic: topic == b"r/0")
    assert replays.open(client.session, client.subscribe(b"r/+"), NO_PAGES, lambda _topic: False) is None

    for _ in range(2):
        assert replays.feed(queue[0], messages(2), lambda: None)
        replays.finish(queue)
    bench.plane.end_batch()

    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/1x", b"\x00\x03r/0x", b"\x00\x03r/1x"]


def test_what_is_overtaken_while_a_slice_waits_is_left_out() -> None:
    """It is asked for each message when that is sent, not when its page comes."""
    bench = Bench(PlaneLimits(replay_slice=1))
    client = bench.client("s")
    overtaken: set[bytes] = set()
    bench.plane.replays.feed(opened(client, is_overtaken=overtaken.__contains__)[0], messages(3), lambda: None)
    bench.plane.end_batch()
    overtaken.add(b"r/1")

    bench.pass_time(1)

    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/0x", b"\x00\x03r/2x"]


def test_filter_that_is_subscribed_again_waits_for_its_earlier_replay() -> None:
    """Both are sent: nothing ends the first one [MQTT-3.8.4-4]."""
    client = stuck(Bench(PlaneLimits(out_soft_bytes=0)))
    replays = client.bench.plane.replays
    queue = opened(client)
    first = queue[0]
    assert not replays.feed(first, messages(3), lambda: None)

    assert replays.open(client.session, client.subscribe(b"r/#"), NO_PAGES, lambda _topic: False) is None

    assert [each.is_over for each in queue] == [False, False]
    assert replays.count(client.session) == 2
    replays.finish(queue)
    assert (first.is_over, queue[0].is_over, replays.count(client.session)) == (True, False, 1)


def test_unsubscribe_ends_every_replay_of_its_filter_and_group() -> None:
    """They leave the queue, but for the first one: whoever feeds that is called when all are over, and brings no more."""
    client = stuck(Bench(PlaneLimits(out_soft_bytes=0)))
    replays = client.bench.plane.replays
    queue = opened(client, b"a")
    for filter in (b"b", b"a"):
        replays.open(client.session, client.subscribe(filter), NO_PAGES, lambda _topic: False)
    first, second, third = queue
    called: list[list[bool]] = []
    assert not replays.feed(
        first, messages(3), lambda: called.append([each.is_over for each in (first, second, third)])
    )

    client.bench.plane.unsubscribe(client.session, b"group", b"a")
    assert called == []
    client.bench.plane.unsubscribe(client.session, None, b"a")

    assert called == [[True, False, True]]
    assert list(queue) == [first, second]
    assert replays.feed(first, messages(3), lambda: called.append([]))
    client.bench.pass_time(1)
    assert len(called) == 1
    assert client.connection.out == b"x"


def test_replays_end_with_their_connection() -> None:
    """Whoever feeds is called; what it brings then is dropped, and nothing begins without a connection."""
    client = stuck(Bench(PlaneLimits(out_soft_bytes=0)))
    called: list[int] = []
    replays = client.bench.plane.replays
    queue = opened(client)
    first = queue[0]
    replays.open(client.session, client.subscribe(b"r/+"), NO_PAGES, lambda _topic: False)
    assert not replays.feed(first, messages(3), lambda: called.append(1))

    client.drop()

    assert called == [1]
    assert [each.is_over for each in queue] == [True, True]
    assert replays.feed(first, messages(3), lambda: called.append(2))
    assert called == [1]
    assert replays.queues == {}
    assert replays.open(client.session, client.subscribe(b"r/#"), NO_PAGES, lambda _topic: False) is None
    assert replays.queues == {}


def test_queue_of_an_ended_connection_leaves_the_next_one_alone() -> None:
    """Its last replays are finished when the session has begun others."""
    bench = Bench()
    client = bench.client("s", queue_id=7)
    before = opened(client)
    client.drop()
    client.session.connection = bench.client("t").connection

    after = opened(client)
    bench.plane.replays.finish(before)

    assert bench.plane.replays.queues == {client.session: after}
    bench.plane.replays.finish(after)
    assert bench.plane.replays.queues == {}


def test_page_by_page_the_feeder_is_called_when_a_page_is_through() -> None:
    """Not before, once for each, and not for what went at once."""
    bench = Bench(PlaneLimits(replay_slice=10, out_soft_bytes=200))
    client = bench.client("s")
    replays = bench.plane.replays
    called: list[int] = []
    replay = opened(client)[0]
    assert replays.feed(replay, messages(1), lambda: called.append(1))
    client.transport.is_stuck = True
    assert not replays.feed(replay, messages(30), lambda: called.append(2))
    replays.go_on()
    assert called == []

    client.transport.is_stuck = False
    for _ in range(20):
        taken(client)
        replays.go_on()

    assert called == [2]
    assert replays.feed(replay, [], lambda: called.append(3))
    assert called == [2]
