"""What hubs know of the session log: a change is known when every hub that publishes for its tenant knows it, or publishes nothing."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from iothub.peers.frames import BadFrameError, FrameType, pack
from iothub.peers.known import OwnPlace
from iothub.peers.place_frames import PARTITIONS, TenantPlace, decode_known, encode_known
from iothub.peers.places import Offsets, covers, joined
from iothub.peers.ports import PeerId
from iothub.peers.route_frames import Opened
from iothub.peers.routes import Routes
from iothub.testing.engine import ack, publish
from tests.support.in_process.routed_hubs import Net, RoutedHub, open_pair

TENANT = 1
ONE, TWO = PeerId(1, 1), PeerId(2, 1)


def settle(hub: RoutedHub, *place: int) -> list[bool]:
    """Wait until the others know the log up to a place; the list gets True then."""
    done: list[bool] = []
    if not hub.places.await_known(TENANT, place, lambda: done.append(True)):
        done.append(True)
    return done


def is_read(hub: RoutedHub) -> bool:
    """Whether publishers of the tenant are read."""
    client = hub.client("p")
    answer = client.send(publish(b"t", b"x", 1, 1))
    hub.plane.discard(client.session)
    return answer == ack(0x40, 1)


def test_a_hub_that_is_alone_waits_for_nobody() -> None:
    net = Net(1, RoutedHub)
    [hub] = net.hubs.values()
    hub.open()

    assert settle(hub, 5) == [True]
    assert hub.links.sent == []


def test_a_change_is_known_when_the_other_hub_has_applied_it() -> None:
    """It reads the log at once, and not only up to somewhere before."""
    net, one, two = open_pair()
    done = settle(one, 5)
    net.settle()
    assert (done, two.reads) == ([], 1)

    two.places.note_applied((4,))
    net.settle()
    assert (done, two.links.types()) == ([], [FrameType.KNOWN])
    two.places.note_applied((7,))
    assert done == []
    net.settle()

    assert (done, two.links.types()) == ([True], [FrameType.KNOWN])


def test_what_the_other_hub_has_said_is_not_asked_again() -> None:
    net, one, two = open_pair()
    two.places.note_applied((9, 3))
    done = settle(one, 5)
    net.settle()
    assert done == [True]
    one.links.types()

    assert settle(one, 9) == [True]
    assert settle(one, 0, 3) == [True]
    assert settle(one, 0, 4) == []
    net.settle()
    assert one.links.types() == [FrameType.KNOW]


def test_changes_of_one_turn_are_asked_together_and_known_in_their_order() -> None:
    net, one, two = open_pair()
    order: list[int] = []
    for number in range(1, 11):
        assert one.places.await_known(TENANT, (number,), lambda number=number: order.append(number))  # type: ignore[misc]
    net.settle()
    assert one.links.types() == [FrameType.KNOW]

    two.places.note_applied((4,))
    two.places.note_applied((10,))
    net.settle()

    assert order == list(range(1, 11))


def test_a_hub_that_cannot_read_the_log_publishes_nothing_of_the_tenant_and_is_not_waited_for() -> None:
    """It goes on when it knows the change; other tenants of it never waited."""
    net, one, two = open_pair()
    done = settle(one, 5)
    net.settle()
    assert is_read(two)

    net.time_out()
    assert done == [True]
    assert not is_read(two)

    later = settle(one, 6)
    net.settle()
    assert later == [True]
    two.places.note_applied((5,))
    assert not is_read(two)
    two.places.note_applied((6,))
    assert is_read(two)


def test_a_hub_that_goes_on_says_first_what_it_knows() -> None:
    """What it publishes then is routed by that."""
    net, one, two = open_pair()
    settle(one, 5)
    net.settle()
    net.time_out()
    one.subscribe(one.client("s"), b"t")
    net.settle()
    publisher = two.client("p")
    assert publisher.send(publish(b"t", b"x", 1, 1)) == b""
    two.links.types()

    two.places.note_applied((5,))
    two.bench.settle()

    assert two.links.types() == [FrameType.KNOWN, FrameType.PUBLISH]
    assert publisher.take() == ack(0x40, 1)


def test_a_paused_tenant_answers_every_question_about_it() -> None:
    """Also one that has not waited for long."""
    net, one, _ = open_pair()
    first = settle(one, 5)
    net.settle()
    second = settle(one, 6)
    net.settle()

    net.time_out()
    assert (first, second) == ([True], [True])


def test_a_timer_that_was_for_others_pauses_nobody() -> None:
    net, one, two = open_pair()
    settle(one, 5)
    net.settle()
    two.places.note_applied((5,))
    later = settle(one, 6)
    net.settle()

    net.time_out()
    assert (later, is_read(two)) == ([], True)
    net.time_out()
    assert (later, is_read(two)) == ([True], False)


def test_only_hubs_that_have_the_tenant_open_are_asked() -> None:
    net = Net(3, RoutedHub)
    one, two, three = net.hubs.values()
    for hub in (one, two):
        hub.open()
    net.settle()
    one.links.types()
    done = settle(one, 5)
    net.settle()
    assert one.links.types(three.id) == []

    two.places.note_applied((5,))
    net.settle()

    assert done == [True]


@pytest.mark.parametrize("is_killed", [True, False], ids=["gone", "closed"])
def test_a_hub_that_is_gone_or_closes_the_tenant_is_not_waited_for(is_killed: bool) -> None:
    net, one, two = open_pair()
    done = settle(one, 5)
    net.settle()

    if is_killed:
        net.kill(two)
    else:
        two.close()
        net.settle()

    assert done == [True]


def test_a_tenant_that_is_closed_while_it_is_paused_is_read_when_it_is_open_again() -> None:
    """By then its hub has the place of the others."""
    net, one, two = open_pair()
    settle(one, 5)
    net.settle()
    net.time_out()
    opened = two.reopen()
    net.settle()
    assert opened == []

    two.places.note_applied((5,))

    assert opened == [True]
    assert is_read(two)


def test_a_promise_to_a_hub_that_is_gone_is_kept() -> None:
    """Its client was acknowledged, and is somewhere else now."""
    net, one, two = open_pair()
    settle(one, 5)
    net.settle()
    net.time_out()

    net.kill(one)
    assert not is_read(two)
    two.places.note_applied((5,))

    assert is_read(two)


def test_a_tenant_opens_when_what_the_others_know_is_known_here() -> None:
    """What they have read, and what they have written and acknowledged themselves."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    one.open()
    net.settle()
    one.places.note_applied((3, 9))
    assert settle(one, 5) == [True]

    opened = two.open()
    net.settle()
    assert (opened, two.reads) == ([], 1)
    two.places.note_applied((5, 8))
    assert opened == []
    two.places.note_applied((5, 9))

    assert opened == [True]


def test_a_tenant_that_is_closed_before_it_was_served_calls_back() -> None:
    """Whoever waits for it finds out by itself."""
    net = Net(2, RoutedHub)
    one, two = net.hubs.values()
    settle(one, 5)
    opened = two.open()
    net.settle()
    assert opened == []

    two.close()
    two.places.note_applied((5,))

    assert opened == [True]


def test_a_question_about_a_tenant_that_is_closed_here_is_answered_by_its_close() -> None:
    """They cross on the way; nothing is kept of it."""
    net, one, two = open_pair()
    two.close()
    done = settle(one, 5)
    net.settle()
    assert done == [True]

    net.time_out()
    two.places.note_applied((5,))
    net.settle()

    assert FrameType.PAUSED not in two.links.types()


def test_own_place_calls_back_once_in_every_partition() -> None:
    reads: list[bool] = []
    place = OwnPlace(lambda: reads.append(True))
    done: list[Offsets] = []
    assert not place.await_applied((0, 0), lambda: done.append(()))
    assert place.await_applied((2, 1), lambda: done.append(place.applied))

    place.note_applied((2,))
    assert done == []
    place.note_applied((1, 1))
    place.note_applied((3, 3))

    assert (done, place.applied, reads) == ([(2, 1)], (3, 3), [True])
    place.note_written((1, 7))
    assert place.known() == (3, 7)


def test_what_a_hub_that_is_gone_knew_is_read_to_the_log_s_end() -> None:
    """Nobody can be asked for it; each that goes is a reason of its own."""
    ends: list[Callable[[], None]] = []
    place = OwnPlace(lambda: None, ends.append)
    done: list[bool] = []
    place.note_gone()
    place.note_gone()
    assert place.await_applied((), lambda: done.append(True))

    ends.pop()()
    place.note_applied((5,))
    assert done == []
    ends.pop()()

    assert done == [True]
    assert not place.await_applied((5,), lambda: None)


@pytest.mark.parametrize("was_linked", [True, False], ids=["linked", "never linked"])
def test_a_tenant_opens_after_a_hub_is_gone_when_the_log_is_read(was_linked: bool) -> None:
    ends: list[Callable[[], None]] = []
    net = Net(1, RoutedHub)
    [hub] = net.hubs.values()
    hub.routes = Routes(hub.links, hub.plane, net.call_soon, OwnPlace(lambda: None, ends.append))
    hub.routes.members([TWO])
    if was_linked:
        hub.routes.peer_up(TWO)
    opened = hub.open()

    if was_linked:
        hub.routes.peer_gone(TWO)
    hub.routes.members([])
    assert (opened, len(ends)) == ([], 1)
    ends.pop()()

    assert opened == [True]


def test_places_of_any_length_compare() -> None:
    """A log may have got more partitions."""
    rng = random.Random(1)
    for _ in range(200):
        one, two = (tuple(rng.randrange(3) for _ in range(rng.randrange(4))) for _ in range(2))
        both = joined(one, two)
        assert covers(both, one)
        assert covers(both, two)
        assert covers(one, two) == (both == joined(one, (0,) * len(two)))


def test_frames_of_places_are_what_they_were() -> None:
    for each in (TenantPlace(7, (3, 0, 1 << 60)), TenantPlace(0, ())):
        assert TenantPlace.decode(each.encode()) == each
    assert decode_known(encode_known((1, 2))) == (1, 2)
    assert Opened.decode(Opened(1, 2, is_open=True, place=(3,)).encode()).place == (3,)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tenant": 1},
        {"tenant": 1, "place": 3},
        {"tenant": 1, "place": [True]},
        {"tenant": 1, "place": [-1]},
        {"tenant": 1, "place": [1 << 63]},
        {"tenant": 1, "place": [0] * (PARTITIONS + 1)},
        {"tenant": -1, "place": []},
        {"tenant": "1", "place": []},
    ],
)
def test_malformed_place_is_refused(fields: dict[str, object]) -> None:
    with pytest.raises(BadFrameError):
        TenantPlace.decode(pack(fields))
    if fields.get("place") != []:
        with pytest.raises(BadFrameError):
            decode_known(pack(fields))
