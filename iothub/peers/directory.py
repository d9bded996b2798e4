"""The session directory between hubs: one connection per Client Identifier, at whichever hub, by asking the hub that owns it.

Knows no socket, no reactor and no session: whoever wants a key is called back, and `Clients` knows who is connected. Sans I/O.

    a CONNECT -> HOLD to the owner -> HELD -> the session is opened -> the hub keeps the key while the client is connected -> RELEASE
    a CONNECT at another hub -> HOLD -> TAKE to the hub that has the key -> it closes its client -> RELEASE -> HELD
    views change, or a peer comes -> VIEW at once, to all -> ENTRIES over as many turns as they need, so that none is long -> the last ENTRIES says so

Invariants: a hub serves a CONNECT of a key only while it has the key. Each hold has a number, and RELEASE names it: a late one erases no later
hold. What waits while views change is asked anew, of the new owner and by a new number. A hub that is alone asks nobody, and keeps no entries.
Numbers are hybrid logical clocks, in microseconds of wall time: of two hubs that took one key while they did not hear each other, the one that
took it later keeps it, as far as their clocks agree.
Entries of a slot are what this hub has when they are sent: what changes before that, HOLD and RELEASE say.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import partial
from itertools import islice
from typing import Protocol

from iothub.base.clock import BootClock, SystemClock
from iothub.peers.directory_frames import (
    BODIES,
    Announced,
    DirectoryFrame,
    Held,
    Hold,
    Release,
    Take,
    parts,
)
from iothub.peers.directory_owner import DirectoryOwner
from iothub.peers.frames import BadFrameError, FrameType
from iothub.peers.packed_keys import PackedKeys
from iothub.peers.ports import Announcer, PeerId
from iothub.peers.view import Key, View

DIRECTORY_TYPES = tuple(BODIES)
TURN_KEYS = 2_000
"""Keys that are noted or sent in one turn, and as many that are swept."""

OnHeld = Callable[[float | None], None]
"""Gets the seconds since another hub may last have written about the key to the session log; None: another hub has it, and is not disturbed."""


class Clients(Protocol):
    """The clients of this hub, as the directory sees them."""

    def is_connected(self, key: Key) -> bool: ...

    def connected_at_ms(self, key: Key) -> int:
        """Return when the client connected, in Unix time; 0: it is not connected."""

    def connected_keys(self) -> Iterable[Key]:
        """Return the keys of all clients that are connected: over several turns, each if it is connected then, perhaps without those that come."""

    def keys_in_use(self) -> Iterable[Key]:
        """Return the keys of which a CONNECT or an ending is under way."""

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        """Close the client if it is connected, as one that another connection takes over.

        Call back once what this hub has written about its session can be read by others, and say whether it has written something.
        """

    def hurry(self, key: Key) -> None:
        """Somebody waits for a key that is being left."""


class _State(Enum):
    ASKED = 1  # the owner has not answered
    USED = 2  # somebody here is at work with the key
    LEAVING = 3  # the client is being closed, or what was written is on its way to the log; then RELEASE


class _Busy:
    """A key that this hub asks for, works with or leaves. `then`: who wants it after it was left."""

    __slots__ = ("is_taken", "number", "on_held", "owner", "state", "takes", "then")

    def __init__(self, state: _State, number: int) -> None:
        self.state = state
        self.number = number
        self.owner: PeerId | None = None
        self.takes = False
        self.on_held: OnHeld | None = None
        self.is_taken = False
        self.then: tuple[bool, OnHeld] | None = None


class Directory:
    """Fulfils `Receiver` of links. On the reactor thread; the caller sees to it that one at a time works with a key at this hub."""

    def __init__(
        self,
        me: PeerId,
        links: Announcer,
        clients: Clients,
        clock: BootClock,
        call_soon: Callable[[Callable[[], None]], object],
        turn_keys: int = TURN_KEYS,
        wall: Callable[[], float] = SystemClock.wall,
    ) -> None:
        """`call_soon`: calls back in another turn."""
        self._me = me
        self._links = links
        self._clients = clients
        self._owner = DirectoryOwner(me, self._send, clock.boottime)
        self._call_soon = call_soon
        self._turn_keys = turn_keys
        self._wall = wall
        self._is_turn_due = False
        self._view: View | None = None  # None: this hub is alone
        self._coming: tuple[View, Iterator[Key]] | None = None  # not alone any more, once these clients have been noted
        self._linked: set[PeerId] = set()
        self._held = PackedKeys()  # numbers of the holds that this hub has
        self._owed: dict[PeerId, set[int]] = {}  # slots of which an owner has not been sent the entries
        self._busy: dict[Key, _Busy] = {}  # keys of which something is going on
        self._number = 0
        self._to_self: deque[DirectoryFrame] = deque()
        self._is_applying = False

    @property
    def waiting(self) -> int:
        """How many keys this hub has asked for without an answer."""
        return sum(busy.state is _State.ASKED for busy in self._busy.values())

    @property
    def owned(self) -> DirectoryOwner:
        """This hub's part of the directory."""
        return self._owner

    # --- who there is

    def set_view(self, view: View) -> None:
        """Say which hubs there are, this one among them."""
        if view.members == (self._me,):
            if self._view is not None or self._coming is not None:
                self._stand_alone()
        elif self._view is None:
            self._come(view)
        elif view != self._view:
            self._change(view, self._view)
        self._apply_own()

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._linked.add(peer)
        if self._view is not None:
            self._send(peer, Announced(self._view, is_whole=True))
            self._owe_all(self._view, [peer])
            for key, busy in self._busy.items():
                if busy.state is _State.ASKED and busy.owner == peer:
                    self._send(peer, Hold(key, busy.number, busy.takes))
            self._apply_own()

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: what it had is free. What was asked of it is asked anew when the view changes."""
        self._linked.discard(peer)
        self._owed.pop(peer, None)
        self._owner.peer_gone(peer)
        self._have_turn()
        self._apply_own()

    # --- what this hub wants

    def hold(self, key: Key, on_held: OnHeld, *, takes: bool) -> None:
        """Call back once this hub has the key, now or later. `takes`: a client that is connected elsewhere is closed first."""
        busy = self._busy.get(key)
        if busy is not None:
            busy.then = takes, on_held
            if busy.state is _State.LEAVING:
                self._clients.hurry(key)
        elif self._view is None:
            on_held(0.0)
        elif self._use(key):
            on_held(math.inf)
        else:
            self._ask(key, takes, on_held, self._view)
            self._apply_own()

    def use(self, key: Key) -> None:
        """Work with a key that this hub has, or without it: nobody else is asked. `let_go` follows."""
        if self._view is not None and key not in self._busy:
            self._use(key)

    def give_up(self, key: Key) -> None:
        """Do not wait for a key any more: `on_held` is not called."""
        busy = self._busy.get(key)
        if busy is None:
            return
        busy.then = None
        if busy.state is _State.ASKED:
            del self._busy[key]
            self._release(key, busy.number, has_written=False)
            self._apply_own()

    def let_go(self, key: Key) -> None:
        """The work is done: keep the key while its client is connected and no other hub asks for it."""
        busy = self._busy.get(key)
        if busy is None:
            if self._coming is not None:
                self._note_client(key) if self._clients.is_connected(key) else self._forget(key)
        elif busy.state is not _State.USED:
            return
        elif not busy.is_taken and self._clients.is_connected(key):
            del self._busy[key]
        else:
            self._leave(key, busy)
            self._apply_own()

    def left(self, key: Key) -> None:
        """The client's connection has closed."""
        if self._view is None:
            self._forget(key)
        elif key not in self._busy and self._use(key):
            self._leave(key, self._busy[key])
            self._apply_own()

    # --- what other hubs say

    def frame(self, peer: PeerId, frame_type: FrameType, body: bytes) -> None:
        """Fulfils `Receiver`. Raises BadFrameError: it is malformed."""
        decoded = BODIES[frame_type].decode(body)
        if isinstance(decoded, Announced) and peer not in decoded.view.members:
            raise BadFrameError("a view without the hub that announces it")
        if peer in self._linked:
            self._take(peer, decoded)
            self._apply_own()

    def _take(self, peer: PeerId, frame: DirectoryFrame) -> None:
        owner = self._owner
        if isinstance(frame, Hold):
            self._number = max(self._number, frame.number)
            owner.ask(peer, frame)
        elif isinstance(frame, Held):
            self._take_answer(peer, frame)
        elif isinstance(frame, Release):
            owner.release(peer, frame.key, frame.number, has_written=frame.has_written)
        elif isinstance(frame, Take):
            self._take_take(frame)
        elif isinstance(frame, Announced):
            owner.announce(peer, frame.view, is_whole=frame.is_whole)
            self._have_turn()
        else:
            self._number = max([self._number, *(number for _, number in frame.entries)])
            owner.add_entries(peer, frame.entries, is_last=frame.is_last)

    def _take_answer(self, peer: PeerId, answer: Held) -> None:
        busy = self._busy.get(answer.key)
        if busy is None or (busy.state, busy.owner, busy.number) != (_State.ASKED, peer, answer.number):
            return  # it was given up, and released, or has been asked anew
        on_held, busy.on_held = busy.on_held, None
        if answer.is_granted:
            busy.state = _State.USED
            self._held.put(answer.key, answer.number)
        else:
            del self._busy[answer.key]
        if on_held is not None:
            on_held(answer.written_s if answer.is_granted else None)

    def _take_take(self, take: Take) -> None:
        busy = self._busy.get(take.key)
        if busy is None:
            if self._held.get(take.key) == take.number and self._use(take.key):
                self._leave(take.key, self._busy[take.key])
                self._clients.hurry(take.key)
        elif busy.number == take.number and busy.state is _State.USED:
            busy.is_taken = True
        elif busy.number == take.number and busy.state is _State.LEAVING:
            self._clients.hurry(take.key)

    # --- views

    def _stand_alone(self) -> None:
        """Nobody else is there: whoever waits has the key, and the owner's part is not needed."""
        self._view = self._coming = None
        self._owner.stand_alone()
        self._have_turn()
        self._held.clear()
        self._owed.clear()
        self._to_self.clear()
        for key, busy in list(self._busy.items()):
            if busy.state is not _State.LEAVING:
                del self._busy[key]
                if busy.on_held is not None:
                    busy.on_held(0.0)

    def _come(self, view: View) -> None:
        """Another hub is there. Until this hub says so, nobody is granted what it has, so its clients may be noted over several turns."""
        if self._coming is None:
            self._coming = view, iter(self._clients.connected_keys())
            self._note_clients()
        else:
            self._coming = view, self._coming[1]

    def _note_clients(self) -> None:
        """This hub was alone: its clients have their keys without having asked."""
        if self._coming is None:
            return
        view, keys = self._coming
        noted = 0
        for key in islice(keys, self._turn_keys):
            self._note_client(key)
            noted += 1
        if noted == self._turn_keys:
            self._have_turn()
            return
        self._coming = None
        for key in self._clients.keys_in_use():
            if key not in self._busy:
                self._note_client(key)
                self._use(key)
        self._announce(view, is_whole=True)
        self._owe_all(view, [self._me, *self._linked])

    def _note_client(self, key: Key) -> None:
        if key not in self._busy:
            number = self._held.get(key)
            if number is None:
                number = self._clients.connected_at_ms(key) * 1_000 or self._next_number()
                self._held.put(key, number)
            self._number = max(self._number, number)

    def _change(self, view: View, before: View) -> None:
        self._announce(view, is_whole=False)
        if view.members != before.members:
            for slot, (old, new) in enumerate(zip(before.owners(), view.owners(), strict=True)):
                if old != new:
                    self._owed.get(old, set()).discard(slot)
                    if new in self._owed and self._held.has(slot):
                        self._owed[new].add(slot)
        self._send_entries()
        for key, busy in list(self._busy.items()):
            if busy.state is _State.ASKED and busy.on_held is not None and view.owner(key) != busy.owner:
                self._ask(key, busy.takes, busy.on_held, view)

    def _announce(self, view: View, *, is_whole: bool) -> None:
        """Say to all owners, this hub among them, which view it has; they are owed the last ENTRIES at least."""
        self._view = view
        self._owner.set_view(view)
        for peer in (self._me, *self._linked):
            self._send(peer, Announced(view, is_whole))
            self._owed.setdefault(peer, set())

    def _owe_all(self, view: View, peers: Iterable[PeerId]) -> None:
        """Send these owners all that they have to know by this view."""
        for peer in peers:
            self._owed[peer] = set()
        owners = view.owners()
        for slot in self._held.slots():
            if owners[slot] in peers:
                self._owed[owners[slot]].add(slot)
        self._send_entries()

    def _send_entries(self) -> None:
        """Send what is owed, as much as may be sent in one turn."""
        left = self._turn_keys
        for peer, slots in list(self._owed.items()):
            entries: list[tuple[Key, int]] = []
            while slots and len(entries) < left:
                entries += self._held.of_slot(slots.pop())
            if not slots:
                del self._owed[peer]
            for part in parts(entries, is_last=not slots):
                self._send(peer, part)
            left -= len(entries)
            if left <= 0:
                break
        if self._owed:
            self._have_turn()

    def _have_turn(self) -> None:
        if not self._is_turn_due:
            self._is_turn_due = True
            self._call_soon(self._take_turn)

    def _take_turn(self) -> None:
        self._is_turn_due = False
        if self._coming is not None:
            self._note_clients()
        elif self._owed:
            self._send_entries()
        if self._owner.sweep(self._turn_keys):
            self._have_turn()
        self._apply_own()

    # --- private

    def _next_number(self) -> int:
        self._number = max(self._number + 1, int(self._wall() * 1_000_000))
        return self._number

    def _forget(self, key: Key) -> None:
        self._held.pop(key)

    def _use(self, key: Key) -> bool:
        """Begin to work with a key of which nothing is going on. False: this hub does not have it."""
        number = self._held.get(key)
        if number is not None:
            self._busy[key] = _Busy(_State.USED, number)
        return number is not None

    def _ask(self, key: Key, takes: bool, on_held: OnHeld, view: View) -> None:
        busy = self._busy[key] = _Busy(_State.ASKED, self._next_number())
        busy.owner, busy.takes, busy.on_held = view.owner(key), takes, on_held
        self._send(busy.owner, Hold(key, busy.number, takes))

    def _leave(self, key: Key, busy: _Busy) -> None:
        busy.state = _State.LEAVING
        self._clients.leave(key, partial(self._has_left, key, busy))

    def _has_left(self, key: Key, busy: _Busy, has_written: bool) -> None:
        del self._busy[key]
        self._forget(key)
        self._release(key, busy.number, has_written=has_written)
        if busy.then is not None:
            takes, on_held = busy.then
            self.hold(key, on_held, takes=takes)
        self._apply_own()

    def _release(self, key: Key, number: int, *, has_written: bool) -> None:
        if self._view is not None:
            self._send(self._view.owner(key), Release(key, number, has_written))

    def _send(self, peer: PeerId, frame: DirectoryFrame) -> None:
        """Send a frame; to this hub itself it is a call, once what is running is done. A hub that was never linked gets all when it is."""
        if peer == self._me:
            self._to_self.append(frame)
        elif peer in self._linked:
            self._links.announce(peer, frame.TYPE, frame.encode())

    def _apply_own(self) -> None:
        if self._is_applying:
            return
        self._is_applying = True
        try:
            while self._to_self:
                self._take(self._me, self._to_self.popleft())
        finally:
            self._is_applying = False
