"""Young messages read from their segments: one call for each run of neighbours.

Knows where bodies are; knows no queue.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Sequence

from iothub_services.queues.journal.young import Wanted
from iothub_services.queues.port import QueuedRecord

ReadAt = Callable[[int, int, int], bytes]  # segment, where, size
_NEAR_BYTES = 4_096  # what lies between neighbours is read as well
_RUN_BYTES = 1 << 20  # of one call


def read_records(wanted: Sequence[Wanted], read_at: ReadAt) -> Iterator[QueuedRecord]:
    """Read messages in their order. Raises BackendError."""
    run: list[Wanted] = []
    for each in wanted:
        if run and not _is_near(run, each):
            yield from _read_run(run, read_at)
            run = []
        run.append(each)
    if run:
        yield from _read_run(run, read_at)


def _begin(each: Wanted) -> int:
    """Where the first byte is that is read with its body: its subscription identifiers, unless there is much between."""
    return each.identifiers if each.how_many and each.body - each.identifiers <= _NEAR_BYTES else each.body


def _is_near(run: list[Wanted], each: Wanted) -> bool:
    last = run[-1]
    between = _begin(each) - last.body - last.size
    return (
        each.segment == last.segment
        and 0 <= between <= _NEAR_BYTES
        and each.body + each.size - _begin(run[0]) <= _RUN_BYTES
    )


def _read_run(run: list[Wanted], read_at: ReadAt) -> Iterator[QueuedRecord]:
    segment, start, last = run[0].segment, _begin(run[0]), run[-1]
    data = read_at(segment, start, last.body + last.size - start)
    for each in run:
        body_at = each.body - start
        identifiers: tuple[int, ...] = ()
        if each.how_many:
            if each.identifiers >= start:
                packed = data[each.identifiers - start : each.identifiers - start + 4 * each.how_many]
            else:
                packed = read_at(segment, each.identifiers, 4 * each.how_many)
            identifiers = struct.unpack(f"<{each.how_many}I", packed)
        body = data[body_at : body_at + each.size]
        yield QueuedRecord(each.position, each.qos, each.flags, identifiers, each.expires_at_ms, body)
