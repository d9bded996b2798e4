"""When offline sessions expire and waiting Wills fire: a heap of monotonic deadlines.

Knows no reason: an entry only says "look at this session at that time".

Theory: a session is in the heap at most once for real; `control.queued_at` says when. An entry whose time is another one is dead: the session
was looked at, has ended, or has an earlier entry. Dead entries leave when their time comes, or all together once they are the majority.
"""

from __future__ import annotations

import heapq
from itertools import count

from iothub.engine.state import Session
from iothub_services.sessions.port import SessionHome

_Entry = tuple[float, int, SessionHome, Session]
_COMPACT_ABOVE = 1024


class Deadlines:
    """Add in O(log n), take what is due. Invariant: at most `max(1024, 2 x live)` entries."""

    def __init__(self) -> None:
        self._heap: list[_Entry] = []
        self._tickets = count()
        self._compact_at = _COMPACT_ABOVE

    def __len__(self) -> int:
        return len(self._heap)

    def add(self, deadline: float, home: SessionHome, session: Session) -> None:
        """Look at this session at `deadline`, unless that happens earlier anyway."""
        control = session.control
        if 0.0 < control.queued_at <= deadline:
            return
        control.queued_at = deadline
        heapq.heappush(self._heap, (deadline, next(self._tickets), home, session))
        if len(self._heap) > self._compact_at:
            self._compact()

    def due(self, now: float) -> list[tuple[SessionHome, Session]]:
        """Take the sessions to look at now; the caller adds one again if something is still to come."""
        found = []
        while self._heap and self._heap[0][0] <= now:
            entry = heapq.heappop(self._heap)
            if _is_live(entry):
                entry[3].control.queued_at = 0.0
                found.append(entry[2:])
        return found

    def _compact(self) -> None:
        live = [entry for entry in self._heap if entry[3].control.queued_at == entry[0]]
        if len(live) < len(self._heap):  # else they are a heap as they are
            heapq.heapify(live)
        self._heap = live
        self._compact_at = max(_COMPACT_ABOVE, 2 * len(self._heap))


def _is_live(entry: _Entry) -> bool:
    return bool(entry[3].control.queued_at == entry[0])
