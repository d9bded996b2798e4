"""One link: numbers, acknowledgements, resend, window, evidence."""

from __future__ import annotations

from functools import partial

import pytest

from iothub.base.errors import LocalProtocolError, UnavailableError
from iothub.base.reasons import LinkClose
from iothub.peers import frames
from iothub.peers.frames import FrameType
from iothub.peers.framing import FrameDecoder
from iothub.testing.clock import ManualClock
from tests.support.in_process.cut_frames import cut_frames
from tests.support.in_process.paired_wires import LinkedHub, OneEnd, linked, settle

REQUEST, ROWS, ANSWER = FrameType.REQUEST, FrameType.ROWS, FrameType.ANSWER


def written(end: OneEnd) -> list[tuple[FrameType, int]]:
    """Return type and number of what was written, and forget it; of an ACK the number it says."""
    data, end.written = end.written, b""
    return [
        (each, frames.ack_of(body)[0] if each == FrameType.ACK else number)
        for each, number, body in cut_frames(FrameDecoder(1 << 20), data)
    ]


def relink(clock: ManualClock, one: LinkedHub, two: LinkedHub) -> tuple[OneEnd, OneEnd]:
    """Dial anew and say HELLO."""
    clock.advance(2.1)
    one.links.tick(clock.boottime())
    ends = one.connect(two)
    settle(ends)
    return ends


def test_acknowledgement_leaves_after_20_ms_for_all_that_was_applied() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    written(theirs)

    for body in (b"a", b"b", b"c"):
        one.links.send(two.id, REQUEST, body)
    settle((mine, theirs))
    two.links.tick(clock.boottime())
    assert written(theirs) == []

    clock.advance(0.02)
    two.links.tick(clock.boottime())
    settle((mine, theirs))

    assert written(theirs) == [(FrameType.ACK, 3)]
    assert two.receiver.bodies == [b"a", b"b", b"c"]
    assert one.links.status()[0].unacknowledged_bytes == 0


def test_acknowledgement_that_is_waited_for_leaves_in_the_same_turn() -> None:
    one, two, mine, theirs = linked(ManualClock())
    written(theirs)

    one.links.send(two.id, ANSWER, b"a")
    settle((mine, theirs))

    assert written(theirs) == [(FrameType.ACK, 1)]


def test_acknowledgement_does_not_go_with_each_frame() -> None:
    """Where messages go both ways, each frame would make the other side take one more."""
    one, two, mine, theirs = linked(ManualClock())
    written(theirs)

    one.links.send(two.id, REQUEST, b"a")
    settle((mine, theirs))
    two.links.send(one.id, REQUEST, b"b")

    assert written(theirs) == [(REQUEST, 1)]


def test_acknowledgement_leaves_after_256_kib() -> None:
    """What the other side keeps until then counts for what its link takes."""
    one, two, mine, theirs = linked(ManualClock(), frame_bytes=1 << 20)
    written(theirs)

    for _ in range(3):
        one.links.send(two.id, REQUEST, b"a" * (128 << 10))
    settle((mine, theirs))

    assert written(theirs) == [(FrameType.ACK, 2)]


def test_acknowledgement_says_which_frames_it_overtakes() -> None:
    """It goes first, past what waits for the window."""
    one, two, mine, theirs = linked(ManualClock(), window_bytes=1)
    written(theirs)
    theirs.taken = False
    for body in (b"written", b"waits"):
        two.links.send(one.id, REQUEST, body)
    one.links.send(two.id, ANSWER, b"a")
    settle((mine, theirs))

    *_, (_, _, body) = cut_frames(FrameDecoder(1 << 20), theirs.written)
    assert frames.ack_of(body) == (1, 2)


def test_acknowledgement_is_reported_when_all_is_applied_that_it_has_overtaken() -> None:
    """What the peer sent before it is older than what it says, and comes later; what it sent after it is not, whatever it acknowledges then."""
    one, two, mine, theirs = linked(ManualClock())
    heard: list[int] = []
    applied: list[int] = []
    one.links.watch(lambda _peer, number, _arrived: applied.append(number))
    one.links.watch(lambda _peer, _applied, arrived: heard.append(arrived))
    for _ in range(3):
        one.links.send(two.id, REQUEST, b"a")
    theirs.arrived.clear()

    for data in (
        frames.ack_frame(1, 2),
        frames.encode(REQUEST, b"b", 1),
        frames.ack_frame(2, 3),
        frames.ack_frame(3, 4),
    ):
        theirs.write(data)
        mine.read()
    assert (applied, heard) == ([1, 2, 3], [0, 0, 0])
    found = []
    for number in (2, 3, 4):
        theirs.write(frames.encode(REQUEST, b"b", number))
        mine.read()
        found.append(heard[-1])

    assert found == [1, 2, 3]
    assert one.links.status()[0].unacknowledged_bytes == 0


def test_hello_acknowledges_nothing_that_is_reported() -> None:
    """It names no frame that comes again after it: the acknowledgement behind it does."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    heard: list[tuple[int, int]] = []
    one.links.watch(lambda _peer, *numbers: heard.append(numbers))
    one.links.send(two.id, REQUEST, b"a")
    theirs.read()
    two.links.send(one.id, REQUEST, b"before")
    mine.arrived.clear()
    for end in (mine, theirs):
        end.close()
    settle((mine, theirs))

    ends = relink(clock, one, two)

    assert (heard[0], heard[-1], one.receiver.bodies) == ((0, 0), (1, 1), [b"before"])
    assert ends[1].written.count(frames.ack_frame(1, 1)) == 1


def test_acknowledgement_leaves_after_256_frames() -> None:
    one, two, mine, theirs = linked(ManualClock())
    written(theirs)

    for _ in range(256):
        one.links.send(two.id, REQUEST, b"a")
    settle((mine, theirs))

    assert written(theirs) == [(FrameType.ACK, 256)]


def test_frame_is_not_acknowledged_while_it_is_applied() -> None:
    """Received is not applied: what the receiver sends meanwhile says nothing of the frame."""
    one, two, mine, theirs = linked(ManualClock())
    written(theirs)
    two.receiver.applying = lambda peer, *_: two.links.send(peer, ROWS, b"answer")

    one.links.send(two.id, ANSWER, b"a")
    settle((mine, theirs))

    assert written(theirs) == [(ROWS, 1), (FrameType.ACK, 1)]


def test_flap_loses_nothing_and_doubles_nothing() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    one.links.send(two.id, REQUEST, b"applied")
    settle((mine, theirs))
    one.links.send(two.id, REQUEST, b"on the way")
    mine.close()
    theirs.close()
    settle((mine, theirs))
    one.links.send(two.id, REQUEST, b"while it is down")

    ends = relink(clock, one, two)
    two.links.send(one.id, REQUEST, b"back")
    settle(ends)

    assert two.receiver.bodies == [b"applied", b"on the way", b"while it is down"]
    assert one.receiver.bodies == [b"back"]
    assert two.receiver.ups == [one.id]
    assert one.links.status()[0].reconnects == 1


def test_frame_with_a_number_that_was_applied_is_dropped() -> None:
    one, two, mine, theirs = linked(ManualClock())
    one.links.send(two.id, REQUEST, b"a")
    settle((mine, theirs))

    mine.write(frames.encode(REQUEST, b"a again", 1))
    settle((mine, theirs))

    assert two.receiver.bodies == [b"a"]
    assert two.links.up() == (one.id,)


@pytest.mark.parametrize(
    "data",
    [
        frames.encode(REQUEST, b"a", 2),
        frames.ack_frame(1, 0),
        frames.number_frame(FrameType.ECHO, 1 << 62),
        frames.encode(FrameType.CANCEL, b"", 1),
        frames.encode(FrameType.PING, b"short"),
        frames.encode(FrameType.HELLO, b""),
    ],
    ids=["a gap", "what was not sent", "an echo of no ping", "a type not named", "no time", "a second HELLO"],
)
def test_link_closes_when_the_peer_breaks_the_protocol(data: bytes) -> None:
    """And the peer hears why."""
    one, two, mine, theirs = linked(ManualClock())
    written(theirs)

    mine.write(data)
    settle((mine, theirs))

    assert [reason for _, reason, _ in two.observer.downs] == [LinkClose.BAD_FRAME]
    assert written(theirs)[-1] == (FrameType.REFUSED, 0)
    assert [reason for _, reason, _ in one.observer.downs] == [LinkClose.REFUSED]
    assert two.receiver.frames == []


def test_frames_behind_one_that_cannot_be_applied_are_not_read() -> None:
    """Nothing of the chunk is applied once the link is closed."""
    one, two, mine, theirs = linked(ManualClock())

    def refuse(*_: object) -> None:
        raise frames.BadFrameError("no such tenant")

    two.receiver.applying = refuse
    for body in (b"a", b"b"):
        one.links.send(two.id, REQUEST, body)
    settle((mine, theirs))

    assert two.receiver.frames == []
    assert two.observer.downs == [(one.id, LinkClose.BAD_FRAME, "no such tenant")]


def test_what_was_sent_behind_a_malformed_frame_comes_over_the_next_connection() -> None:
    """The link closes, by name at both sides, and nothing is lost or doubled."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    one.links.send(two.id, REQUEST, b"before")
    settle((mine, theirs))
    theirs.written = mine.written = b""
    mine.write(b"\xff" * 16)
    one.links.send(two.id, REQUEST, b"behind")
    settle((mine, theirs))
    assert [refusal.value for _, refusal, _ in two.observer.refusals] == ["malformed"]
    assert two.receiver.bodies == [b"before"]

    settle(relink(clock, one, two))

    assert two.receiver.bodies == [b"before", b"behind"]


def test_pings_and_echoes_do_not_wait_behind_more_than_the_window() -> None:
    clock = ManualClock()
    one, two, mine, _ = linked(clock, window_bytes=1000)
    mine.taken = False
    written(mine)

    for _ in range(10):
        one.links.send(two.id, REQUEST, bytes(400))
    clock.advance(0.25)
    one.links.tick(clock.boottime())

    assert written(mine) == [(REQUEST, 1), (REQUEST, 2), (REQUEST, 3), (FrameType.PING, 0)]


def test_what_waits_for_the_window_is_written_in_order_when_there_is_room() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock, window_bytes=1000)
    mine.taken = False
    bodies = [bytes((number,)) * 400 for number in range(6)]
    for body in bodies:
        one.links.send(two.id, REQUEST, body)
    theirs.arrived.append(mine.written[-mine.unsent() :])

    mine.taken, mine._unsent = True, 0
    one.links.tick(clock.boottime())
    settle((mine, theirs))

    assert two.receiver.bodies == bodies


def test_link_says_that_it_is_half_full_and_full_and_then_refuses() -> None:
    """Unsent bytes count beside unacknowledged ones. Whoever sends pauses at `link_bytes`; what one turn still sends is kept, up to twice that."""
    one, two, mine, _ = linked(ManualClock(), link_bytes=1000)
    mine.taken = False

    said = []
    for _ in range(20):
        one.links.send(two.id, REQUEST, bytes(87))  # 100 bytes with header and number
        said.append((one.links.link_to(two.id).is_half_full(), one.links.is_full(two.id)))

    assert said == [(False, False)] * 2 + [(True, False)] * 2 + [(True, True)] * 16
    assert one.links.status()[0].unacknowledged_bytes == 2000
    with pytest.raises(UnavailableError, match="link_full: 2000 bytes wait for peer 2"):
        one.links.send(two.id, REQUEST, b"")


def test_frame_above_frame_bytes_is_a_defect_of_the_caller() -> None:
    one, two, _, _ = linked(ManualClock(), frame_bytes=100)

    with pytest.raises(LocalProtocolError, match="expected at most 100"):
        one.links.send(two.id, REQUEST, bytes(93))


def test_type_that_the_peer_does_not_understand_is_not_sent() -> None:
    one, two, _, _ = linked(ManualClock())

    with pytest.raises(UnavailableError, match="does not understand CANCEL"):
        one.links.send(two.id, FrameType.CANCEL, b"")


def test_what_is_announced_is_kept_in_its_order_however_much_waits() -> None:
    """Messages are refused meanwhile."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock, link_bytes=1000)
    mine.taken = False
    for number in range(40):
        assert one.links.announce(two.id, REQUEST, b"%3d" % number + bytes(84)) == number + 1
    with pytest.raises(UnavailableError, match="link_full"):
        one.links.send(two.id, REQUEST, b"")

    mine.close()
    theirs.close()
    settle((mine, theirs))
    settle(relink(clock, one, two))

    assert [int(body[:3]) for body in two.receiver.bodies] == list(range(40))


def test_what_is_gathered_for_a_peer_goes_before_what_is_announced() -> None:
    one, two, mine, theirs = linked(ManualClock())
    gathered = [b"message"]

    def flush() -> None:
        while gathered:
            one.links.send(two.id, REQUEST, gathered.pop())

    one.links.link_to(two.id).flush = flush
    one.links.announce(two.id, ANSWER, b"after it")
    settle((mine, theirs))

    assert two.receiver.bodies == [b"message", b"after it"]


def test_announced_type_that_the_peer_does_not_name_is_left_out() -> None:
    """An older version: what is announced after it arrives, and nobody waits for a number of it."""
    one, two, mine, theirs = linked(ManualClock())

    numbers = [one.links.announce(two.id, each, b"x") for each in (ROWS, FrameType.WILL, ANSWER)]
    settle((mine, theirs))

    assert numbers == [1, 0, 2]
    assert [frame_type for _, frame_type, _ in two.receiver.frames] == [ROWS, ANSWER]


def test_nothing_is_announced_to_a_peer_that_is_not_there() -> None:
    one, two, _, _ = linked(ManualClock())
    link = one.links.link_to(two.id)
    one.links.drop(two.id)

    assert one.links.announce(two.id, REQUEST, b"") == link.announce(REQUEST, b"") == 0
    for refuses in (link.send, partial(one.links.send, two.id)):
        with pytest.raises(UnavailableError, match="no link to peer 2, incarnation 1"):
            refuses(REQUEST, b"")
    assert link.unacknowledged_frames == 0


def test_evidence_is_as_old_as_the_sending_of_the_ping() -> None:
    """Not as its echo: that may have waited while the peer died."""
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    clock.advance(0.25)
    one.links.tick(clock.boottime())

    clock.advance(1.5)
    settle((mine, theirs))

    assert one.links.evidence_age(two.id) == pytest.approx(1.5)
    assert one.links.status()[0].round_trip_s == pytest.approx(1.5)


def test_link_whose_last_echoed_ping_is_older_than_two_seconds_is_down() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    theirs.arrived.clear()
    for _ in range(8):
        clock.advance(0.25)
        one.links.tick(clock.boottime())
    assert one.links.up() == (two.id,)

    clock.advance(0.01)
    one.links.tick(clock.boottime())

    assert one.observer.downs == [(two.id, LinkClose.SILENT, "")]
    assert mine.is_closed


def test_peer_that_sends_pings_and_reads_nothing_gets_no_more_echoes_than_fit() -> None:
    _, _, mine, theirs = linked(ManualClock(), window_bytes=100, frame_bytes=100)
    theirs.taken = False

    for number in range(200):
        mine.write(frames.number_frame(FrameType.PING, number))
    settle((mine, theirs))

    assert 400 < theirs.unsent() <= 400 + len(frames.echo_frame(0, (0, 0)))


def test_echo_says_what_time_it_is_at_the_other_hub() -> None:
    """By its machine, and what it goes by.

    In the middle of its way, as far as can be known: less this hub's `boottime`, so that this hub's own wall clock does not matter.
    """
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    assert (one.links.are_clocks_known(), two.links.are_clocks_known()) == (True, True)
    two.wall_ahead_s = 3600.0
    clock.advance(0.25)
    one.links.tick(clock.boottime())
    theirs.read()
    clock.advance(0.5)
    settle((mine, theirs))

    told = one.links.clocks()[two.id]

    goes_by = clock.wall() - clock.boottime() - 0.25
    assert (told.machine, told.goes_by) == pytest.approx((goes_by + 3600.0, goes_by), abs=0.01)


def test_echo_that_was_long_under_way_says_nothing_of_a_clock() -> None:
    clock = ManualClock()
    one, two, mine, theirs = linked(clock)
    before = one.links.clocks()
    two.wall_ahead_s = 3600.0
    clock.advance(0.25)
    one.links.tick(clock.boottime())

    clock.advance(1.5)
    settle((mine, theirs))

    assert one.links.clocks() == before


def test_clock_of_a_linked_hub_is_unknown_before_its_first_echo() -> None:
    clock = ManualClock()
    one, two = LinkedHub(clock, 1), LinkedHub(clock, 2)
    one.links.members([two.row])
    mine, theirs = one.connect(two)
    theirs.read()
    mine.read()

    assert one.links.up() == (two.id,)
    assert (one.links.clocks(), one.links.are_clocks_known()) == ({}, False)


def test_link_that_is_over_keeps_nothing_for_whoever_still_has_it() -> None:
    """A peer that is gone with a full link must not cost its bytes until the garbage collector comes."""
    clock = ManualClock()
    one, two, _, _ = linked(clock)
    link = one.links.link_to(two.id)
    flushed: list[str] = []
    link.flush = partial(flushed.append, "flushed")
    for _ in range(3):
        one.links.send(two.id, REQUEST, bytes(500))
    assert link.unacknowledged_bytes > 1_500

    one.links.drop(two.id)

    assert (link.unacknowledged_bytes, link.unacknowledged_frames, link.load_bytes) == (0, 0, 0)
    assert (link.is_full(), link.is_up) == (False, False)
    assert link.announce(REQUEST, b"x") == 0
    with pytest.raises(UnavailableError, match="no link to peer"):
        link.send(REQUEST, b"x")
    assert (flushed, link.unacknowledged_bytes) == ([], 0)


def test_links_of_a_hub_that_stops_are_over() -> None:
    one, two, _, _ = linked(ManualClock())
    link = one.links.link_to(two.id)

    one.links.close()

    assert (link.announce(REQUEST, b"x"), link.unacknowledged_bytes) == (0, 0)
    with pytest.raises(UnavailableError, match="no link to peer"):
        link.send(REQUEST, b"x")
