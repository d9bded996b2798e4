"""An event of a newer program: refused, unless a person has its place in `events.left_out`; then it is as one that is damaged.

Knows places, and that versions may be newer. What can be read is read wherever it stands.
"""

from __future__ import annotations

from collections.abc import Container

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import Event, decode_event


def decode_at(value: bytes, partition: int, offset: int, left_out: Container[str]) -> Event:
    """Read an event of the session log. Raises as `decode_event`, and as `at_place` says."""
    try:
        return decode_event(value)
    except FutureRecordError as error:
        raise at_place(error, partition, offset, left_out) from error


def at_place(error: FutureRecordError, partition: int, offset: int, left_out: Container[str]) -> CorruptRecordError:
    """Return what an event of a newer program is at its place; the offset is the log's own."""
    place = f"{partition}:{offset}"
    if place in left_out:
        return CorruptRecordError(f"{error}; left out by events.left_out")
    return FutureRecordError(f'{error}; if no newer iothub wrote it: events.left_out = ["{place}"]')
