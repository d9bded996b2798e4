"""What each job of the night would do next: when, and from which place of the log to which.

Knows checkpoints and marks of jobs, not how a job reads. Nothing here changes anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

from iothub.cli import output, stores
from iothub.cli.app import App
from iothub.errors import CorruptRecordError
from iothub.jobs.timetable import next_at
from iothub.records.events import GENERATION_BITS, Topic
from iothub_services.events.port import Offsets
from iothub_spark.catalogue import COMPACTION
from iothub_tenants.accounts import marks

_UNDER = (1 << GENERATION_BITS) - 1
_LOGS = {COMPACTION: Topic.SESSIONS, "usage": Topic.ANALYTICS, "archive": Topic.SESSIONS}
_WORDS = {Topic.SESSIONS: "sessions", Topic.ANALYTICS: "analytics"}


def rows(app: App, now_s: float) -> list[output.Row]:
    """Return one row for each job of the night, in their order."""
    settings = app.loaded.config
    ends = _ends(app)
    at = None if settings.jobs.at is None else next_at(settings.jobs.at, now_s)
    return [_row(app, job, at, ends) for job in settings.jobs.nightly]


def _row(app: App, job: str, at: int | None, ends: Mapping[Topic, tuple[Offsets, Offsets]]) -> output.Row:
    topic = _LOGS.get(job)
    begin, end = ends.get(topic, ((), ())) if topic is not None else ((), ())
    after = _after(app, job)
    return {
        "name": job,
        "at": None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC"),
        "after": list(after) or None,
        "from": _words(after, begin) if topic is not None else None,
        "to": list(end) or None,
        "events": _count(after, begin, end) if end else None,
    }


def _ends(app: App) -> dict[Topic, tuple[Offsets, Offsets]]:
    with stores.reading_events(app.data_dir, app.loaded.config) as log:
        if log is None:
            return {}
        return {topic: (log.begin(topic), log.end(topic)) for topic in (Topic.SESSIONS, Topic.ANALYTICS)}


def _after(app: App, job: str) -> Offsets:
    """Return up to where a job has the log."""
    if job == COMPACTION:
        with stores.reading_checkpoints(app.data_dir, app.loaded.config) as checkpoints:
            try:
                pointer = None if checkpoints is None else checkpoints.pointer()
            except CorruptRecordError as error:
                app.say(f"iothub: warning: {error}: the whole log would be read")
                return ()
        return () if pointer is None else pointer.offsets
    found = marks.of_job(app.store(), job, _WORDS[_LOGS[job]]) if job in _LOGS else {}
    return tuple(found.get(part, 0) for part in range(max(found, default=-1) + 1))


def _words(after: Offsets, begin: Offsets) -> str:
    if any(after):
        return "where the last run ended"
    return "the beginning of the log" if begin else "there is no log yet"


def _count(after: Offsets, begin: Offsets, end: Offsets) -> int:
    """Return how many offsets there are: at most so many events. A log of another generation is read from its beginning."""
    count = 0
    for part, upto in enumerate(end):
        low = max(begin[part] - 1, after[part] if part < len(after) else 0)
        count += (
            max((upto & _UNDER) - (low & _UNDER), 0)
            if upto >> GENERATION_BITS == low >> GENERATION_BITS
            else upto & _UNDER
        )
    return count
