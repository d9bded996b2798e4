"""The session directory between hubs: one connection per Client Identifier, at whichever hub, by asking the hub that owns it.

Knows no socket, no reactor and no session: whoever wants a key is called back, and `Clients` knows who is connected. Sans I/O.

    a CONNECT -> HOLD to the owner -> HELD -> the session is opened -> the hub keeps the key while the client is connected -> RELEASE
    a CONNECT at another hub -> HOLD -> TAKE to the hub that has the key -> it closes its client -> RELEASE -> HELD

Invariants: a hub serves a CONNECT of a key only while it has the key. Each hold has a number, and RELEASE names it: a late one erases no later
hold. What waits while views change is asked anew, of the new owner and by a new number. A hub that is alone asks nobody, and keeps no entries.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Iterable
from enum import Enum
from functools import partial
from typing import Protocol

from iothub.base.clock import BootClock
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
from iothub.peers.ports import Announcer, PeerId
from iothub.peers.view import Key, View

DIRECTORY_TYPES = tuple(BODIES)

OnHeld = Callable[[float | None], None]
"""Gets the seconds since another hub may last have written about the key to the session log; None: another hub has it, and is not disturbed."""


class Clients(Protocol):
    """The clients of this hub, as the directory sees them."""

    def is_connected(self, key: Key) -> bool: ...

    def connected_keys(self) -> Iterable[Key]:
        """Return the keys of all clients that are connected."""

    def keys_in_use(self) -> Iterable[Key]:
        """Return the keys of which a CONNECT or an ending is under way."""

    def leave(self, key: Key, on_left: Callable[[bool], None]) -> None:
        """Close the client if it is connected, as one that another connection takes over.

        Call back once what this hub has written about its session can be read by others, and say whether it has written something.
        """


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

    def __init__(self, me: PeerId, links: Announcer, clients: Clients, clock: BootClock) -> None:
        self._me = me
        self._links = links
        self._clients = clients
        self._owner = DirectoryOwner(me, self._send, clock.boottime)
        self._view: View | None = None  # None: this hub is alone
        self._linked: set[PeerId] = set()
        self._held: dict[Key, int] = {}  # keys of clients that are connected, and nothing is going on
        self._busy: dict[Key, _Busy] = {}
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
        if view == self._view or (view.members == (self._me,) and self._view is None):
            return
        if view.members == (self._me,):
            self._stand_alone()
        else:
            self._change(view)
        self._apply_own()

    def peer_up(self, peer: PeerId) -> None:
        """Fulfils `Receiver`."""
        self._linked.add(peer)
        if self._view is not None:
            self._introduce(peer, self._view, self._entries_of(self._view).get(peer, []), is_whole=True)
            for key, busy in self._busy.items():
                if busy.state is _State.ASKED and busy.owner == peer:
                    self._send(peer, Hold(key, busy.number, busy.takes))

    def peer_gone(self, peer: PeerId) -> None:
        """Fulfils `Receiver`: what it had is free. What was asked of it is asked anew when the view changes."""
        self._linked.discard(peer)
        self._owner.peer_gone(peer)
        self._apply_own()

    # --- what this hub wants

    def hold(self, key: Key, on_held: OnHeld, *, takes: bool) -> None:
        """Call back once this hub has the key, now or later. `takes`: a client that is connected elsewhere is closed first."""
        busy = self._busy.get(key)
        number = self._held.pop(key, None)
        if number is not None:
            self._busy[key] = _Busy(_State.USED, number)
            on_held(math.inf)
        elif busy is not None:
            busy.then = takes, on_held
        elif self._view is None:
            on_held(0.0)
        else:
            self._ask(key, takes, on_held, self._view)
            self._apply_own()

    def use(self, key: Key) -> None:
        """Work with a key that this hub has, or without it: nobody else is asked. `let_go` follows."""
        number = self._held.pop(key, None)
        if number is not None:
            self._busy[key] = _Busy(_State.USED, number)

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
        if busy is None or busy.state is not _State.USED:
            return
        if not busy.is_taken and self._clients.is_connected(key):
            del self._busy[key]
            self._held[key] = busy.number
            return
        self._leave(key, busy)
        self._apply_own()

    def left(self, key: Key) -> None:
        """The client's connection has closed."""
        number = self._held.pop(key, None)
        if number is not None:
            self._leave(key, _Busy(_State.LEAVING, number))
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
        else:
            del self._busy[answer.key]
        if on_held is not None:
            on_held(answer.written_s if answer.is_granted else None)

    def _take_take(self, take: Take) -> None:
        busy = self._busy.get(take.key)
        if busy is None:
            if self._held.get(take.key) == take.number:
                self._leave(take.key, _Busy(_State.LEAVING, self._held.pop(take.key)))
        elif busy.number == take.number and busy.state is _State.USED:
            busy.is_taken = True

    # --- views

    def _stand_alone(self) -> None:
        """Nobody else is there: whoever waits has the key, and the owner's part is not needed."""
        self._view = None
        self._owner.stand_alone()
        self._held.clear()
        self._to_self.clear()
        for key, busy in list(self._busy.items()):
            if busy.state is not _State.LEAVING:
                del self._busy[key]
                if busy.on_held is not None:
                    busy.on_held(0.0)

    def _change(self, view: View) -> None:
        before, self._view = self._view, view
        if before is None:
            self._note_clients()
        entries = self._entries_of(view, before)
        self._owner.set_view(view, entries.get(self._me, ()), is_whole=before is None)
        for peer in self._linked:
            self._introduce(peer, view, entries.get(peer, []), is_whole=before is None)
        for key, busy in list(self._busy.items()):
            if busy.state is _State.ASKED and busy.on_held is not None and view.owner(key) != busy.owner:
                self._ask(key, busy.takes, busy.on_held, view)

    def _note_clients(self) -> None:
        """This hub was alone: its clients have their keys without having asked."""
        for key in self._clients.connected_keys():
            if key not in self._busy:
                self._held[key] = self._next_number()
        for key in self._clients.keys_in_use():
            if key not in self._busy:
                self._busy[key] = _Busy(_State.USED, self._held.pop(key, 0) or self._next_number())

    def _entries_of(self, view: View, before: View | None = None) -> dict[PeerId, list[tuple[Key, int]]]:
        """Return what each owner has to know by this view; by the view before, if there was one, it does not know it yet."""
        found: dict[PeerId, list[tuple[Key, int]]] = {}
        if before is not None and before.members == view.members:
            return found
        busy = ((key, each.number) for key, each in self._busy.items() if each.state is not _State.ASKED)
        for entries in (self._held.items(), busy):
            for key, number in entries:
                owner = view.owner(key)
                if before is None or before.owner(key) != owner:
                    found.setdefault(owner, []).append((key, number))
        return found

    def _introduce(self, peer: PeerId, view: View, entries: list[tuple[Key, int]], *, is_whole: bool) -> None:
        self._send(peer, Announced(view, is_whole))
        for part in parts(entries):
            self._send(peer, part)

    # --- private

    def _next_number(self) -> int:
        self._number += 1
        return self._number

    def _ask(self, key: Key, takes: bool, on_held: OnHeld, view: View) -> None:
        busy = self._busy[key] = _Busy(_State.ASKED, self._next_number())
        busy.owner, busy.takes, busy.on_held = view.owner(key), takes, on_held
        self._send(busy.owner, Hold(key, busy.number, takes))

    def _leave(self, key: Key, busy: _Busy) -> None:
        busy.state = _State.LEAVING
        self._busy[key] = busy
        self._clients.leave(key, partial(self._has_left, key, busy))

    def _has_left(self, key: Key, busy: _Busy, has_written: bool) -> None:
        del self._busy[key]
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
