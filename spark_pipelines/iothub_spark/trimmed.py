"""What a log has lost before anybody copied it: from when on a copy or a report has everything.

Knows the first event of each partition, and no archive.
"""

from __future__ import annotations

from datetime import UTC, datetime

from iothub.base.errors import CorruptRecordError
from iothub.records.events import Topic, decode_event
from iothub_spark.planning import is_whole
from iothub_spark.stores.log import Log, Offsets, Stretch

_WORDS = {Topic.SESSIONS: "session events", Topic.ANALYTICS: "events for statistics"}


def before_ms(log: Log, topic: Topic, now_ms: int) -> int | None:
    """Return the moment before which events of a log are gone; None: it has them from the first one on. Raises BackendError."""
    begin, end = log.begin(topic), log.end(topic)
    moments = [
        _first_ms(log, topic, partition, end, offset)
        for partition, offset in enumerate(begin)
        if not is_whole((offset,))
    ]
    return max((now_ms if moment is None else moment for moment in moments), default=None)


def _first_ms(log: Log, topic: Topic, partition: int, end: Offsets, offset: int) -> int | None:
    """Return when the event at an offset was; None: there is none, or nobody can read it."""
    if offset > end[partition]:
        return None
    for page in log.read(Stretch(partition, offset - 1, offset), topic):
        for event in page:
            try:
                return decode_event(event.value).at_ms
            except CorruptRecordError:
                return None
    return None


def moment(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")


def describe(topic: Topic, at_ms: int) -> str:
    """Say it to a person."""
    return f"{_WORDS[topic]} before {moment(at_ms)} were trimmed before they were archived"
