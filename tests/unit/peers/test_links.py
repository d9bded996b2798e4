"""All links of a hub: who dials, who is refused and why, incarnations, relinking, back-off, membership."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest

from iothub.base.errors import UnavailableError
from iothub.base.reasons import LinkClose, PeerRefusal
from iothub.peers.frames import HELLO_BYTES, PROTOCOL, FrameType, Hello, number_frame
from iothub.peers.links import STRANGERS
from iothub.peers.ports import PeerId
from iothub.peers.ticking import TICK_S
from iothub.testing.clock import ManualClock
from tests.support.in_process.paired_wires import LinkedHub, OneEnd, linked, settle

REQUEST = FrameType.REQUEST


def said_to(hub: LinkedHub, hello: Hello | bytes, certified_node: int | None = None) -> OneEnd:
    """Connect somebody to a hub, who says this."""
    theirs, mine = OneEnd("unix", certified_node), OneEnd("unix")
    theirs.other, mine.other = mine, theirs
    theirs.owner = hub.links.accepted(theirs)
    mine.write(hello.encode() if isinstance(hello, Hello) else hello)
    settle((theirs,))
    return theirs


def hello_of(node: int, incarnation: int = 1, **changed: object) -> Hello:
    hello = Hello(1, "installation", node, incarnation, f"hub-{node}", "0.1.0", (64, 65), None)
    return replace(hello, **changed)  # type: ignore[arg-type]


def test_lower_node_number_dials() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)

    one.links.members([one.row, two.row])
    two.links.members([one.row, two.row])

    assert [address for address, _, _ in one.dialer.waiting] == [two.row]
    assert two.dialer.waiting == []


def test_link_is_up_at_both_sides_after_their_hellos() -> None:
    one, two, _, _ = linked(ManualClock())

    assert (one.links.up(), two.links.up()) == ((two.id,), (one.id,))
    assert (one.receiver.ups, two.receiver.ups) == ([two.id], [one.id])
    assert one.observer.ups == [two.id]


@pytest.mark.parametrize(
    ("said", "certified_node", "refusal"),
    [
        (hello_of(1, installation="another"), None, PeerRefusal.INSTALLATION),
        (hello_of(1, protocol=PROTOCOL + 2), None, PeerRefusal.VERSION),
        (hello_of(1), 4, PeerRefusal.CERTIFICATE),
        (hello_of(2, 7), None, PeerRefusal.NUMBER),
        (hello_of(3), None, PeerRefusal.DIRECTION),
        (hello_of(1, knows=(1, 5)), None, PeerRefusal.NUMBERS),
        (number_frame(FrameType.PING, 1), None, PeerRefusal.MALFORMED),
        (b"\x01" + (HELLO_BYTES + 1).to_bytes(4, "big"), None, PeerRefusal.MALFORMED),
    ],
    ids=lambda value: value.value if isinstance(value, PeerRefusal) else "",
)
def test_stranger_is_refused_by_name(said: Hello | bytes, certified_node: int | None, refusal: PeerRefusal) -> None:
    hub = LinkedHub(ManualClock(), 2)

    end = said_to(hub, said, certified_node)

    assert [(each, by_peer) for _, each, by_peer in hub.observer.refusals] == [(refusal, False)]
    assert refusal.value.encode() in end.written
    assert end.is_closed
    assert hub.links.up() == ()


def test_hub_of_version_1_gets_echoes_as_it_knows_them_and_its_clock_is_passed_over() -> None:
    hub = LinkedHub(ManualClock(), 9)
    end = said_to(hub, hello_of(1))
    end.written = b""
    assert end.other is not None

    end.other.write(number_frame(FrameType.PING, 7))
    settle((end,))

    assert end.written == number_frame(FrameType.ECHO, 7)
    assert (hub.links.clocks(), hub.links.are_clocks_known()) == ({}, True)


def test_version_one_less_or_one_more_is_linked() -> None:
    hub = LinkedHub(ManualClock(), 9)

    said_to(hub, hello_of(1, protocol=PROTOCOL - 1))
    said_to(hub, hello_of(2, protocol=PROTOCOL + 1))

    assert hub.links.up() == ((1, 1), (2, 1))


def test_another_node_at_the_address_is_refused_and_dialled_no_faster_than_each_second() -> None:
    clock = ManualClock()
    one, two, three = LinkedHub(clock, 1), LinkedHub(clock, 2), LinkedHub(clock, 3)
    one.links.members([two.row])

    settle(one.connect(three))
    one.links.tick(clock.boottime() + 0.99)

    assert one.observer.refusals == [(2, PeerRefusal.NODE, False)]
    assert one.dialer.waiting == []
    assert (one.links.status()[0].state, one.links.status()[0].last_refusal) == ("refused", PeerRefusal.NODE)


def test_peer_that_refuses_this_hub_is_shown_with_its_word() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    two.links.members([replace(one.row, incarnation=2)])
    one.links.members([two.row])

    settle(one.connect(two))

    assert one.observer.refusals == [(2, PeerRefusal.INCARNATION, True)]
    assert (one.links.status()[0].state, one.links.status()[0].last_refusal) == ("refused", PeerRefusal.INCARNATION)


def test_who_says_nothing_is_refused_after_two_seconds() -> None:
    clock = ManualClock()
    hub = LinkedHub(clock, 2)
    end = said_to(hub, b"")

    clock.advance(2.01)
    hub.links.tick(clock.boottime())

    assert hub.observer.refusals == [(None, PeerRefusal.TIMEOUT, False)]
    assert end.is_closed
    assert not hub.links.needs_ticks()


def test_connections_without_hello_are_bounded_and_the_oldest_goes() -> None:
    hub = LinkedHub(ManualClock(), 2)
    ends = [said_to(hub, b"") for _ in range(STRANGERS + 1)]

    assert [end.is_closed for end in ends] == [True] + [False] * STRANGERS
    assert hub.observer.refusals == [(None, PeerRefusal.OVERLOAD, False)]


def test_new_incarnation_gets_nothing_that_was_sent_to_the_old_one() -> None:
    """What was not acknowledged is dropped by name, before a frame of the new one is taken."""
    one, two, _, theirs = linked(ManualClock())
    theirs.close()
    two.links.send(one.id, REQUEST, b"for the old one")

    said_to(two, hello_of(1, 2))

    assert two.observer.gone == [(one.id, 1, 28)]
    assert two.receiver.gone == [one.id]
    assert two.receiver.ups == [one.id, PeerId(1, 2)]
    assert two.links.status()[0].unacknowledged_bytes == 0
    with pytest.raises(UnavailableError, match="incarnation 1"):
        two.links.send(one.id, REQUEST, b"")


def test_lower_incarnation_is_refused() -> None:
    hub = LinkedHub(ManualClock(), 2)
    said_to(hub, hello_of(1, 5))

    said_to(hub, hello_of(1, 4))

    assert hub.observer.refusals == [(1, PeerRefusal.INCARNATION, False)]
    assert hub.links.up() == ((1, 5),)


def test_old_connection_is_closed_unread_when_the_same_incarnation_comes_again() -> None:
    """What it still holds is sent again over the new one; read now, it would be applied after HELLO has said the count."""
    one, two, _, theirs = linked(ManualClock())
    one.links.send(two.id, REQUEST, b"unread")

    again = said_to(two, hello_of(1, knows=(1, 0)))

    assert theirs.is_closed
    assert not theirs.read()
    assert two.receiver.frames == []
    assert two.observer.downs == [(one.id, LinkClose.RELINKED, "")]
    assert two.links.up() == (one.id,)
    assert not again.is_closed


def test_hello_of_a_connection_that_was_given_up_does_not_replace_a_newer_one() -> None:
    """It says less than the peer has acknowledged meanwhile."""
    one, two, mine, theirs = linked(ManualClock())
    two.links.send(one.id, FrameType.ANSWER, b"a")
    settle((mine, theirs))

    late = said_to(two, hello_of(1, knows=None))

    assert two.observer.refusals == [(1, PeerRefusal.NUMBERS, False)]
    assert late.is_closed
    assert not theirs.is_closed


def test_incarnation_that_its_row_no_longer_names_is_gone_for_good() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)

    two.links.members([])
    settle((mine, theirs))
    said_to(two, hello_of(1))

    assert two.observer.gone == [(one.id, 0, 0)]
    assert two.receiver.gone == [one.id]
    assert two.observer.refusals == [(1, PeerRefusal.GONE, False)]
    assert not two.links.needs_ticks()


def test_peer_known_by_its_hello_alone_may_be_missing_in_one_look() -> None:
    """The look may have begun before its row was written; the next one has it, or it was expelled."""
    hub = LinkedHub(ManualClock(), 2)
    said_to(hub, hello_of(1, 5))

    hub.links.members([])
    assert hub.links.up() == ((1, 5),)
    hub.links.members([])

    assert hub.links.up() == ()
    assert hub.receiver.gone == [PeerId(1, 5)]


@pytest.mark.parametrize("way", ["expel", "drop"])
def test_peer_that_is_read_as_gone_before_it_was_ever_linked_is_refused(way: str) -> None:
    """It may not know it yet, and what it would send is the others' business already."""
    hub = LinkedHub(ManualClock(), 2)
    getattr(hub.links, way)(PeerId(1, 5))

    said_to(hub, hello_of(1, 5))
    assert (hub.links.up(), hub.receiver.ups) == ((), [])
    assert hub.observer.refusals == [(1, PeerRefusal.GONE, False)]

    said_to(hub, hello_of(1, 6))
    assert hub.links.up() == ((1, 6),)


def test_row_that_is_older_than_the_hello_takes_nothing_back() -> None:
    hub = LinkedHub(ManualClock(), 2)
    said_to(hub, hello_of(1, 5))

    hub.links.members([LinkedHub(ManualClock(), 1, 4).row])

    assert hub.links.up() == ((1, 5),)


def test_failed_attempts_come_further_and_further_apart() -> None:
    """Between half of 50 ms and 2 s."""
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])
    waited = []

    for _ in range(10):
        one.dialer.waiting.pop()[2]("refused")
        began = clock.boottime()
        while not one.dialer.waiting:
            clock.advance(0.005)
            one.links.tick(clock.boottime())
        waited.append(clock.boottime() - began)

    assert 0.025 <= waited[0] <= 0.055
    assert all(1.0 <= each <= 2.005 for each in waited[-3:])
    assert len(set(waited[-3:])) > 1


def test_link_that_held_is_dialled_again_at_once_and_one_that_breaks_is_not() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    for _ in range(10):
        clock.advance(0.25)
        for hub in (one, two):
            hub.links.tick(clock.boottime())
        settle((mine, theirs))

    theirs.close()
    settle((mine, theirs))
    clock.advance(0.051)
    one.links.tick(clock.boottime())

    assert len(one.dialer.waiting) == 1


def test_wire_that_comes_for_a_peer_that_is_gone_is_closed() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])
    one.links.members([])

    mine, _ = one.connect(two)

    assert mine.is_closed
    assert mine.written == b""


def test_answer_to_hello_is_waited_for_two_seconds() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])
    mine, _ = one.connect(two)

    clock.advance(2.01)
    one.links.tick(clock.boottime())
    assert mine.is_closed
    clock.advance(0.06)
    one.links.tick(clock.boottime())

    assert len(one.dialer.waiting) == 1


def test_nothing_is_sent_to_a_peer_that_was_never_linked() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])

    with pytest.raises(UnavailableError, match="no link to peer 2, incarnation 1"):
        one.links.send(two.id, REQUEST, b"")
    assert one.links.evidence_age(two.id) == float("inf")


def test_peer_that_goes_while_its_frame_is_applied_has_no_later_one_applied() -> None:
    """A frame may say what makes its sender go."""
    one, two, mine, theirs = linked(ManualClock())
    two.receiver.applying = lambda *_: two.links.members([])
    for body in (b"a", b"b"):
        one.links.send(two.id, REQUEST, body)

    settle((mine, theirs))

    assert two.receiver.bodies == [b"a"]
    assert two.receiver.gone == [one.id]


def test_closed_links_take_nobody() -> None:
    one, two, mine, theirs = linked(ManualClock())

    two.links.close()
    end = said_to(two, hello_of(1, 2))
    settle((mine, theirs))

    assert end.is_closed
    assert two.links.up() == ()
    assert two.observer.downs == [(one.id, LinkClose.CLOSED, "")]
    assert [reason for _, reason, _ in one.observer.downs] == [LinkClose.LEFT]


def test_hub_that_has_left_is_not_dialled_any_more() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    two.links.close()
    settle((mine, theirs))

    for _ in range(5):
        clock.advance(1.0)
        one.links.tick(clock.boottime())

    assert one.dialer.waiting == []


def test_hub_that_is_alone_needs_no_ticks() -> None:
    hub = LinkedHub(ManualClock(), 1)

    hub.links.members([hub.row])

    assert not hub.links.needs_ticks()
    assert hub.links.status() == []


def test_links_ask_for_nothing_but_their_pings_and_echoes_while_nothing_is_sent() -> None:
    """So an idle process sleeps; both stay up by what they ask for alone."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)

    for _ in range(1000):
        clock.advance(0.01)
        for hub in (one, two):
            hub.tick_if_due()
        settle((mine, theirs))

    assert (one.links.up(), two.links.up()) == ((two.id,), (one.id,))
    assert 75 <= one.ticks <= 81
    assert 75 <= two.ticks <= 81


def until_idle(clock: ManualClock, hubs: Sequence[LinkedHub], ends: Sequence[OneEnd]) -> None:
    """Have nothing due but pings: HELLO has asked for a tick."""
    for _ in range(4):
        clock.advance(0.01)
        for hub in hubs:
            hub.tick_if_due()
        settle(ends)
    assert all(hub.ticking.at > clock.boottime() + TICK_S for hub in hubs)


def test_acknowledgement_is_asked_for_when_the_frame_is_applied() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    until_idle(clock, (one, two), (mine, theirs))
    one.links.send(two.id, REQUEST, b"a")
    settle((mine, theirs))
    assert two.ticking.at <= clock.boottime() + TICK_S

    clock.advance(0.02)
    two.tick_if_due()
    settle((mine, theirs))

    assert one.links.status()[0].unacknowledged_bytes == 0


def test_nothing_is_asked_for_when_a_frame_is_sent_that_the_connection_has_taken() -> None:
    """Until the pings are due; the other hub asks for its acknowledgement."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    until_idle(clock, (one, two), (mine, theirs))
    due = one.ticking.at

    one.links.send(two.id, REQUEST, b"a")
    one.links.announce(two.id, REQUEST, b"b")

    assert one.ticking.at == due


def test_what_waits_for_room_is_written_without_an_acknowledgement() -> None:
    """The kernel took what was before it, and the other side is late with its word."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock, window_bytes=100)
    until_idle(clock, (one, two), (mine, theirs))
    mine.taken = False
    for body in (b"a" * 100, b"b"):
        one.links.send(two.id, REQUEST, body)
    assert one.ticking.at <= clock.boottime() + TICK_S
    written_before = mine.written
    mine.taken, mine._unsent = True, 0

    clock.advance(0.02)
    one.tick_if_due()

    assert len(mine.written) > len(written_before)


def test_link_that_hears_nothing_ends_by_what_it_asks_for() -> None:
    clock = ManualClock()
    one, two, _, _ = linked(clock)

    for _ in range(210):
        clock.advance(0.01)
        two.tick_if_due()

    assert two.observer.downs == [(one.id, LinkClose.SILENT, "")]


def test_peer_that_could_not_be_dialled_is_dialled_again_when_it_was_asked_for() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])
    one.dialer.waiting.pop()[2]("no answer")

    clock.advance(0.05)
    one.tick_if_due()

    assert len(one.dialer.waiting) == 1
