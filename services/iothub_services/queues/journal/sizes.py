"""How large the next segment of the journal is: small at first, larger with what is written, and never a large part of what the disk has left.

Knows no file. Sizes are powers of two, so that a flushed segment mostly fits as the next one and its blocks are used again.
"""

from __future__ import annotations

from iothub_services.queues.sqlite.bodies import REMOVED_BYTES

SMALLEST = 1 << 20
FIRST = 4 << 20  # written and synced at each start: a moment, also on a memory card
LARGEST = 32 << 20  # more makes a checkpoint rarer and longer
_SHARE = 8  # of the free space: one segment is written, one is spare, and what stays is copied into the tables
_SHARE_OF_ALL = (
    4  # of what would be free without a journal: all segments; their messages are copied into the tables before they go
)
_REMOVED_SHARE = 8  # of those: SQLite's log takes as much beside them
_LEAST_SEGMENTS = 2  # the newest one, and one that is moved into the tables


def most_bytes(limit: int, segment_bytes: int, free_bytes: int) -> int:
    """Return how much the segments may take. `free_bytes`: on the disk, if there were none."""
    return max(min(limit, free_bytes // _SHARE_OF_ALL), _LEAST_SEGMENTS * segment_bytes)


def most_removed(journal_bytes: int) -> int:
    """Return how many bytes of messages one commit removes. `journal_bytes`: that the segments may take, as the disk is."""
    return max(min(REMOVED_BYTES, journal_bytes // _REMOVED_SHARE), SMALLEST)


class SegmentSizes:
    """The sizes for one journal, none above `largest`."""

    def __init__(self, largest: int = LARGEST) -> None:
        self._largest = largest
        self._smallest = min(SMALLEST, largest)

    def first(self, free_bytes: int) -> int:
        """Return the size of the first segment."""
        return self._fitting(min(FIRST, self._largest), free_bytes)

    def following(self, size_bytes: int, written: int, free_bytes: int) -> int:
        """Return the size of the one behind a segment of this size: twice as much if that was used, not ended early."""
        is_used = 2 * written > size_bytes
        return self._fitting(min(size_bytes * 2 if is_used else size_bytes, self._largest), free_bytes)

    def _fitting(self, size_bytes: int, free_bytes: int) -> int:
        while size_bytes > self._smallest and size_bytes * _SHARE > free_bytes:
            size_bytes //= 2
        return size_bytes
