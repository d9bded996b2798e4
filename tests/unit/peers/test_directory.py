"""The session directory: one hub at a time has a key, whoever owns it, and what becomes of it when hubs come and go."""

from __future__ import annotations

import math

import pytest

from iothub.peers.directory_frames import Announced, Hold
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.view import View
from tests.support.in_process.directory_net import ALL, ONE, THREE, TWO, Net, cluster, key_of

# --- alone


def test_a_hub_that_is_alone_asks_nobody_and_keeps_nothing() -> None:
    [hub] = Net(ONE).hubs.values()
    hub.see(ONE)

    assert hub.hold(key_of(ONE)) == [0.0]
    hub.connected.add(key_of(ONE))
    hub.directory.let_go(key_of(ONE))

    assert (hub.sent, len(hub.directory.owned), len(hub.directory._held)) == ([], 0, 0)


def test_clients_of_a_hub_that_was_alone_are_known_to_one_that_comes() -> None:
    """Those that are connected, and those whose CONNECT is under way."""
    net = Net(ONE, TWO)
    one, two = net.hubs.values()
    mine, theirs = key_of(ONE, ONE, TWO), key_of(TWO, ONE, TWO)
    one.connect(mine)
    one.directory.hold(theirs, lambda _written_s: None, takes=True)
    one.in_use.add(theirs)
    one.see(ONE, TWO)
    two.see(ONE, TWO)

    answers = [two.hold(mine), two.hold(theirs)]
    one.finish(mine)
    assert answers == [[0.0], []]

    one.connected.add(theirs)
    one.directory.let_go(theirs)
    one.finish(theirs)

    assert answers == [[0.0], [0.0]]


# --- one connection


@pytest.mark.parametrize("owner", ALL)
def test_the_older_client_is_closed_before_the_newer_one_comes(owner: PeerId) -> None:
    """Whichever hub owns the key."""
    one, two, _ = cluster(*ALL)
    key = key_of(owner)
    one.connect(key)

    answers = two.hold(key)
    assert (answers, list(one.closing), one.hurried) == ([], [key], [key])
    one.finish(key)

    assert answers == [0.0]
    assert sum(len(hub.directory.owned) for hub in one.net.hubs.values()) == 1


def test_a_hub_that_leaves_a_key_hears_that_somebody_waits_for_it() -> None:
    """Elsewhere or here."""
    one, two, _ = cluster(*ALL)
    for key, asker in ((key_of(TWO), two), (key_of(THREE), one)):
        one.connect(key)
        one.directory.left(key)
        one.net.settle()
        assert key not in one.hurried

        asker.hold(key)

        assert one.hurried[-1] == key


def test_connects_of_one_client_come_one_after_the_other() -> None:
    one, two, three = cluster(*ALL)
    key = key_of(ONE)
    first, second, third = two.hold(key), three.hold(key), one.hold(key)
    assert (len(first), second, third) == (1, [], [])

    two.connected.add(key)
    two.directory.let_go(key)
    two.finish(key)
    assert (len(second), third) == (1, [])
    three.directory.let_go(key)  # refused: nobody is connected
    three.finish(key)

    assert len(third) == 1


def test_a_client_that_comes_back_to_its_hub_asks_nobody() -> None:
    one, *_ = cluster(*ALL)
    key = key_of(TWO)
    one.connect(key)
    one.sent.clear()

    assert one.hold(key) == [math.inf]
    assert one.sent == []


def test_an_ending_here_uses_a_key_that_is_here_and_asks_nobody_for_another() -> None:
    one, two, _ = cluster(*ALL)
    here, there = key_of(TWO), key_of(THREE)
    one.connect(here)
    two.connect(there)

    for key in (here, there):
        one.directory.use(key)
    answers = two.hold(here)
    one.directory.let_go(there)
    assert (one.closing, two.closing) == ({}, {})
    one.connected.remove(here)
    one.directory.let_go(here)
    one.finish(here)

    assert answers == [0.0]


def test_an_expiry_does_not_disturb_a_client_elsewhere() -> None:
    one, two, _ = cluster(*ALL)
    key = key_of(THREE)
    one.connect(key)

    assert two.hold(key, takes=False) == [None]
    assert one.closing == {}

    one.disconnect(key)
    one.finish(key)
    assert len(two.hold(key, takes=False)) == 1


def test_a_connect_that_is_given_up_leaves_nothing() -> None:
    """While the client elsewhere is being closed."""
    one, two, three = cluster(*ALL)
    key = key_of(THREE)
    one.connect(key)
    answers = two.hold(key)

    two.directory.give_up(key)
    one.finish(key)

    assert answers == []
    assert (len(three.directory.owned), three.directory.owned.waiting, two.directory.waiting) == (0, 0, 0)


def test_an_answer_that_crosses_a_release_is_not_taken() -> None:
    one, _, three = cluster(*ALL)
    key = key_of(THREE)
    one.net.silent = {THREE}
    answers = one.hold(key)
    one.directory.give_up(key)
    again = one.hold(key)

    one.net.silent = set()
    one.net.settle()

    assert (answers, len(again)) == ([], 1)
    assert three.directory.owned.holder(key) == (ONE, one.directory._number)


def test_who_wants_a_key_that_is_being_left_gets_it_afterwards() -> None:
    one, two, _ = cluster(*ALL)
    key = key_of(THREE)
    one.connect(key)
    other = two.hold(key)

    mine = one.hold(key)
    one.finish(key)
    assert (len(other), mine) == (1, [])
    two.directory.let_go(key)
    two.finish(key)

    assert len(mine) == 1


# --- what was written to the log


def test_the_answer_says_how_long_ago_another_hub_has_written() -> None:
    one, two, _ = cluster(*ALL)
    key, other = key_of(THREE), key_of(ONE)
    one.net.now += 50.0
    one.connect(key)
    one.disconnect(key)
    one.finish(key, has_written=True)
    one.net.now += 2.0

    assert two.hold(key) == [2.0]
    assert two.hold(other) == [52.0]  # since the hubs are there


def test_what_was_written_long_ago_is_forgotten_and_never_said_to_be_longer_ago() -> None:
    one, two, three = cluster(*ALL)
    keys = [key for key in ((1, f"d{number}") for number in range(2_000)) if View(0, ALL).owner(key) == THREE][:200]
    for key in keys:
        one.connect(key)
        one.disconnect(key)
        one.finish(key, has_written=True)
        one.net.now += 1.0

    written = three.directory.owned._written
    assert len(written._young) + len(written._old) < 70
    for at, key in enumerate(keys):
        [ago_s] = two.hold(key)
        assert ago_s is not None
        assert 0.0 <= ago_s <= 200.0 - at


# --- hubs come and go


def test_what_a_hub_had_that_is_gone_is_free() -> None:
    one, two, _ = cluster(*ALL)
    key = key_of(TWO)
    one.connect(key)
    answers = two.hold(key)

    one.net.kill(ONE)

    assert answers == [0.0]


def test_keys_of_an_owner_that_is_gone_are_known_to_the_next_one() -> None:
    one, two, three = cluster(*ALL)
    key = key_of(THREE)
    one.connect(key)
    waiting = two.hold(key)
    one.net.kill(THREE)

    one.see(ONE, TWO)
    two.see(ONE, TWO)
    assert waiting == []
    one.finish(key)

    assert len(waiting) == 1
    assert len(one.directory.owned) + len(two.directory.owned) == 1
    del three


def test_a_new_owner_answers_when_all_entries_have_come() -> None:
    """Not by the word of those that were quicker."""
    net = Net(*ALL)
    one, two, three = net.hubs.values()
    one.see(ONE, TWO)
    two.see(ONE, TWO)
    key = key_of(THREE)
    one.connect(key)
    three.see(*ALL)
    two.see(*ALL)

    answers = two.hold(key)
    assert (answers, one.closing) == ([], {})
    one.see(*ALL)
    one.finish(key)

    assert answers == [0.0]


def test_a_key_whose_owner_stays_waits_for_nobody() -> None:
    """A hub that joins, or one that is frozen when the view changes, holds up its own keys alone."""
    net = Net(*ALL)
    one, two, _ = net.hubs.values()
    one.see(ONE, TWO)
    two.see(ONE, TWO)

    one.see(*ALL)

    assert len(two.hold(key_of(ONE))) == 1


def test_a_key_that_a_hub_moves_is_not_granted_by_an_owner_that_does_not_count_that_hub_yet() -> None:
    """The hub is up, and has asked: its clients are as real as those of hubs that are counted."""
    four = PeerId(4, 1)
    net = Net(*ALL, four)
    one, two, three, _ = net.hubs.values()
    views = [View(0, members) for members in ((ONE, TWO), ALL, (*ALL, four))]
    key = next((1, f"k{n}") for n in range(1_000) if [view.owner((1, f"k{n}")) for view in views] == [ONE, ONE, four])
    one.see(ONE, TWO)
    two.see(ONE, TWO)
    three.see(*ALL)
    three.connect(key)

    three.see(*ALL, four)
    answers = two.hold(key)
    assert answers == []
    for hub in net.hubs.values():
        hub.see(*ALL, four)
    three.finish(key)

    assert len(answers) == 1


@pytest.mark.parametrize(("one_s", "two_s", "stays"), [(1.0, 2.0, TWO), (2.0, 1.0, ONE), (1.0, 1.0, TWO)])
@pytest.mark.parametrize("others", [0, 5])
def test_of_two_hubs_that_have_a_key_the_one_whose_client_came_later_stays(
    one_s: float, two_s: float, stays: PeerId, others: int
) -> None:
    """Their views did not have each other; a third hub has both. At the same time: the higher node number. How busy a hub is plays no part."""
    net = Net(*ALL)
    one, two, three = net.hubs.values()
    key = key_of(THREE)
    begun = net.now
    for hub, at_s in ((one, one_s), (two, two_s)):
        net.now = begun + at_s
        hub.connect(key)
    for _ in range(others):
        one.connect(key_of(TWO))
    net.now = begun + 10.0
    for hub in (one, two, three):
        hub.see(*ALL)

    kept, closed = (one, two) if stays == ONE else (two, one)
    assert (list(kept.closing), list(closed.closing)) == ([], [key])
    waiting = three.hold(key, takes=False)
    closed.finish(key)

    holder = three.directory.owned.holder(key)
    assert holder is not None
    assert holder[0] == stays
    assert waiting == [None]
    assert key in kept.connected


def test_a_hub_that_is_alone_at_last_gives_everybody_what_waits() -> None:
    one, two = cluster(ONE, TWO)
    key = key_of(TWO, ONE, TWO)
    one.net.silent = {TWO}
    answers = one.hold(key)
    del one.net.hubs[TWO]
    one.directory.peer_gone(TWO)

    one.see(ONE)

    assert answers == [0.0]
    assert one.directory._busy == {}
    del two


# --- frames


def test_a_view_without_its_announcer_is_refused() -> None:
    one, *_ = cluster(*ALL)

    with pytest.raises(BadFrameError):
        one.directory.frame(TWO, FrameType.VIEW, Announced(View(1, [ONE, THREE]), is_whole=True).encode())


def test_a_frame_of_a_hub_that_is_gone_is_passed_over() -> None:
    one, *_ = cluster(*ALL)
    one.directory.peer_gone(TWO)

    one.directory.frame(TWO, FrameType.HOLD, Hold(key_of(ONE), 1, takes=True).encode())

    assert len(one.directory.owned) == 0


def test_a_new_version_of_the_same_hubs_is_announced_and_moves_no_key() -> None:
    """Another hub may have been there between the two: it is a view of its own, and nobody's client is disturbed by it."""
    one, two, three = cluster(*ALL)
    key = key_of(TWO)
    one.connect(key)
    one.sent.clear()

    for hub in (one, two, three):
        hub.see(*ALL, version=1)

    assert one.sent == [FrameType.VIEW] * 2 + [FrameType.ENTRIES] * 2
    assert len(two.directory.owned) == 1
    assert three.hold(key) == []
    one.finish(key)
    assert one.connected == set()


def test_a_connect_is_granted_while_hubs_have_read_different_versions_of_the_same_hubs() -> None:
    """They agree about the owner, and one of them may not reach the accounts."""
    one, two, _ = cluster(*ALL)
    key = key_of(TWO)

    one.see(*ALL, version=1)

    assert len(one.hold(key)) == 1
    assert len(two.directory.owned) == 1
