"""The owner's side of the session directory: which hub has which Client Identifier, of those keys that this hub owns, and who waits for one.

Knows no client and no link: hubs ask and release by number, and answers are given to `send`. Sans I/O; the same for hubs that are linked and for
this hub's own part.

    HOLD -> nobody has the key -> HELD
    HOLD -> another hub has it -> TAKE to that hub -> it has closed its client: RELEASE -> HELD

Invariants: of one hub, this owner knows exactly the entries that the hub's announced view gives it, whatever this hub's own view is. Nothing is
granted unless every view that may be in force says that this hub is the owner, and it has all entries of the key: those of its last complete view.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence

from iothub.peers.directory_frames import DirectoryFrame, Held, Hold, Take
from iothub.peers.packed_keys import PackedKeys
from iothub.peers.ports import PeerId
from iothub.peers.view import SLOTS, Key, View, slot_of

REMEMBERED_S = (
    30.0  # how long it is known for each key when it was last written about; after that it was longer ago for all
)

_INDEX_BITS = 16
_INDEX = (1 << _INDEX_BITS) - 1

Send = Callable[[PeerId, DirectoryFrame], None]


class _Holders:
    """Which hub has which key, and by what number: `PackedKeys` with the number and the hub's index in one.

    Invariants: a hub has an index from its first key on until it is dropped. What has the index of a dropped one is not there: its bytes are
    swept later, before another hub gets that index.
    """

    __slots__ = ("_dropped", "_indices", "_keys", "_next_slot", "_peers")

    def __init__(self) -> None:
        self._keys = PackedKeys()
        self._indices: dict[PeerId, int] = {}
        self._peers: dict[int, PeerId] = {}
        self._dropped: set[int] = set()
        self._next_slot = SLOTS  # to be swept; the last sweep is over

    def __len__(self) -> int:
        """How many keys hubs have; looks at each."""
        return sum(1 for _ in self.items())

    def get(self, key: Key) -> tuple[PeerId, int] | None:
        packed = self._keys.get(key)
        return None if packed is None else self._unpacked(packed)

    def put(self, key: Key, holder: tuple[PeerId, int]) -> None:
        peer, number = holder
        index = self._indices.get(peer)
        if index is None:
            used = self._peers.keys() | self._dropped
            index = self._indices[peer] = next(free for free in range(1 << _INDEX_BITS) if free not in used)
            self._peers[index] = peer
        self._keys.put(key, number << _INDEX_BITS | index)

    def pop(self, key: Key) -> None:
        self._keys.pop(key)

    def items(self) -> Iterator[tuple[Key, tuple[PeerId, int]]]:
        for slot in self._keys.slots():
            for key, packed in self._keys.of_slot(slot):
                holder = self._unpacked(packed)
                if holder is not None:
                    yield key, holder

    def drop(self, peer: PeerId, slots: Collection[int] | None) -> None:
        """Forget what a hub has in these slots; None: in all, at once, however much it is."""
        index = self._indices.get(peer)
        if index is None:
            return
        if slots is None:
            del self._indices[peer], self._peers[index]
            self._dropped.add(index)
            self._next_slot = 0
        else:
            for slot in slots:
                self._keys.remove(slot, lambda packed: packed & _INDEX == index)

    def sweep(self, keys: int) -> bool:
        """Give back memory of what was dropped: look at so many keys, or at those of one slot. Whether there is more to do."""
        left = keys
        while self._next_slot < SLOTS and left > 0:
            left -= self._keys.remove(self._next_slot, lambda packed: packed & _INDEX in self._dropped)
            self._next_slot += 1
        if self._next_slot == SLOTS:
            self._dropped.clear()
        return self._next_slot < SLOTS

    def _unpacked(self, packed: int) -> tuple[PeerId, int] | None:
        peer = self._peers.get(packed & _INDEX)
        return None if peer is None else (peer, packed >> _INDEX_BITS)


class _Contest:
    """A key for which somebody waits, or that more than one hub had. `is_taken`: the holder was asked to release it."""

    __slots__ = ("is_taken", "losers", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[PeerId, Hold]] = deque()
        self.losers: dict[PeerId, int] = {}  # they release it, too, before anybody gets it
        self.is_taken = False


class _Announcer:
    """What a hub has announced, this one too: its views, the last one being the one that it has now, and whether all its entries have come.

    Invariant: a view counts until the entries by a later one have come; between the two frames the hub has keys that are not known here.
    """

    __slots__ = ("is_complete", "is_known", "serves", "views")

    def __init__(self) -> None:
        self.views: list[View] = []
        self.serves = False  # it has clients, so its views count, even if this hub's own view does not have it yet
        self.is_known = False  # what its earlier views left here is all there
        self.is_complete = False

    def announce(self, view: View, *, is_whole: bool) -> None:
        self.views.append(view)
        self.is_known = self.is_known and not is_whole
        self.is_complete = False

    def complete(self) -> None:
        del self.views[:-1]
        self.is_known = self.is_complete = True


class _Written:
    """When hubs last released keys of which they had written something to the session log. Times by the caller's clock.

    Invariant: two halves, so that what is old goes without a look at each.
    """

    def __init__(self) -> None:
        self._young: dict[Key, float] = {}
        self._old: dict[Key, float] = {}
        self._turned_at = -math.inf
        self._all_before = -math.inf  # no key that is not remembered was written about after this

    def note(self, key: Key, now: float) -> None:
        if now - self._turned_at > REMEMBERED_S:
            self._all_before = max(self._all_before, self._turned_at)
            self._old, self._young, self._turned_at = self._young, {}, now
        self._young[key] = now

    def note_all(self, now: float) -> None:
        """Somebody may have written about any key."""
        self._all_before = now

    def ago_s(self, key: Key, now: float) -> float:
        """Return how long ago somebody may last have written about the key."""
        at = self._young.get(key) or self._old.get(key, -math.inf)
        return max(now - max(self._all_before, at), 0.0)


class DirectoryOwner:
    """One hub's part of the directory."""

    def __init__(self, me: PeerId, send: Send, now: Callable[[], float]) -> None:
        self._me = me
        self._send = send
        self._now = now
        self._holders = _Holders()
        self._contests: dict[Key, _Contest] = {}
        self._announcers: dict[PeerId, _Announcer] = {}
        self._gone: set[PeerId] = set()
        self._view: View | None = None
        self._views: list[View] = []  # this hub's, from its last complete one on
        self._in_force: tuple[View, ...] = ()
        self._written = _Written()

    def __len__(self) -> int:
        """How many entries there are."""
        return len(self._holders)

    def holder(self, key: Key) -> tuple[PeerId, int] | None:
        """Return which hub has a key, and by what number."""
        return self._holders.get(key)

    @property
    def waiting(self) -> int:
        """How many hubs' questions wait for an answer."""
        return sum(len(contest.waiting) for contest in self._contests.values())

    # --- which hubs there are

    def set_view(self, view: View) -> None:
        """This hub's view changes; what it has itself is announced like what others have."""
        self._view = view
        if self._views:
            self._views.append(view)
        self._gone &= set(view.members)
        self._judge()

    def announce(self, peer: PeerId, view: View, *, is_whole: bool) -> None:
        """A hub has a view from now on."""
        announcer = self._announcers.setdefault(peer, _Announcer())
        before = announcer.views[-1] if announcer.views else None
        announcer.announce(view, is_whole=is_whole)
        self._drop_former(peer, before, view, is_whole=is_whole)
        self._judge()

    def add_entries(self, peer: PeerId, entries: Sequence[tuple[Key, int]], *, is_last: bool) -> None:
        """A hub has these keys. Of two entries for a key the one with the higher number stays: the other hub is asked to release its own."""
        self._add(peer, entries)
        announcer = self._announcers.get(peer)
        if announcer is None:
            return
        announcer.serves = announcer.serves or bool(entries)
        if is_last:
            announcer.complete()
            self._judge()

    def peer_gone(self, peer: PeerId) -> None:
        """A hub is gone: nobody waits for it, and what it had is free."""
        self._announcers.pop(peer, None)
        self._gone.add(peer)
        self._drop(peer)
        self._written.note_all(self._now())
        self._judge()

    def sweep(self, keys: int) -> bool:
        """Give back memory of what hubs had that are gone or say anew what they have; look at so many keys. Whether there is more to do."""
        return self._holders.sweep(keys)

    def stand_alone(self) -> None:
        """This hub is alone: it asks nobody, and answers nobody. What other hubs had is kept until they are gone."""
        self._announcers.pop(self._me, None)
        self._drop(self._me)
        self._views.clear()
        self._view, self._in_force = None, ()

    # --- what hubs ask

    def ask(self, peer: PeerId, hold: Hold) -> None:
        """A hub asks for a key; it is answered when it has it, or by what it must not disturb."""
        announcer = self._announcers.get(peer)
        if announcer is not None:
            announcer.serves = True
        self._contest(hold.key).waiting.append((peer, hold))
        self._proceed(hold.key)

    def release(self, peer: PeerId, key: Key, number: int, *, has_written: bool) -> None:
        """A hub gives up what it has or asked for by this number; a later number of it stays."""
        if has_written:
            self._written.note(key, self._now())
        contest = self._contests.get(key)
        if self.holder(key) == (peer, number):
            self._holders.pop(key)
            if contest is not None:
                contest.is_taken = False
        elif contest is not None:
            if contest.losers.get(peer) == number:
                del contest.losers[peer]
            contest.waiting = deque(each for each in contest.waiting if (each[0], each[1].number) != (peer, number))
        self._proceed(key)

    # --- private

    def _drop_former(self, peer: PeerId, before: View | None, view: View, *, is_whole: bool) -> None:
        """A hub has another view: forget what it had from this owner by the view before alone."""
        if is_whole or before is None or self._me not in view.members:
            self._drop(peer)
        elif before.members != view.members:
            owners = zip(before.owners(), view.owners(), strict=True)
            self._drop(peer, {slot for slot, (old, new) in enumerate(owners) if old == self._me != new})

    def _judge(self) -> None:
        """Find out which views may be in force, and answer what can be answered by them."""
        if self._view is None:
            return
        if self._views != [self._view] and all(map(self._has_announced, self._view.members)):
            self._views = [self._view]
            self._written.note_all(self._now())
        members = self._view.members
        announcers = [each for peer, each in self._announcers.items() if each.serves or peer in members]
        is_known = bool(self._views) and all(each.is_known for each in announcers)
        views = dict.fromkeys([*self._views, *(view for each in announcers for view in each.views)])
        self._in_force = tuple(views) if is_known else ()
        for key in list(self._contests):
            self._proceed(key)

    def _has_announced(self, peer: PeerId) -> bool:
        """Tell whether a hub has the view that this one has, and all its entries have come.

        A hub that is gone has none; but the first complete view is one that somebody else has said: by then others know this hub, and the next
        incarnation of a hub that is gone asks it. Before that, the next one may be alone with its clients.
        """
        if peer in self._gone:
            return bool(self._views)
        announcer = self._announcers.get(peer)
        return announcer is not None and announcer.is_complete and announcer.views[-1] == self._view

    def _may_grant(self, key: Key) -> bool:
        return bool(self._in_force) and all(view.owner(key) == self._me for view in self._in_force)

    def _contest(self, key: Key) -> _Contest:
        found = self._contests.get(key)
        if found is None:
            found = self._contests[key] = _Contest()
        return found

    def _proceed(self, key: Key) -> None:
        """Answer those who wait for a key, the first first, as far as that can be done now."""
        contest = self._contests.get(key)
        if contest is None:
            return
        while contest.waiting and self._may_grant(key):
            peer, hold = contest.waiting[0]
            holder = self.holder(key)
            if holder is None and not contest.losers:
                holder = peer, hold.number
                self._holders.put(key, holder)
            elif hold.takes:
                if holder is not None and not contest.is_taken:
                    contest.is_taken = True
                    self._send(holder[0], Take(key, holder[1]))
                return
            contest.waiting.popleft()
            is_granted = holder == (peer, hold.number)
            self._send(peer, Held(key, hold.number, is_granted, self._written.ago_s(key, self._now())))
        if not contest.waiting and not contest.losers:
            del self._contests[key]

    def _add(self, peer: PeerId, entries: Iterable[tuple[Key, int]]) -> None:
        for key, number in entries:
            holder = self._holders.get(key)
            if holder is None or (holder[0] == peer and holder[1] != number):
                self._holders.put(key, (peer, number))
            elif holder[0] != peer:
                self._part(key, holder, (peer, number))

    def _part(self, key: Key, one: tuple[PeerId, int], other: tuple[PeerId, int]) -> None:
        """Two hubs have a key: views had differed."""
        loser, winner = sorted((one, other), key=lambda each: (each[1], each[0]))
        contest = self._contest(key)
        contest.losers[loser[0]] = loser[1]
        if winner != one:
            self._holders.put(key, winner)
            contest.is_taken = False
        self._send(loser[0], Take(key, loser[1]))

    def _drop(self, peer: PeerId, slots: Collection[int] | None = None) -> None:
        """Forget what a hub has and waits for, in these slots; None: in all."""
        self._holders.drop(peer, slots)
        for key, contest in list(self._contests.items()):
            if slots is None or slot_of(key) in slots:
                contest.losers.pop(peer, None)
                contest.waiting = deque(each for each in contest.waiting if each[0] != peer)
                if self.holder(key) is None:
                    contest.is_taken = False
            if not contest.waiting and not contest.losers:
                del self._contests[key]
