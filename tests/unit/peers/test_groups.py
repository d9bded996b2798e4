"""Messages of shared groups whose members are at several hubs: who gets each, and what becomes of those that a member does not get."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import Drop
from iothub.engine.limits import TenantLimits
from iothub.engine.message import Message
from iothub.engine.router import Subscription
from iothub.peers.frames import FrameType
from iothub.peers.group_frames import GroupNumbers, GroupPublish, decode_group_publishes
from iothub.peers.peer_groups import CONGESTED_S
from iothub.peers.ports import PeerId
from iothub.testing.engine import Client, ack, packets, publish
from tests.support.in_process.routed_hubs import Net, RoutedHub, open_pair

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)
Trio = tuple[Net[RoutedHub], RoutedHub, RoutedHub, RoutedHub]


def open_three() -> Trio:
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two, three):
        hub.open()
    net.settle()
    return net, one, two, three


def join(net: Net[RoutedHub], hub: RoutedHub, name: str, qos: int = 1, **options: object) -> Client:
    """A client in the group `g` of `job/#`."""
    client = hub.client(name, **options)
    client.subscribe(b"job/#", qos, group=b"g")
    net.settle()
    return client


def jobs(first: int, last: int, qos: int = 1) -> bytes:
    return b"".join(publish(b"job/1", b"%d" % number, qos, number) for number in range(first, last + 1))


def take(client: Client, *, is_answered: bool = True) -> list[bytes]:
    """The payloads that came; each is acknowledged, with QoS 2 up to PUBCOMP."""
    found = []
    for header, body in packets(client.take()):
        if header >> 4 != 3:
            continue
        qos, begins = header >> 1 & 3, 2 + int.from_bytes(body[:2], "big")
        found.append(body[begins + 2 * (qos > 0) :])
        packet_id = int.from_bytes(body[begins : begins + 2], "big")
        for answer in ((0x40,), (0x50, 0x70))[qos - 1] if qos and is_answered else ():
            client.transport.written += client.send(ack(answer, packet_id))
    return found


def end(net: Net[RoutedHub], hub: RoutedHub, client: Client) -> None:
    """The client of a transient session goes."""
    client.drop()
    hub.plane.discard(client.session)
    net.settle()


def held(*hubs: RoutedHub) -> list[int]:
    """Bytes that the planes count as buffered."""
    return [hub.plane.turn.buffered_bytes for hub in hubs]


def drops(hub: RoutedHub) -> list[tuple[Drop, int]]:
    return hub.bench.observer.drops


# --- who gets it


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_member_at_another_hub_gets_each_message_once(qos: int) -> None:
    """All of a hundred; then nothing is kept anywhere."""
    net, one, two = open_pair()
    member, publisher = join(net, two, "m", 2), one.client("p", inbound_maximum=1_000)
    found = []
    for first in range(1, 101, 10):
        publisher.send(jobs(first, first + 9, qos))
        net.settle()
        found += take(member)
        net.settle()

    assert found == [b"%d" % number for number in range(1, 101)]
    assert (held(one, two), drops(one), drops(two)) == ([0, 0], [], [])


def test_members_here_are_preferred_and_hubs_take_turns() -> None:
    """A hub is one member among others: it chooses of its own clients by turns, too."""
    net, one, two, three = open_three()
    clients = [join(net, hub, f"m{number}") for number, hub in enumerate((two, two, three))]
    publisher = one.client("p")
    publisher.send(jobs(1, 8))
    net.settle()
    there = [len(take(client)) for client in clients]
    here = join(net, one, "here")
    publisher.send(jobs(9, 12))
    net.settle()

    assert there == [2, 2, 4]
    assert (len(take(here)), [take(client) for client in clients]) == (4, [[], [], []])


def test_one_member_of_each_group_and_the_plain_subscriber_get_it() -> None:
    """Groups are their names and filters."""
    net, one, two = open_pair()
    clients = []
    for group, topic_filter in ((b"g", b"job/#"), (b"g", b"job/+"), (b"h", b"job/#"), (None, b"job/1")):
        clients.append(two.client(f"m{len(clients)}"))
        clients[-1].subscribe(topic_filter, 1, group=group)
    net.settle()

    one.client("p").send(jobs(1, 2))
    net.settle()

    assert [take(client) for client in clients] == [[b"1", b"2"]] * 4


def test_a_congested_member_here_is_passed_over() -> None:
    """Its hub's own does not come first any more."""
    net, one, two = open_pair()
    here, there = join(net, one, "here", receive_maximum=1), join(net, two, "there")

    one.client("p").send(jobs(1, 4))
    net.settle()

    assert (take(here, is_answered=False), take(there)) == ([b"1"], [b"3", b"4"])  # 2 waits for the window


def test_qos_0_reaches_persistent_members_at_another_hub_that_are_online() -> None:
    """No queue brings it. QoS 1 is for their queues: it does not cross the link."""
    net, one, two = open_pair()
    online = join(net, two, "on", queue_id=7)
    other = one.plane.create_session(one.tenant, "on", "on", is_persistent=True, queue_id=7)
    other.control = Control(is_online_elsewhere=True)
    one.plane.subscribe(other, Subscription(other, b"job/#", b"g", 1))

    one.client("p").send(publish(b"job/1", b"0") + jobs(1, 1))
    net.settle()
    one.bench.settle()

    assert take(online) == [b"0"]
    assert (one.bench.store.queue(7).tail, two.bench.store.appends, drops(one)) == (1, 0, [])


@dataclass
class Control:
    """The control plane's half of a session."""

    is_online_elsewhere: bool


def test_a_subscription_to_a_group_waits_until_all_hubs_know_it() -> None:
    """As one to a plain Topic Filter does."""
    net, _one, two = open_pair()
    net.cut.add((TWO, ONE))
    client = two.client("m")
    client.subscribe(b"job/#", 1, group=b"g")
    done = two.routed(b"$share/g/job/#")
    net.settle()
    waiting = list(done)
    net.cut.clear()
    net.settle()

    assert (waiting, done) == ([], [True])


def test_retain_and_qos_are_decided_where_the_member_is() -> None:
    net, one, two = open_pair()
    client = two.client("m")
    client.subscribe(b"job/#", 1, group=b"g", retain_as_published=True)
    net.settle()

    one.plane.publish(one.tenant, Message(b"job/1", b"x", 2, retain=True))
    net.settle()

    assert [header for header, _ in packets(client.take())] == [0x33]


# --- when a member does not get it


@pytest.mark.parametrize("qos", [1, 2])
def test_what_a_hub_had_not_given_to_a_client_when_it_went_is_chosen_anew(qos: int) -> None:
    """At once, for those that are left."""
    net, one, two, three = open_three()
    join(net, two, "m", 2)
    other = join(net, three, "n", 2)
    publisher = one.client("p")
    net.cut.add((ONE, TWO))

    publisher.send(jobs(1, 4, qos))
    net.settle()
    early = take(other)
    net.kill(two)
    net.settle()

    assert sorted(early + take(other)) == [b"1", b"2", b"3", b"4"]
    net.settle()
    assert (held(one, three), drops(one)) == ([0, 0], [])


def test_qos_1_that_a_client_has_not_acknowledged_goes_to_another_when_its_hub_is_gone() -> None:
    """At least once; QoS 2 may have been read there, and goes to nobody else."""
    net, one, two = open_pair()
    first = join(net, two, "m", 2)
    publisher = one.client("p")
    publisher.send(jobs(1, 1) + jobs(2, 2, 2))
    net.settle()
    there = take(first, is_answered=False)
    one.links.sent.clear()
    net.cut.add((TWO, ONE))  # GROUP_DONE of the QoS 2 has arrived before
    other = join(net, one, "n", 2)
    net.kill(two)
    net.settle()

    assert (there, take(other)) == ([b"1", b"2"], [b"1"])
    assert (held(one), drops(one)) == ([0], [])


def test_qos_2_that_may_have_been_sent_is_dropped_by_name_when_its_hub_is_gone() -> None:
    """From GROUP_TAKEN on."""
    net, one, two = open_pair()
    join(net, two, "m", 2, receive_maximum=1)
    one.client("p").send(jobs(1, 2, 2))
    net.settle()  # the second waits for the window
    other = join(net, one, "n", 2)

    net.kill(two)
    net.settle()

    assert (take(other), held(one), drops(one)) == ([], [0], [(Drop.SESSION_ENDED, 1)])


def test_qos_2_is_not_sent_before_its_hub_is_known_to_have_it() -> None:
    """A hub that dies before has not given it to anybody."""
    net, one, two = open_pair()
    member = join(net, two, "m", 2)
    net.cut.add((TWO, ONE))

    one.client("p").send(jobs(1, 1, 2))
    net.settle()
    early = take(member)
    net.cut.clear()
    net.settle()

    assert (early, take(member)) == ([], [b"1"])


def test_qos_2_goes_to_another_member_if_the_one_that_it_waited_for_has_left() -> None:
    """There, or elsewhere."""
    net, one, two, three = open_three()
    first, second = join(net, two, "m", 2), join(net, two, "n", 2)
    publisher = one.client("p")
    net.cut.add((TWO, ONE))
    publisher.send(jobs(1, 1, 2))
    net.settle()
    end(net, two, first)
    net.cut.clear()
    net.settle()
    found = [take(second)]
    net.cut.add((TWO, ONE))
    publisher.send(jobs(2, 2, 2))
    net.settle()
    end(net, two, second)
    other = join(net, three, "o", 2)
    net.cut.clear()
    net.settle()
    found.append(take(other))
    net.settle()

    assert (found, held(one, two, three), drops(one)) == ([[b"1"], [b"2"]], [0, 0, 0], [])


@pytest.mark.parametrize("qos", [1, 2])
def test_turns_go_on_with_qos_2(qos: int) -> None:
    """What waits for its hub's acknowledgement is for the member that was chosen."""
    net, one, two = open_pair()
    clients = [join(net, two, name, 2) for name in "ab"]

    one.client("p").send(jobs(1, 6, qos))
    net.settle()

    assert [len(take(client)) for client in clients] == [3, 3]


def test_the_rest_of_a_session_goes_to_its_hubs_other_members_first() -> None:
    """QoS 1 that was sent or waits, QoS 2 that waits; not QoS 2 that was sent [MQTT-4.8.2-5]."""
    net, one, two = open_pair()
    first = join(net, two, "m", 2, receive_maximum=2)
    publisher = one.client("p")
    for data in (jobs(1, 1), jobs(2, 2, 2), jobs(3, 3), jobs(4, 4, 2)):
        publisher.send(data)
        net.settle()
    second = join(net, two, "n", 2)

    end(net, two, first)
    there = sorted(take(second))
    net.settle()

    assert there == [b"1", b"3", b"4"]
    assert (held(one, two), drops(one), drops(two)) == ([0, 0], [], [])


def test_the_rest_of_the_last_session_of_a_hub_is_returned() -> None:
    """And is chosen anew where it was published."""
    net, one, two = open_pair()
    first = join(net, two, "m", 2, receive_maximum=1)
    one.client("p").send(jobs(1, 2) + jobs(3, 3, 2))
    net.settle()
    second = join(net, one, "n", 2)

    end(net, two, first)

    assert sorted(take(second)) == [b"1", b"2", b"3"]
    assert (held(one, two), drops(one), drops(two)) == ([0, 0], [], [])


def test_what_nobody_takes_any_more_is_dropped_by_name() -> None:
    """Once, at the hub where it was published."""
    net, one, two = open_pair()
    member = join(net, two, "m")
    one.client("p").send(jobs(1, 2))
    net.settle()

    end(net, two, member)

    assert (held(one, two), drops(one), drops(two)) == ([0, 0], [(Drop.SESSION_ENDED, 1)] * 2, [])


def test_a_message_that_finds_its_member_gone_is_returned() -> None:
    """UNSUBSCRIBE waits for nobody; neither does the end of a tenant."""
    net, one, two = open_pair()
    member = join(net, two, "m")
    publisher = one.client("p")
    publisher.send(jobs(1, 1) + publish(b"job/1", b"0"))
    two.plane.unsubscribe(member.session, b"g", b"job/#")
    net.settle()
    at_two = list(drops(two))
    join(net, two, "n")
    publisher.send(jobs(2, 2) + publish(b"job/1", b"0"))
    two.close()
    net.settle()

    assert (held(one, two), drops(one)) == ([0, 0], [(Drop.SESSION_ENDED, 1)] * 2)
    assert (at_two, net.faults) == ([(Drop.SESSION_ENDED, 1)], [])


def test_the_rest_of_a_session_is_this_hubs_own_when_its_publishers_hub_is_gone() -> None:
    """It goes to members here, then to those elsewhere, and is dropped by name without any."""
    net, one, two, three = open_three()
    first, second = join(net, two, "m", receive_maximum=1), join(net, two, "n", receive_maximum=1)
    one.client("p").send(jobs(1, 2))
    net.settle()
    net.kill(one)
    third = join(net, three, "o")

    end(net, two, first)
    there = take(second) + take(second, is_answered=False)
    end(net, two, second)
    elsewhere = take(third)
    net.settle()

    assert (there, elsewhere) == ([b"2", b"1"], [b"1"])
    assert (held(two, three), drops(two)) == ([0, 0], [])


def test_the_rest_of_a_session_whose_publishers_hub_is_gone_is_dropped_by_name_without_another_member() -> None:
    net, one, two = open_pair()
    member = join(net, two, "m", receive_maximum=1)
    one.client("p").send(jobs(1, 2))
    net.settle()
    net.kill(one)

    end(net, two, member)

    assert (held(two), drops(two)) == ([0], [(Drop.SESSION_ENDED, 1)] * 2)


@pytest.mark.parametrize("is_asked", [False, True])
def test_qos_2_that_waits_when_its_publishers_hub_goes_is_delivered(is_asked: bool) -> None:
    """Nobody else has it."""
    net, one, two = open_pair()
    member = join(net, two, "m", 2)
    one.client("p").send(jobs(1, 1, 2))
    if is_asked:
        net.cut.add((TWO, ONE))
        net.settle()
    else:
        net.deliver(ONE, TWO)

    net.kill(one)
    net.settle()

    assert (take(member), held(two)) == ([b"1"], [0])


# --- when there is no room


def test_a_message_that_a_hubs_members_have_no_room_for_goes_elsewhere() -> None:
    """That hub counts as congested for a while; without another one the message is dropped by name."""
    net, one, two, three = open_three()
    two.tenant.limits = TenantLimits(backlog_messages=1)
    slow = join(net, two, "slow", receive_maximum=1)
    publisher = one.client("p")
    publisher.send(jobs(1, 2))
    net.settle()
    publisher.send(jobs(3, 3))
    net.settle()
    alone = list(drops(one))
    fast = join(net, three, "fast")
    one.links.sent.clear()
    publisher.send(jobs(4, 7))
    net.settle()
    passed_over = take(fast)
    one.bench.clock.advance(CONGESTED_S)
    publisher.send(jobs(8, 8))
    net.settle()

    assert (alone, passed_over) == ([(Drop.QUEUE_FULL, 1)], [b"4", b"5", b"6", b"7"])
    assert one.links.types(TWO).count(FrameType.GROUP_PUBLISH) == 1  # 8 is tried there, and goes elsewhere
    assert (take(fast), take(slow) + take(slow)) == ([b"8"], [b"1", b"2"])


def test_a_hub_says_once_in_a_while_that_its_members_are_congested() -> None:
    """What has room is delivered all the same."""
    net, one, two = open_pair()
    join(net, two, "slow", receive_maximum=1)

    publisher = one.client("p")
    for number in range(1, 6):
        publisher.send(jobs(number, number))
        net.settle()

    assert two.links.types(ONE).count(FrameType.GROUP_CONGESTED) == 1
    assert (drops(one), drops(two)) == ([], [])


def test_messages_of_one_turn_share_frames() -> None:
    """Up to the size of a batch; a message of QoS 0 as well as one of QoS 1."""
    net, one, two = open_pair()
    member = join(net, two, "m")
    publisher = one.client("p")
    one.links.sent.clear()

    publisher.send(jobs(1, 5) + jobs(6, 9, 0))
    few = one.links.types(TWO)
    publisher.send(b"".join(publish(b"job/1", bytes(one.links.batch_bytes // 3), 0) for _ in range(4)))
    many = one.links.types(TWO)
    net.settle()

    assert (few, many) == ([FrameType.GROUP_PUBLISH], [FrameType.GROUP_PUBLISH] * 2)
    assert sum(map(len, take(member)[9:])) == 4 * (one.links.batch_bytes // 3)


def test_nothing_of_a_frame_is_given_to_members_that_cannot_be_read_to_its_end() -> None:
    net, one, two = open_pair()
    member = join(net, two, "m")
    one.client("p").send(jobs(1, 1))
    [(_, _, body)] = [each for each in one.links.sent if each[1] == FrameType.GROUP_PUBLISH]
    net.settle()
    take(member)

    net.put(ONE, TWO, FrameType.GROUP_PUBLISH, body + body[:-1])
    net.settle()

    assert (len(net.faults), take(member)) == (1, [])


@pytest.mark.parametrize(
    ("fault", "drop"), [(UnavailableError("full"), Drop.LINK_FULL), (LocalProtocolError("large"), Drop.TOO_LARGE)]
)
@pytest.mark.parametrize("qos", [0, 1])
def test_what_a_link_does_not_take_goes_elsewhere_or_is_dropped_by_name(fault: Exception, drop: Drop, qos: int) -> None:
    net, one, two = open_pair()
    join(net, two, "m")
    send = one.links.send

    def refuse(peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        if frame_type == FrameType.GROUP_PUBLISH:
            raise fault
        return send(peer, frame_type, body)

    one.links.send = refuse  # type: ignore[method-assign]
    publisher = one.client("p")
    publisher.send(jobs(1, 1, qos))
    net.settle()
    alone = list(drops(one))
    here = join(net, one, "n", queue_id=7)
    here.drop()
    publisher.send(jobs(2, 2, qos))
    net.settle()

    assert (alone, held(one)) == ([(drop, 1)], [0])
    assert one.bench.store.appends == (qos > 0)


def test_publishers_wait_for_a_full_link_if_nobody_else_is_in_the_group() -> None:
    """QoS 0 is dropped by name, and a member here is enough to go on."""
    net, one, two = open_pair()
    member, publisher = join(net, two, "m"), one.client("p")
    one.links.full.add(TWO)
    publisher.send(jobs(1, 1))
    answer = publisher.send(jobs(2, 2))
    one.links.half_full.add(TWO)
    other = one.client("q")
    other.send(publish(b"job/1", b"0"))
    waiting = list(drops(one))
    here = join(net, one, "here")
    assert one.client("r").send(jobs(3, 3)) == ack(0x40, 3)
    end(net, one, here)
    one.links.full.clear()
    one.links.half_full.clear()
    net.settle()
    one.routes.acknowledged(TWO, 0, 0)
    one.bench.pass_time(1)
    net.settle()

    assert (answer, waiting) == (b"", [(Drop.NO_SUBSCRIBERS, 1)])
    assert sorted(take(member)) == [b"1", b"2", b"3"]


def test_what_cannot_be_kept_is_not_sent() -> None:
    """The bound is the tenant's limit of buffered bytes."""
    net, one, two = open_pair()
    member = join(net, two, "m")
    one.tenant.limits = TenantLimits(buffered_bytes=200)
    publisher = one.client("p")

    publisher.send(jobs(1, 3))
    net.settle()

    assert (take(member), drops(one)) == ([b"1", b"2"], [(Drop.NO_SUBSCRIBERS, 1)])
    net.settle()
    assert held(one, two) == [0, 0]


# --- frames


def test_a_hub_that_knows_nothing_of_an_answers_number_ignores_it() -> None:
    """Its tenant was closed meanwhile."""
    net, one, two = open_pair()
    join(net, two, "m")
    net.cut.add((TWO, ONE))
    one.client("p").send(jobs(1, 2))
    net.settle()

    one.close()
    net.cut.clear()
    for frame_type in (FrameType.GROUP_DONE, FrameType.GROUP_NONE, FrameType.GROUP_TAKEN):
        one.routes.frame(TWO, frame_type, GroupNumbers([1, 99]).encode())
    net.settle()

    assert (held(one), drops(one), net.faults) == ([0], [], [])


@pytest.mark.parametrize("fault", ["tenant", "topic", "filter", "number"])
def test_a_message_for_a_group_whose_parts_do_not_fit_closes_the_link(fault: str) -> None:
    net, one, two = open_pair()
    join(net, two, "m")
    one.client("p").send(jobs(1, 1))
    [(_, _, body)] = [each for each in one.links.sent if each[1] == FrameType.GROUP_PUBLISH]
    [sent] = decode_group_publishes(body)
    changed = {
        "tenant": GroupPublish(1, sent.name, sent.filter, bytes(7) + b"\x09" + sent.routed[8:]),
        "topic": GroupPublish(1, sent.name, sent.filter, sent.routed.replace(b"job/1", b"job/+")),
        "filter": GroupPublish(1, sent.name, b"other", sent.routed),
        "number": GroupPublish(0, sent.name, sent.filter, sent.routed),
    }[fault]

    net.put(ONE, TWO, FrameType.GROUP_PUBLISH, changed.encode())
    net.settle()

    assert len(net.faults) == 1
