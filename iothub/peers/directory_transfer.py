"""Which keys of this hub each owner still has to be sent, after views changed or a peer came: in slices, so that no turn is long.

Knows no link and no session: what is sent is given to `send`, and whoever makes it goes on with the next slice in another turn. Sans I/O.

    a view changes, or a peer comes -> VIEW at once, to all -> ENTRIES, a slice of the keys in each turn -> the last ENTRIES says so

Invariants: an owner that has the last ENTRIES knows all keys that this hub has of it. What changes between two slices is said by HOLD and RELEASE,
so a slice has what this hub has when it is sent. What comes before all slices are sent begins with all keys again, as an owner
has forgotten what a view between did not give it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iothub.peers.directory_frames import Announced, DirectoryFrame, Entries, parts
from iothub.peers.ports import PeerId
from iothub.peers.view import Key, View

SLICE_KEYS = 2_000
"""Keys that are looked at in one turn."""

Send = Callable[[PeerId, DirectoryFrame], None]


class DirectoryTransfer:
    """One hub's, to all owners. On the reactor thread."""

    def __init__(
        self, keys: Callable[[], list[Key]], number_of: Callable[[Key], int | None], send: Send, slice_keys: int
    ) -> None:
        """`keys`: those that this hub has now; `number_of`: of the hold of a key, None if this hub does not have it any more."""
        self._keys = keys
        self._number_of = number_of
        self._send = send
        self._slice_keys = slice_keys
        self._owed: dict[PeerId, list[View] | None] = {}  # views since what it has of all: None, it has nothing
        self._left: list[Key] = []

    def introduce(self, peer: PeerId, view: View) -> None:
        """An owner gets all that it has to know by this view."""
        self._send(peer, Announced(view, is_whole=True))
        self._owed[peer] = None
        self._left = self._keys()

    def change(self, view: View, before: View | None, peers: Iterable[PeerId]) -> None:
        """The view changes; `before` is None: nobody has been sent anything yet."""
        is_other = before is None or before.members != view.members
        for peer in peers:
            self._send(peer, Announced(view, is_whole=before is None))
            if before is None:
                self._owed[peer] = None
            elif is_other:
                self._note_former(peer, before)
            elif peer not in self._owed:
                self._send(peer, Entries((), is_last=True))
        if is_other:
            self._left = self._keys()

    def forget(self, peer: PeerId) -> None:
        """A peer is gone."""
        self._owed.pop(peer, None)

    def stop(self) -> None:
        """Nobody has to know anything."""
        self._owed.clear()
        self._left = []

    def send_slice(self, view: View) -> bool:
        """Send what owners have to know of the next keys, by this view. True: there are more."""
        keys = self._left[-self._slice_keys :]
        del self._left[-self._slice_keys :]
        is_last = not self._left
        found: dict[PeerId, list[tuple[Key, int]]] = {}
        for key in keys:
            number = self._number_of(key)
            if number is not None:
                owner = view.owner(key)
                if owner in self._owed and self._is_news(key, owner):
                    found.setdefault(owner, []).append((key, number))
        for peer in list(self._owed) if is_last else found:
            for part in parts(found.get(peer, ()), is_last=is_last):
                self._send(peer, part)
        if is_last:
            self._owed.clear()
        return not is_last

    def _note_former(self, peer: PeerId, before: View) -> None:
        known = self._owed.setdefault(peer, [])
        if known is not None and all(view.members != before.members for view in known):
            known.append(before)

    def _is_news(self, key: Key, owner: PeerId) -> bool:
        """Tell whether a view since this owner had all did not give it the key."""
        known = self._owed[owner]
        return known is None or any(view.owner(key) != owner for view in known)
