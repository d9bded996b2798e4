"""Messages that one hub stores for sessions whose clients another hub has: told at once, and never needed."""

from __future__ import annotations

import pytest

from iothub.engine.router import Subscription
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.queued_frames import Receiver, records
from iothub.testing.engine import ack, packets, publish
from tests.support.in_process.queued_hubs import QueuedHub, queued_pair
from tests.support.in_process.routed_hubs import Net, RoutedHub, payloads

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)


def reads(hub: QueuedHub) -> list[int]:
    """The positions after which pages were asked for and not read yet."""
    return [operation[3] for operation in hub.store.waiting if operation[0] == "read"]


@pytest.mark.parametrize("qos", [1, 2])
def test_session_that_has_caught_up_gets_it_from_memory(qos: int) -> None:
    """As after a commit of its own hub, and after that commit only: no page is read."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a/+", qos)
    one.know("s", b"a/+", TWO, qos)
    publisher = one.client("p")

    publisher.send(publish(b"a/1", b"x", qos, 1))
    net.settle()
    assert one.links.types(TWO).count(FrameType.QUEUED) == 0
    one.store.commit_all()
    net.settle()
    assert reads(two) == []
    two.store.commit_all()  # the reservation

    assert [(header >> 1 & 3, body[-1:]) for header, body in packets(subscriber.take())] == [(qos, b"x")]
    assert two.store.rows[7].tail == subscriber.session.loaded == 1


def test_options_and_message_are_as_the_queue_has_them() -> None:
    """QoS of the subscription, RETAIN as published, identifiers, properties and expiry; whatever this hub knows by now."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a", 2, version=5)
    session = one.know("s", b"b", TWO)
    one.plane.unsubscribe(session, None, b"b")
    for topic_filter, identifier in ((b"a", 5), (b"+", 268_435_455)):
        one.plane.subscribe(session, Subscription(session, topic_filter, None, 1, False, True, 0, identifier))
    publisher = one.client("p", version=5)

    publisher.send(publish(b"a", b"x", 2, 1, retain=True, properties=b"\x03\x00\x01t"))
    one.store.commit_all()
    net.settle()
    assert reads(two) == []
    two.store.commit_all()

    [(header, body)] = packets(subscriber.take())
    assert header == 0x33
    assert body[-1:] == b"x"
    assert b"\x03\x00\x01t" in body
    assert b"\x0b\x05" in body
    assert b"\x0b\xff\xff\xff\x7f" in body


def test_messages_of_a_turn_share_a_frame() -> None:
    """One for each hub; each message is in it once for all its receivers there."""
    net = Net(3, QueuedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two, three):
        hub.open()
    net.settle()
    clients = []
    for number, hub in enumerate((two, two, three), 11):
        clients.append(hub.keep(f"s{number}", b"a", queue_id=number))
        one.know(f"s{number}", b"a", hub.id, queue_id=number)
    one.links.sent.clear()

    one.client("p").send(b"".join(publish(b"a", b"%d" % number, 1, number) for number in range(1, 4)))
    one.plane.turn.begin()
    one.store.commit_all()
    one.plane.end_batch()
    bodies = {to: body for to, frame_type, body in one.links.sent if frame_type == FrameType.QUEUED}
    net.settle()
    for hub in (two, three):
        hub.store.commit_all()

    assert len(one.links.types()) == len(bodies) == 2
    assert len(bodies[TWO]) - len(bodies[THREE]) == 3 * len(Receiver("s11", 11, 1, 1).encode())
    assert [payloads(client) for client in clients] == [[b"1", b"2", b"3"]] * 3


def test_filter_that_is_on_its_way_for_another_client_makes_no_second_copy() -> None:
    """The publisher's hub stores by all subscriptions that the log has, whatever of them is announced."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a/+")
    subscriber.subscribe(b"a/#", 0)
    session = one.know("s", b"a/+", TWO)
    one.plane.subscribe(session, Subscription(session, b"a/#", None, 0))
    net.settle()
    net.deaf.add((TWO, ONE))
    two.subscribe(two.client("t"), b"a/+")
    net.settle()

    one.client("p").send(publish(b"a/b", b"x", 1, 1))
    one.store.commit_all()
    net.settle()
    two.bench.settle()

    assert payloads(subscriber) == [b"x"]


def test_gap_means_a_page() -> None:
    """What another hub has stored before, and did not tell, is read first; nothing comes twice."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    session = one.know("s", b"a", TWO)
    publisher = one.client("p")
    session.control.is_online_elsewhere = False
    publisher.send(publish(b"a", b"1", 1, 1))
    one.store.commit_all()
    session.control.is_online_elsewhere = True

    publisher.send(publish(b"a", b"2", 1, 2))
    one.store.commit_all()
    net.settle()
    assert reads(two) == [0]
    two.bench.settle()

    assert payloads(subscriber) == [b"1", b"2"]


def test_session_that_is_connected_elsewhere_from_now_on_hears_how_far_its_queue_was_written() -> None:
    """What was stored while this hub did not know where the client is."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    session = one.know("s", b"a", TWO)
    session.control.is_online_elsewhere = False
    one.client("p").send(publish(b"a", b"1", 1, 1))
    one.store.commit_all()
    net.settle()
    assert (reads(two), payloads(subscriber)) == ([], [])

    session.control.is_online_elsewhere = True
    for _ in range(2):
        one.queued.connected(session)
    net.settle()
    two.bench.settle()

    assert payloads(subscriber) == [b"1"]


def test_each_hub_that_has_the_client_after_another_hears_how_far_the_queue_was_written() -> None:
    """The log tells of every move: the first hub in it may have lost the client long ago, or lose the word."""
    net = Net(3, QueuedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two, three):
        hub.open()
    net.settle()
    subscriber = three.keep("s", b"a")
    session = one.know("s", b"a", TWO)
    session.control.is_online_elsewhere = False
    one.client("p").send(publish(b"a", b"1", 1, 1))
    one.store.commit_all()

    one.queued.connected(session)
    net.settle()
    assert (reads(three), payloads(subscriber)) == ([], [])
    session.control.place.holder = THREE.node
    one.queued.connected(session)
    net.settle()
    three.bench.settle()

    assert payloads(subscriber) == [b"1"]


def test_session_to_which_nothing_was_written_here_needs_no_word() -> None:
    net, one, _ = queued_pair()
    session = one.know("s", b"a", TWO)
    one.links.sent.clear()

    one.queued.connected(session)
    net.settle()

    assert one.links.sent == []


def test_hub_from_which_the_session_has_gone_passes_it_over() -> None:
    """Offline there, ended there, or begun anew with another queue."""
    net, one, two = queued_pair()
    one.know("s", b"a", TWO)
    publisher = one.client("p")
    kept = two.keep("s", b"a")

    def store(number: int) -> None:
        publisher.send(publish(b"a", b"%d" % number, 1, number))
        one.store.commit_all()
        net.settle()
        two.bench.settle()

    kept.drop()
    two.plane.detach(kept.session)
    store(1)
    assert kept.session.announced == 1
    two.plane.discard(kept.session)
    store(2)
    renewed = two.keep("s", b"a", queue_id=8)
    store(3)

    assert (payloads(renewed), renewed.session.announced, net.faults) == ([], 0, [])


@pytest.mark.parametrize("is_large", [True, False], ids=["a large message", "a link that is half full"])
def test_position_goes_alone_where_the_message_would_cost_too_much(is_large: bool) -> None:
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    one.know("s", b"a", TWO)
    payload = bytes(100_000 if is_large else 5_000)
    publisher = one.client("p")
    if not is_large:
        one.links.half_full.add(TWO)
        one.routes.peer(TWO).note_load()  # type: ignore[union-attr]

    publisher.send(publish(b"a", payload, 1, 1))
    one.store.commit_all()
    assert [len(body) < 100 for _, frame_type, body in one.links.sent if frame_type == FrameType.QUEUED] == [True]
    net.settle()
    assert reads(two) == [0]
    two.bench.settle()

    assert payloads(subscriber) == [payload]


def test_what_a_link_does_not_take_is_found_at_the_tail() -> None:
    """And is no drop: the queue has it."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    one.know("s", b"a", TWO)
    one.links.closed.add(TWO)

    assert one.client("p").send(publish(b"a", b"x", 1, 1)) == b""
    one.store.commit_all()
    net.settle()
    assert (payloads(subscriber), one.bench.observer.drops) == ([], [])
    two.plane.announce(subscriber.session, two.store.rows[7].tail)
    two.bench.settle()

    assert payloads(subscriber) == [b"x"]


def test_hub_that_has_not_opened_the_tenant_or_is_gone_hears_nothing() -> None:
    net = Net(2, QueuedHub)
    one, _ = net.hubs.values()
    one.open()
    net.settle()
    one.know("s", b"a", TWO)
    one.know("t", b"a", THREE, queue_id=9)

    assert one.client("p").send(publish(b"a", b"x", 1, 1)) == b""
    one.links.sent.clear()
    one.store.commit_all()

    assert one.links.sent == []


def test_hub_that_is_alone_tells_nobody() -> None:
    net = Net(1, RoutedHub)
    [hub] = net.hubs.values()

    assert hub.plane.turn.elsewhere is None
    client = hub.client("s", queue_id=7)
    client.subscribe(b"a", 1)
    hub.bench.settle()
    client.send(publish(b"a", b"x", 1, 1))
    hub.bench.settle()

    assert packets(client.take())[-1][1][-1:] == b"x"


def test_hubs_that_come_and_go_have_the_tails_looked_at() -> None:
    """What they said before may be lost."""
    net, one, two = queued_pair()
    before = one.looks

    net.add(THREE)
    assert one.looks == before + 1
    net.kill(two)

    assert one.looks == before + 2


def test_frame_of_a_tenant_that_the_sender_has_not_open_breaks_the_protocol() -> None:
    """Nothing of it is taken, whatever stands before."""
    _, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    told = [Receiver("s", 7, 1, 1)]
    body = b"".join((*records(1, None, told, 100), *records(2, None, told, 100)))

    with pytest.raises(BadFrameError):
        two.queued.frame(one.id, FrameType.QUEUED, body)
    with pytest.raises(BadFrameError):
        two.queued.frame(one.id, FrameType.PUBLISH, body)
    two.queued.frame(PeerId(9, 1), FrameType.QUEUED, body)  # nobody's

    assert (subscriber.session.announced, reads(two)) == (0, [])


def test_tenant_that_is_closed_here_has_nobody_to_tell() -> None:
    net, one, two = queued_pair()
    one.know("s", b"a", TWO)
    net.cut.add((TWO, ONE))
    two.close()
    one.client("p").send(publish(b"a", b"x", 1, 1))
    one.store.commit_all()

    net.settle()

    assert (net.faults, two.store.waiting) == ([], [])


def test_acknowledged_messages_move_the_head_of_the_shared_queue() -> None:
    """Positions and Packet Identifiers are as with messages of its own hub."""
    net, one, two = queued_pair()
    subscriber = two.keep("s", b"a")
    one.know("s", b"a", TWO)
    publisher = one.client("p")
    for number in range(1, 4):
        publisher.send(publish(b"a", b"%d" % number, 1, number))
        one.store.commit_all()
        net.settle()
        two.store.commit_all()
    identifiers = [int.from_bytes(body[3:5], "big") for _, body in packets(subscriber.take())]
    for identifier in identifiers:
        subscriber.send(ack(0x40, identifier))
    two.bench.settle()

    assert (identifiers, two.store.rows[7].head) == ([1, 2, 3], 3)
