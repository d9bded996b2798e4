"""Trims the log for statistics by age and by number, where the log's server does not.

Knows nothing of what the events say but when they happened. The session log is not trimmed here: its states need it.
"""

from __future__ import annotations

from dataclasses import dataclass

from iothub.records.events import Topic
from iothub_services.events.port import DamagedEvent, EventLog, reached

SLICE = 1_000  # events that are looked at, and removed in one commit, at a time


@dataclass(frozen=True, slots=True)
class TrimStatistics:
    """An operation of the log's thread: remove what is older than `before_ms`, and what is more than `most`, but nothing above `mark`.

    `mark`: how far the jobs that keep these events have them; None: there are none.
    """

    before_ms: int
    most: int
    mark: int | None = None


def trim_statistics(log: EventLog, wanted: TrimStatistics) -> int:
    """Remove a slice of a log with one partition; returns how many events went. As many as `SLICE`: there may be more.

    Raises BackendError.
    """
    first, end = reached(log.begin(Topic.ANALYTICS), 0), reached(log.end(Topic.ANALYTICS), 0)
    slice_end = first - 1 + SLICE
    upto = max(_old_upto(log, first - 1, wanted.before_ms), end - wanted.most)
    upto = min(upto, slice_end, end, slice_end if wanted.mark is None else wanted.mark)
    return log.trim((upto,), Topic.ANALYTICS) if upto >= first else 0


def _old_upto(log: EventLog, after: int, before_ms: int) -> int:
    """Return up to where the next events are old; a damaged one among them is as old as those beside it."""
    upto = after
    while upto < after + SLICE:
        page = log.read((upto,), SLICE, Topic.ANALYTICS)
        for entry in page:
            if not isinstance(entry, DamagedEvent) and entry.event.at_ms >= before_ms:
                return upto
            upto = entry.offset
        if not page:
            return upto
    return upto
