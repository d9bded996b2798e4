"""The session directory: one hub at a time has a key, whoever owns it, and what becomes of it when hubs come and go."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable

import pytest

from iothub.peers.directory import TURN_KEYS, Directory
from iothub.peers.directory_frames import Announced, Hold
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View

ONE, TWO, THREE = PeerId(1, 1), PeerId(2, 1), PeerId(3, 1)
ALL = (ONE, TWO, THREE)


def key_of(owner: PeerId, *members: PeerId) -> Key:
    """A key that this hub owns among these."""
    view = View(0, members or ALL)
    return next(key for key in ((1, f"c{number}") for number in range(1_000)) if view.owner(key) == owner)


class Hub:
    """A directory with its clients; `closing`: who is being closed, until `finish`. Fulfils `Clients`, `Announcer` and `BootClock`."""

    def __init__(self, net: Net, me: PeerId) -> None:
        self.id = me
        self.net = net
        self.connected: set[Key] = set()
        self.in_use: set[Key] = set()
        self.closing: dict[Key, Callable[[bool], None]] = {}
        self.hurried: list[Key] = []
        self.sent: list[FrameType] = []
        self.connected_at: dict[Key, float] = {}
        self.directory = Directory(me, self, self, self, net.soon.append, net.turn_keys, lambda: net.now)

    def boottime(self) -> float:
        return self.net.now

    def announce(self, peer: PeerId, frame_type: FrameType, body: bytes) -> int:
        self.sent.append(frame_type)
        self.net.frames.append((self.id, peer, frame_type, body))
        return len(self.sent)

    def is_connected(self, key: Key) -> bool:
        return key in self.connected

    def connected_at_ms(self, key: Key) -> int:
        return int(self.connected_at.get(key, 0.0) * 1000) if key in self.connected else 0

    def connected_keys(self) -> Iterable[Key]:
        return (key for key in sorted(self.connected) if key in self.connected)

    def keys_in_use(self) -> Iterable[Key]:
        return self.in_use

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        self.connected.discard(key)
        self.closing[key] = on_left

    def hurry(self, key: Key) -> None:
        self.hurried.append(key)

    def finish(self, key: Key, *, has_written: bool = False) -> None:
        self.closing.pop(key)(has_written)
        self.net.settle()

    def hold(self, key: Key, *, takes: bool = True) -> list[float | None]:
        answers: list[float | None] = []
        self.directory.hold(key, answers.append, takes=takes)
        self.net.settle()
        return answers

    def connect(self, key: Key) -> None:
        """A CONNECT that nothing holds up."""
        assert self.hold(key)
        self.connected.add(key)
        self.connected_at[key] = self.net.now
        self.directory.let_go(key)

    def disconnect(self, key: Key) -> None:
        self.connected.remove(key)
        self.directory.left(key)

    def see(self, *members: PeerId, version: int = 0) -> None:
        self.directory.set_view(View(version, members))
        self.net.settle()


class Net:
    """Hubs that are all linked; frames arrive with `settle`, but those to and from `silent` hubs wait."""

    def __init__(self, *ids: PeerId, turn_keys: int = TURN_KEYS) -> None:
        self.now = 100.0
        self.turn_keys = turn_keys
        self.frames: deque[tuple[PeerId, PeerId, FrameType, bytes]] = deque()
        self.silent: set[PeerId] = set()
        self.soon: list[Callable[[], None]] = []
        self.hubs = {each: Hub(self, each) for each in ids}
        for hub in self.hubs.values():
            for other in ids:
                if other != hub.id:
                    hub.directory.peer_up(other)

    def settle(self) -> None:
        waiting: list[tuple[PeerId, PeerId, FrameType, bytes]] = []
        while self.frames:
            source, target, frame_type, body = frame = self.frames.popleft()
            if self.silent & {source, target}:
                waiting.append(frame)
            elif target in self.hubs and source in self.hubs:
                self.hubs[target].directory.frame(source, frame_type, body)
        self.frames.extend(waiting)

    def turn(self) -> None:
        """Another turn at all hubs."""
        soon = list(self.soon)
        self.soon.clear()
        for call in soon:
            call()
        self.settle()

    def kill(self, peer: PeerId) -> None:
        del self.hubs[peer]
        for hub in self.hubs.values():
            hub.directory.peer_gone(peer)
        self.settle()


def cluster(*ids: PeerId) -> list[Hub]:
    net = Net(*ids)
    for hub in net.hubs.values():
        hub.directory.set_view(View(0, ids))
    net.settle()
    return list(net.hubs.values())


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


# --- many keys


def connected(hub: Hub, owner: PeerId, count: int) -> list[Key]:
    """Connect so many clients whose keys this hub owns among all."""
    view = View(0, ALL)
    keys = [key for key in ((1, f"m{number}") for number in range(1_000)) if view.owner(key) == owner][:count]
    for key in keys:
        hub.connect(key)
    return keys


def test_an_owner_answers_once_it_has_the_last_entries() -> None:
    """Clients are noted over three turns, and their entries sent over three more, the first of which is the last of the others."""
    net = Net(ONE, TWO, THREE, turn_keys=2)
    one, two, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    for hub in (one, two, three):
        hub.see(*ALL)
    two.hold(keys[0])
    assert one.sent == []

    owned = []
    for _ in range(4):
        assert one.closing == {}
        net.turn()
        owned.append(len(three.directory.owned))

    assert (owned, list(one.closing)) == ([0, 2, 4, 5], [keys[0]])


def test_what_is_released_before_its_entry_is_sent_is_not_sent() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    for hub in (one, three):
        hub.see(ONE, THREE)
    net.turn()
    net.turn()
    assert len(three.directory.owned) == 2
    for key in keys:
        one.disconnect(key)
        one.finish(key)

    net.turn()
    net.turn()

    assert (len(three.directory.owned), net.soon) == (0, [])
    assert len(three.hold(keys[0])) == 1


def test_clients_that_come_and_go_while_others_are_noted_are_entries_if_they_are_there_then() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    first, *others, last = connected(one, THREE, 8)
    one.disconnect(last)
    one.see(ONE, THREE)
    three.see(ONE, THREE)
    one.connect(last)
    one.disconnect(first)
    assert one.hold(others[0]) == [0.0]
    one.connected.remove(others[0])
    one.directory.let_go(others[0])

    while net.soon:
        net.turn()

    assert {key for key in (first, *others, last) if three.directory.owned.holder(key)} == {*others[1:], last}


def test_a_hub_that_is_alone_again_before_its_clients_are_noted_has_said_nothing() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, _ = net.hubs.values()
    connected(one, THREE, 5)
    one.see(ONE, THREE)
    one.see(ONE)

    net.turn()

    assert (one.sent, net.soon) == ([], [])


def test_a_view_that_changes_before_the_last_entries_loses_no_key() -> None:
    """An owner that was none for a moment has forgotten what it had."""
    net = Net(ONE, TWO, THREE, turn_keys=2)
    one, _, three = net.hubs.values()
    keys = connected(one, THREE, 5)
    one.see(*ALL)
    while not len(three.directory.owned):
        net.turn()
    for version, members in enumerate((ALL, (ONE, TWO), ALL)):
        for hub in net.hubs.values():
            if hub.id in members:
                hub.directory.set_view(View(version, members))
        net.settle()
    while net.soon:
        net.turn()

    assert {key for key in keys if (three.directory.owned.holder(key) or (None,))[0] == ONE} == set(keys)


def test_a_hub_that_is_alone_sends_no_further_entries() -> None:
    net = Net(ONE, THREE, turn_keys=2)
    one, three = net.hubs.values()
    connected(one, THREE, 5)
    one.see(ONE, THREE)
    while not len(three.directory.owned):
        net.turn()
    one.sent.clear()
    one.see(ONE)

    net.turn()

    assert (one.sent, net.soon) == ([], [])
