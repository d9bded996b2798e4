# cython: annotation_typing=False
"""What shared groups have sent to one transient session and its client has not acknowledged: another member gets it if the session ends.

Knows no window, no limits and no store.

Theory. A ring by position, as the window's states are: no object and no number for a message, only two references.

    slot = position & (size - 1)       size: a power of two

A client may leave an old message open and acknowledge what follows. So where the ring would have to grow for few messages, those of its older
half leave it for a dictionary; the ring has no more than sixteen slots for each message that was kept at one time.

Invariant: what is in the ring has positions from `first` to `last`, which are less than `size` apart, so each has a slot of its own.
"""

from __future__ import annotations

from typing import Any

from iothub.engine.message import Message

_SLOTS = 32  # at first
_FEW = 4  # a half of the ring with a message in less than every fourth slot is left


class Unacknowledged:
    """See the module. `count`: how many messages are kept; `size`: slots of the ring."""

    def __init__(self) -> None:
        self.count = 0
        self._in_ring = 0
        self._first = 0
        self._last = 0
        self.size = _SLOTS
        self._messages: list[Message | None] = [None] * _SLOTS
        self._groups: list[Any] = [None] * _SLOTS  # who chose the session: a Group, or the arrival from another hub
        self._old: dict[int, tuple[Message, Any]] | None = None  # by position, all before `first`

    def keep(self, position: int, message: Message, group: Any) -> None:
        """Keep what was sent with `position`, the highest so far. O(1) amortised over all positions."""
        if self._in_ring == 0:
            self._first = position
        while position - self._first >= self.size:
            self._make_room()
        slot = position & (self.size - 1)
        self._messages[slot] = message
        self._groups[slot] = group
        self._last = position
        self._in_ring += 1
        self.count += 1

    def group_of(self, position: int) -> Any:
        """Return who chose the session for this position; None: nothing is kept of it."""
        if self._first <= position <= self._last:
            return self._groups[position & (self.size - 1)]
        if self._old is not None and position in self._old:
            return self._old[position][1]
        return None

    def remove(self, position: int) -> Message | None:
        """Return what is kept of a position, and keep it no longer; None: nothing is."""
        if self._first <= position <= self._last:
            slot = position & (self.size - 1)
            message = self._messages[slot]
            if message is not None:
                self._messages[slot] = None
                self._groups[slot] = None
                self._in_ring -= 1
                self.count -= 1
            return message
        if self._old is None or position not in self._old:
            return None
        self.count -= 1
        return self._old.pop(position)[0]

    def in_order(self) -> list[tuple[Message, Any]]:
        """Return all that is kept by position, each with who chose the session for it."""
        kept: list[tuple[Message, Any]] = []
        if self._old is not None:
            kept += [self._old[position] for position in sorted(self._old)]
        for position in range(self._first, self._last + 1):
            slot = position & (self.size - 1)
            message = self._messages[slot]
            if message is not None:
                kept.append((message, self._groups[slot]))
        return kept

    def _make_room(self) -> None:
        """Let the older half of the ring be that of newer positions: it has few messages, or the ring doubles."""
        half = self.size >> 1
        kept = 0
        for position in range(self._first, self._first + half):
            if self._messages[position & (self.size - 1)] is not None:
                kept += 1
        if kept * _FEW < half:
            self._leave(half)
        else:
            self._grow()

    def _leave(self, half: int) -> None:
        if self._old is None:
            self._old = {}
        for position in range(self._first, self._first + half):
            slot = position & (self.size - 1)
            message = self._messages[slot]
            if message is not None:
                self._old[position] = (message, self._groups[slot])
                self._messages[slot] = None
                self._groups[slot] = None
                self._in_ring -= 1
        self._first += half

    def _grow(self) -> None:
        """Double the ring: each message goes to the slot of its position there."""
        messages, groups, size = self._messages, self._groups, self.size
        self.size = size * 2
        self._messages = [None] * self.size
        self._groups = [None] * self.size
        for position in range(self._first, self._last + 1):
            slot = position & (self.size - 1)
            self._messages[slot] = messages[position & (size - 1)]
            self._groups[slot] = groups[position & (size - 1)]
