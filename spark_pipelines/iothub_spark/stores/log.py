"""The event log as jobs read it: its bounds, and stretches of it in pages. Beside a running hub, which never waits for a reader.

Knows places and stored bytes, no event. A place is a vector, one offset for each partition, as everywhere (`iothub.records.checkpoint`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from iothub.base.errors import ConflictError
from iothub.records.events import Topic

Offsets = tuple[int, ...]


class StoredEvent(NamedTuple):
    """One event as it is stored."""

    offset: int
    key: bytes
    value: bytes


Page = list[StoredEvent]


@dataclass(frozen=True, slots=True)
class Stretch:
    """The events of one partition above `after` up to and including `upto`."""

    partition: int
    after: int
    upto: int


@dataclass(frozen=True, slots=True)
class LogRange:
    """What one run reads: captured once, so that every task and every retry reads the same."""

    topic: Topic
    after: Offsets
    upto: Offsets

    @property
    def offsets(self) -> int:
        """How many offsets it spans; there may be gaps between them."""
        return sum(max(0, upto - after) for after, upto in zip(self.after, self.upto, strict=True))

    def stretches(self, pieces: int, least: int = 20_000) -> list[Stretch]:
        """Return it in about this number of even pieces, none much shorter than `least`, so that one large partition keeps all cores busy."""
        size = max(least, -(-self.offsets // max(1, pieces)))
        return [
            Stretch(partition, start, min(upto, start + size))
            for partition, (after, upto) in enumerate(zip(self.after, self.upto, strict=True))
            for start in range(after, upto, size)
        ]


class Log(Protocol):
    """What both drivers do. All methods block and raise BackendError."""

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        """The lowest offsets from which nothing is missing: trimmed events are below."""

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        """The last offsets ever given; as many as the topic has partitions."""

    def read(self, stretch: Stretch, topic: Topic = Topic.SESSIONS, keys: tuple[bytes, ...] = ()) -> Iterator[Page]:
        """Yield the events of a stretch, ascending, in pages; with `keys`, perhaps only those of these keys."""

    def where(self, partition: int, offset: int, topic: Topic = Topic.SESSIONS) -> str:
        """Say for a person where an event is."""

    def close(self) -> None: ...


def range_after(log: Log, after: Offsets | None, topic: Topic = Topic.SESSIONS) -> LogRange:
    """Capture the end now and return what is behind `after`; None: from where the log begins.

    Raises ConflictError when events between `after` and the log's beginning are missing, or the log ends before `after`.
    """
    begin, end = log.begin(topic), log.end(topic)
    if after is None:
        return LogRange(topic, tuple(offset - 1 for offset in begin), end)
    if len(after) != len(end):
        raise ConflictError(f"wrong log: it has {len(end)} partitions, expected {len(after)}")
    if any(first > offset + 1 for first, offset in zip(begin, after, strict=True)):
        needed = tuple(offset + 1 for offset in after)
        raise ConflictError(
            f"events are missing: the log begins at offset {shown(begin)}, but is needed from {shown(needed)}"
        )
    if any(last < offset for last, offset in zip(end, after, strict=True)):
        raise ConflictError(
            f"the log has lost its end: it ends at offset {shown(end)}, but was already read up to {shown(after)}"
        )
    return LogRange(topic, after, end)


def shown(offsets: Offsets) -> str:
    """Return a place for a message."""
    return " ".join(map(str, offsets))
