# cython: annotation_typing=False
"""A bounded dictionary from topic to whatever was found out about it.

Knows nothing of what it keeps but its size. Bounded by entries and by bytes.

Theory. Two halves: new entries go into the young one; when that is full, the old one is dropped as a whole and the
young one takes its place. So the oldest leave first, in bulk, at no cost per look-up; an entry that is asked for in the
old half moves to the young one and stays. `young` is public so that a hit costs its owner one dictionary access.
"""

from __future__ import annotations

from typing import Any


class Entry:
    """Base of what is kept: `size` is what it costs, in bytes, without the topic."""

    def __init__(self, size: int) -> None:
        self.size = size


class RouteCache:
    """Entries by topic. Memory is at most `size_bytes`, plus one entry that is bigger than half of it."""

    def __init__(self, entries: int, size_bytes: int) -> None:
        self.half_entries = max(1, entries // 2)
        self.half_bytes = size_bytes // 2
        self.young: dict[bytes, Any] = {}
        self.old: dict[bytes, Any] = {}
        self.young_bytes = 0
        self.old_bytes = 0

    def promote(self, topic: bytes) -> Any:
        """Look in the old half; what is found moves to the young one, unless there is no room left."""
        entry: Entry | None = self.old.get(topic)
        if entry is None:
            return None
        size = entry.size + len(topic)
        if self.young_bytes + size <= self.half_bytes and len(self.young) < self.half_entries:
            del self.old[topic]
            self.old_bytes -= size
            self.young[topic] = entry
            self.young_bytes += size
        return entry

    def put(self, topic: bytes, entry: Entry) -> None:
        """Keep an entry for a topic that has none; one bigger than the room is kept until the next but one comes."""
        size = entry.size + len(topic)
        if self.young and (self.young_bytes + size > self.half_bytes or len(self.young) >= self.half_entries):
            self.old = self.young
            self.old_bytes = self.young_bytes
            self.young = {}
            self.young_bytes = 0
        self.young[topic] = entry
        self.young_bytes += size

    def forget(self, topic: bytes) -> None:
        entry: Entry | None = self.young.pop(topic, None)
        if entry is not None:
            self.young_bytes -= entry.size + len(topic)
        entry = self.old.pop(topic, None)
        if entry is not None:
            self.old_bytes -= entry.size + len(topic)

    def clear(self) -> None:
        if self.young or self.old:
            self.young = {}
            self.old = {}
            self.young_bytes = 0
            self.old_bytes = 0
