"""Replays by themselves: slices, what was overtaken, whose turn it is, and clients that go in the middle."""

from __future__ import annotations

from collections import deque
from typing import Any, cast

import pytest

from iothub.engine.limits import PlaneLimits
from iothub.engine.message import Message
from iothub.engine.outbox import RETAIN_FLAG
from iothub.engine.replay import Overtaken, Replay, Replays
from iothub.testing.engine import Bench, Client, packets

NO_PAGES = cast("Any", None)  # nothing here reads any


def messages(count: int, qos: int = 0) -> list[Message]:
    return [Message(b"r/%d" % number, b"x", qos, True) for number in range(count)]


def taken(client: Client) -> int:
    client.transport.flush()
    return len(packets(client.take()))


def opened(
    client: Client,
    filter: bytes = b"r/#",
    overtaken: Overtaken = lambda _messages: (),
    qos: int = 0,
    identifier: int = 0,
) -> deque[Replay]:
    """Subscribe; the session's queue, of which this replay is the first."""
    replays: Replays = client.bench.plane.replays
    subscription = client.subscribe(filter, qos, identifier=identifier)
    queue = replays.open(client.session, subscription, NO_PAGES, overtaken)
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


@pytest.mark.parametrize(("waiting", "is_sent"), [(100, True), (101, False)])
def test_replay_fills_half_of_what_live_messages_may(waiting: int, is_sent: bool) -> None:
    """An out-buffer that is fuller than half of its soft limit gets nothing more."""
    bench = Bench(PlaneLimits(out_soft_bytes=200))
    client = bench.client("s")
    client.transport.is_stuck = True
    client.connection.out += bytes(waiting)

    assert bench.plane.replays.feed(opened(client)[0], messages(1), lambda: None) == is_sent


@pytest.mark.parametrize(("window", "sent"), [(5, 15), (0, 10)])
def test_replay_leaves_room_in_the_backlog(window: int, sent: int) -> None:
    """As many as a slice has may wait there, and the next message is not put behind them."""
    bench = Bench(PlaneLimits(replay_slice=10))
    client = bench.client("s", receive_maximum=window)
    replay = opened(client, qos=1)[0]

    assert not bench.plane.replays.feed(replay, messages(50, qos=1), lambda: None)
    bench.pass_time(1)

    assert replay.index == sent
    assert client.session.backlog_length() == 10


def test_replay_to_a_queue_waits_for_the_store() -> None:
    """What is handed to it and not yet durable is bounded for live messages, and for these."""
    bench = Bench(PlaneLimits(unstored_messages=2))
    client = bench.client("s", queue_id=7)
    replay = opened(client, qos=1)[0]

    assert not bench.plane.replays.feed(replay, messages(5, qos=1), lambda: None)
    assert (replay.index, bench.store.appends) == (2, 2)

    bench.store.commit_all()
    bench.pass_time(0.1)
    assert replay.index == 4


def test_message_for_a_queue_keeps_what_its_delivery_needs() -> None:
    """RETAIN, the QoS that was granted, and the Subscription Identifier; it is not retained anew [MQTT-3.3.4-3]."""
    bench = Bench()
    client = bench.client("s", queue_id=7)
    for qos in (1, 2):
        queue = opened(client, b"%d" % qos, qos=qos, identifier=qos * 10)
        assert bench.plane.replays.feed(queue[0], messages(1, qos=2), lambda: None)
        bench.plane.replays.finish(queue)
    bench.store.commit()

    records = bench.store.queue(7).records.values()
    assert [(each.qos, each.flags, each.subscription_ids) for each in records] == [
        (1, RETAIN_FLAG, (10,)),
        (2, RETAIN_FLAG, (20,)),
    ]
    assert bench.store.retained == {}


@pytest.mark.parametrize("queue_id", [0, 7])
def test_message_that_needs_no_queue_goes_at_once(queue_id: int) -> None:
    """QoS 0 to every session, anything to a transient one; without an identifier none is sent."""
    bench = Bench()
    client = bench.client("s", queue_id=queue_id, version=5)
    sent = messages(1) if queue_id else messages(1, qos=1)
    assert bench.plane.replays.feed(opened(client, qos=1, identifier=10)[0], sent, lambda: None)
    bench.plane.send_retained(client.session, client.subscribe(b"x"), messages(1))

    body = b"\x00\x03r/0" + (b"" if queue_id else b"\x00\x01")
    assert packets(client.take()) == [
        (0x31 if queue_id else 0x33, body + b"\x02\x0b\x0ax"),
        (0x31, b"\x00\x03r/0\x00x"),
    ]
    assert bench.store.appends == 0


def test_page_is_forgotten_when_it_is_through_or_nobody_waits_for_it() -> None:
    """The replay itself stays until whoever sends it goes on."""
    bench = Bench(PlaneLimits(replay_slice=1))
    client = bench.client("s")
    replays = bench.plane.replays
    first = opened(client)[0]

    assert replays.feed(first, messages(1), lambda: None)
    assert list(first.messages) == []

    assert not replays.feed(first, messages(2), lambda: None)
    client.drop()
    assert list(first.messages) == []


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
    queue = opened(client, b"r/#", lambda _messages: {b"r/0"})
    assert replays.open(client.session, client.subscribe(b"r/+"), NO_PAGES, lambda _messages: ()) is None

    for _ in range(2):
        assert replays.feed(queue[0], messages(2), lambda: None)
        replays.finish(queue)
    bench.plane.end_batch()

    assert [body for _, body in packets(client.take())] == [b"\x00\x03r/1x", b"\x00\x03r/0x", b"\x00\x03r/1x"]


def test_message_that_others_are_sent_as_well_gets_no_id_of_a_queue() -> None:
    """What goes to a queue is a copy: a page may be sent to many sessions."""
    bench = Bench()
    client = bench.client("s", queue_id=7)
    sent = messages(1, qos=1)

    assert bench.plane.replays.feed(opened(client, qos=1)[0], sent, lambda: None)

    assert bench.store.appends == 1
    assert sent[0].message_id == b""


def test_what_is_overtaken_while_a_slice_waits_is_left_out() -> None:
    """It is asked for each slice when that is sent, not when its page comes."""
    bench = Bench(PlaneLimits(replay_slice=1))
    client = bench.client("s")
    overtaken: set[bytes] = set()
    bench.plane.replays.feed(opened(client, overtaken=lambda _messages: overtaken)[0], messages(3), lambda: None)
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

    assert replays.open(client.session, client.subscribe(b"r/#"), NO_PAGES, lambda _messages: ()) is None

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
        replays.open(client.session, client.subscribe(filter), NO_PAGES, lambda _messages: ())
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
    replays.open(client.session, client.subscribe(b"r/+"), NO_PAGES, lambda _messages: ())
    assert not replays.feed(first, messages(3), lambda: called.append(1))

    client.drop()

    assert called == [1]
    assert [each.is_over for each in queue] == [True, True]
    assert replays.feed(first, messages(3), lambda: called.append(2))
    assert called == [1]
    assert replays.queues == {}
    assert replays.open(client.session, client.subscribe(b"r/#"), NO_PAGES, lambda _messages: ()) is None
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
