# cython: annotation_typing=False
"""Young messages read from their segments: one call for each run of neighbours.

Knows where bodies are; knows no queue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator

from iothub_services.queues.port import QueuedRecord

ReadAt = Callable[[int, int, int], bytes]  # segment, where, size
_NEAR_BYTES = 4_096  # what lies between neighbours is read as well
_RUN_BYTES = 1 << 20  # of one call


class Wanted:
    """A young message, to be read from its record. `body`, `identifiers`: where they begin in the segment. `how_many`: subscription identifiers."""

    __slots__ = ("body", "expires_at_ms", "flags", "how_many", "identifiers", "position", "qos", "segment", "size")

    position: int
    qos: int
    flags: int
    expires_at_ms: int
    segment: int
    body: int
    size: int
    identifiers: int
    how_many: int


def read_records(wanted: list[Wanted], read_at: ReadAt) -> Iterator[QueuedRecord]:
    """Read messages in their order. Raises BackendError."""
    start = 0
    while start < len(wanted):
        end = run_end(wanted, start)
        yield from read_run(wanted, start, end, read_at)
        start = end


def run_end(wanted: list[Wanted], start: int) -> int:
    """Return where the run of neighbours ends that begins at `start`."""
    first: Wanted = wanted[start]
    last = first
    index = start + 1
    while index < len(wanted):
        each: Wanted = wanted[index]
        between = _begin(each) - last.body - last.size
        if (
            each.segment != last.segment
            or between < 0
            or between > _NEAR_BYTES
            or each.body + each.size - _begin(first) > _RUN_BYTES
        ):
            break
        last = each
        index += 1
    return index


def _begin(each: Wanted) -> int:
    """Where the first byte is that is read with its body: its subscription identifiers, unless there is much between."""
    return each.identifiers if each.how_many and each.body - each.identifiers <= _NEAR_BYTES else each.body


def read_run(wanted: list[Wanted], first: int, end: int, read_at: ReadAt) -> list[QueuedRecord]:
    """Read neighbours, those before `end`, with one call."""
    records: list[QueuedRecord] = []
    each: Wanted = wanted[first]
    last: Wanted = wanted[end - 1]
    segment, start = each.segment, _begin(each)
    data = read_at(segment, start, last.body + last.size - start)
    for index in range(first, end):
        each = wanted[index]
        body_at = each.body - start
        identifiers: tuple[int, ...] = ()
        if each.how_many:
            identifiers = _identifiers(each, data, start, read_at)
        body = data[body_at : body_at + each.size]
        records.append(QueuedRecord(each.position, each.qos, each.flags, identifiers, each.expires_at_ms, body))
    return records


def _identifiers(each: Wanted, data: bytes, start: int, read_at: ReadAt) -> tuple[int, ...]:
    """Return its subscription identifiers. `data` begins at `start`."""
    if each.identifiers >= start:
        packed = data[each.identifiers - start : each.identifiers - start + 4 * each.how_many]
    else:
        packed = read_at(each.segment, each.identifiers, 4 * each.how_many)
    return struct.unpack(f"<{each.how_many}I", packed)
