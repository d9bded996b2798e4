# cython: annotation_typing=False
"""What shared groups have sent to one transient session and its client has not acknowledged: another member gets it if the session ends.

Knows no window, no limits and no store: whoever keeps a message says which positions are over.

Theory. A ring by position, as the window's states are: no object and no number for a message, only two references.

    slot = position & (size - 1)       size: a power of two, at least `last` - `base` when `last` was kept
                                       base: everything up to here was completed by then

Invariant: what is kept has positions above `last` - size and up to `last`, so each has a slot of its own.
"""

from __future__ import annotations

from typing import Any

from iothub.engine.message import Message

_SLOTS = 32  # at first


class Unacknowledged:
    """See the module. `count`: how many messages are kept."""

    def __init__(self) -> None:
        self.count = 0
        self._last = 0
        self._size = _SLOTS
        self._messages: list[Message | None] = [None] * _SLOTS
        self._groups: list[Any] = [None] * _SLOTS  # who chose the session: a Group, or the arrival from another hub

    def keep(self, position: int, base: int, message: Message, group: Any) -> None:
        """Keep what was sent with `position`, the highest so far; the client is done with everything up to `base`. O(1) amortised."""
        while position - base > self._size:
            self._grow()
        slot = position & (self._size - 1)
        self._messages[slot] = message
        self._groups[slot] = group
        self._last = position
        self.count += 1

    def group_of(self, position: int) -> Any:
        """Return who chose the session for this position; None: nothing is kept of it."""
        if self._last - self._size < position <= self._last:
            return self._groups[position & (self._size - 1)]
        return None

    def remove(self, position: int) -> Message | None:
        """Return what is kept of a position, and keep it no longer; None: nothing is."""
        if not self._last - self._size < position <= self._last:
            return None
        slot = position & (self._size - 1)
        message = self._messages[slot]
        if message is not None:
            self._messages[slot] = None
            self._groups[slot] = None
            self.count -= 1
        return message

    def in_order(self) -> list[tuple[Message, Any]]:
        """Return all that is kept by position, each with who chose the session for it."""
        kept: list[tuple[Message, Any]] = []
        for position in range(self._last - self._size + 1, self._last + 1):
            slot = position & (self._size - 1)
            message = self._messages[slot]
            if message is not None:
                kept.append((message, self._groups[slot]))
        return kept

    def _grow(self) -> None:
        """Double the ring: each message goes to the slot of its position there."""
        messages, groups, size = self._messages, self._groups, self._size
        self._size = size * 2
        self._messages = [None] * self._size
        self._groups = [None] * self._size
        for position in range(self._last - size + 1, self._last + 1):
            slot = position & (self._size - 1)
            self._messages[slot] = messages[position & (size - 1)]
            self._groups[slot] = groups[position & (size - 1)]
