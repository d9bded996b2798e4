"""Shared groups: one member per message, the congested passed over, the offline last, and what happens when a member's session ends."""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.testing.engine import Bench, Client, ack, packets, publish


def members(bench: Bench, count: int, **options: object) -> list[Client]:
    clients = [bench.client(f"m{number}", **options) for number in range(count)]  # type: ignore[arg-type]
    for client in clients:
        client.subscribe(b"job", 1, group=b"g")
    return clients


def taken(client: Client) -> int:
    return len(packets(client.take()))


def test_a_group_takes_turns() -> None:
    """Each message goes to one member [MQTT-4.8.2-4]."""
    bench = Bench()
    clients = members(bench, 3)

    bench.client("p").send(publish(b"job", b"x", 1, 1) * 9)

    assert [taken(client) for client in clients] == [3, 3, 3]


def test_a_congested_member_is_passed_over() -> None:
    """A full window is somebody else's work, unless all are full."""
    bench = Bench()
    slow, fast = members(bench, 2)
    slow.session.open_window().limit = 1
    fast.session.open_window().limit = 6
    publisher = bench.client("p")

    publisher.send(publish(b"job", b"x", 1, 1) * 8)
    assert slow.session.backlog_length() == 1
    publisher.send(publish(b"job", b"x", 1, 1) * 4)

    assert taken(slow) + taken(fast) == 7
    assert slow.session.backlog_length() + fast.session.backlog_length() == 5


def test_whoever_comes_to_a_group_of_congested_members_gets_the_next_message() -> None:
    """A persistent one that returns, and one that was connected and subscribes."""
    bench = Bench()
    leaving, new = bench.client("r", queue_id=7), bench.client("n")
    leaving.subscribe(b"job", 0, group=b"g")
    leaving.transport.is_stuck = True
    members(bench, 1, receive_maximum=1)
    publisher = bench.client("p")
    for _ in range(8):
        publisher.send(publish(b"job", b"x", 1, 1))
    leaving.drop()

    returning = bench.client("r", queue_id=7)
    for _ in range(2):
        publisher.send(publish(b"job", b"x", 1, 1))
    assert taken(returning) == 2

    returning.transport.is_stuck = True
    for _ in range(8):
        publisher.send(publish(b"job", b"x", 1, 1))
    new.subscribe(b"job", 1, group=b"g")
    for _ in range(2):
        publisher.send(publish(b"job", b"x", 1, 1))
    assert taken(new) == 2


def test_congested_member_that_has_gone_gets_nothing() -> None:
    """Its connection ends with the batch, or has ended, and it was online when all were found to be congested."""
    bench = Bench()
    going = bench.client("r", queue_id=7, receive_maximum=1)
    going.subscribe(b"job", 0, group=b"g")
    going.transport.is_stuck = True
    [congested] = members(bench, 1, receive_maximum=1)
    publisher = bench.client("p")
    publisher.send(publish(b"job", b"x", 1, 1) * 8)
    waiting = congested.session.backlog_length()
    publisher.connection.feed(publish(b"job", b"x", 1, 1))
    going.connection.feed(b"\xff\xff")

    publisher.send(publish(b"job", b"x", 1, 1) * 2)
    publisher.send(publish(b"job", b"x", 1, 1) * 2)

    assert congested.session.backlog_length() >= waiting + 4


def test_member_at_another_hub_is_looked_for_while_those_here_are_congested() -> None:
    """It may have become free, of which nobody hears here."""
    bench = Bench()
    members(bench, 2, receive_maximum=1)
    publisher = bench.client("p")
    session = at_another_hub(bench, "e", 7)
    session.control = Control(is_online_elsewhere=False)
    publisher.send(publish(b"job", b"x", 1, 1) * 8)
    session.control = Control(is_online_elsewhere=True)

    publisher.send(publish(b"job", b"x", 1, 1))

    assert queued(bench, 7) == [1]


def test_congested_member_that_another_hub_has_now_is_free_again() -> None:
    """It was here when all were found to be congested, and nobody has become free here since."""
    bench = Bench()
    bench.tenant.interest = Interest()
    members(bench, 2, receive_maximum=1)
    moving = bench.client("r", queue_id=7, receive_maximum=1)
    moving.session.control = Control(is_online_elsewhere=False)
    moving.subscribe(b"job", 1, group=b"g")
    publisher = bench.client("p", inbound_maximum=65535)
    for number in range(1, 20):
        publisher.send(publish(b"job", b"x", 1, number))
        bench.settle()
    moving.drop()
    bench.plane.detach(moving.session)
    moving.session.control.is_online_elsewhere = True
    [before] = queued(bench, 7)

    for number in range(20, 50):
        publisher.send(publish(b"job", b"x", 1, number))

    assert queued(bench, 7)[0] - before >= 28  # the two others may have their turn once more


def test_an_offline_member_gets_it_only_when_nobody_is_online() -> None:
    """One persistent member's queue, always the same one for a publisher."""
    bench = Bench()
    offline = [bench.client(f"o{number}", queue_id=number) for number in (7, 8)]
    for client in offline:
        client.subscribe(b"job", 1, group=b"g")
        client.drop()
    bench.settle()
    [online] = members(bench, 1)
    publisher = bench.client("p")

    publisher.send(publish(b"job", b"x", 1, 1))
    assert taken(online) == 1
    online.send(ack(0x40, 1))
    online.drop()
    bench.plane.discard(online.session)
    publisher.send(publish(b"job", b"x", 1, 1) * 3)
    bench.settle()

    assert sorted(bench.store.queue(number).tail for number in (7, 8)) == [0, 3]


@dataclass
class Control:
    """The control plane's half of a session."""

    is_online_elsewhere: bool


class Interest:
    """Other hubs are there."""

    def replace(self, before: Subscription | None, after: Subscription | None) -> None:
        """They hear nothing."""


def at_another_hub(bench: Bench, client_id: str, queue_id: int, qos: int = 1) -> Session:
    """A persistent member whose client another hub has."""
    bench.tenant.interest = Interest()
    session = bench.plane.create_session(bench.tenant, client_id, client_id, is_persistent=True, queue_id=queue_id)
    session.control = Control(is_online_elsewhere=True)
    bench.plane.subscribe(session, Subscription(session, b"job", b"g", qos))
    return session


def queued(bench: Bench, *queue_ids: int) -> list[int]:
    bench.settle()
    return [bench.store.queue(number).tail for number in queue_ids]


def test_members_that_are_online_at_another_hub_take_turns_before_those_offline() -> None:
    """Their queues get it, and their hub delivers."""
    bench = Bench()
    offline = bench.client("o", queue_id=6)
    offline.subscribe(b"job", 1, group=b"g")
    offline.drop()
    for number in (7, 8):
        at_another_hub(bench, f"e{number}", number)

    bench.client("p").send(publish(b"job", b"x", 1, 1) * 4)

    assert queued(bench, 6, 7, 8) == [0, 2, 2]


def test_a_member_here_is_preferred_unless_it_is_congested() -> None:
    bench = Bench()
    at_another_hub(bench, "e", 7)
    [here] = members(bench, 1, receive_maximum=1)

    bench.client("p").send(publish(b"job", b"x", 1, 1) * 4)

    assert (taken(here), queued(bench, 7)) == (1, [2])  # one is sent, one waits for the window, then it is congested


def test_a_member_at_another_hub_is_offline_for_what_its_queue_does_not_store() -> None:
    """QoS 0 is not brought to another hub by a queue."""
    bench = Bench()
    at_another_hub(bench, "e", 7)
    at_another_hub(bench, "z", 8, qos=0)

    bench.client("p").send(publish(b"job", b"x") + publish(b"job", b"x", 1, 1))

    assert queued(bench, 7, 8) == [1, 0]
    assert bench.observer.drops == [(Drop.QOS0_OFFLINE, 1)]


def test_the_choice_among_those_offline_is_the_same_at_every_hub() -> None:
    """Neither the order in which the members came nor the process makes a difference."""
    ids = list(range(1, 9))
    found = []
    for order in (ids, ids[::-1], ids[3:] + ids[:3]):
        bench = Bench()
        for number in order:
            client = bench.client(f"o{number}", queue_id=number)
            client.subscribe(b"job", 1, group=b"g")
            client.drop()
        for publisher in ("p", "device-1", "\u00e9"):
            bench.client(publisher).send(publish(b"job", b"x", 1, 1))
        found.append(queued(bench, *ids))

    assert found == [[0, 2, 0, 0, 0, 0, 1, 0]] * 3


def test_a_member_that_subscribes_again_gets_it_by_its_new_subscription() -> None:
    bench = Bench()
    offline = bench.client("o", queue_id=7)
    publisher = bench.client("p")
    found = []
    for qos in (1, 2):
        offline.subscribe(b"job", qos, group=b"g")
        bench.plane.detach(offline.session)
        publisher.send(publish(b"job", b"x", 2, qos))
        bench.settle()
        found.append(bench.store.queue(7).records[qos].qos)

    assert found == [1, 2]


def test_unacknowledged_qos1_goes_to_another_member_when_a_session_ends() -> None:
    """Neither what was not sent is lost nor what was sent and not acknowledged, §4.8.2."""
    bench = Bench()
    [first] = members(bench, 1, receive_maximum=1)
    publisher = bench.client("p")
    publisher.send(b"".join(publish(b"job", b"%d" % number, 1, number) for number in (1, 2, 3)))
    second = bench.client("n")
    second.subscribe(b"job", 1, group=b"g")

    first.drop()
    bench.plane.discard(first.session)

    assert [body[-1:] for _, body in packets(second.take())] == [b"1", b"2", b"3"]
    second.send(ack(0x40, 1) + ack(0x40, 2) + ack(0x40, 3))
    assert bench.tenant.buffered_bytes == 0


def test_without_another_member_it_is_dropped_by_name() -> None:
    bench = Bench()
    [only] = members(bench, 1, receive_maximum=1)
    bench.client("p").send(publish(b"job", b"x", 1, 1) * 2)

    only.drop()
    bench.plane.discard(only.session)

    assert bench.tenant.counters.dropped == {Drop.SESSION_ENDED: 2}


def test_control_plane_is_notified_when_its_messages_are_durable() -> None:
    """`on_done` of a will waits for the commit."""
    bench = Bench()
    bench.client("s", queue_id=7).subscribe(b"will", 1)
    bench.settle()
    codes: list[int] = []

    bench.plane.publish(bench.tenant, Message(b"will", b"x", 1), codes.append)
    assert codes == []
    bench.store.commit()

    assert codes == [0]
