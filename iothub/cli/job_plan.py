"""What each nightly job would do next: when, and which part of the log it would read.

Knows checkpoints and marks of jobs, not how a job reads. Changes nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime

from iothub.base.errors import CorruptRecordError, NotFoundError
from iothub.cli import accounts, output, stores
from iothub.cli.app import App
from iothub.jobs.timetable import next_at
from iothub.records.events import GENERATION_BITS, Topic
from iothub.records.job_catalogue import COMPACTION, USAGE, USAGE_SEEN
from iothub_services.events.port import Offsets

_UNDER = (1 << GENERATION_BITS) - 1
_WORDS = {Topic.SESSIONS: "sessions", Topic.ANALYTICS: "analytics"}
_LOGS = {
    COMPACTION: (Topic.SESSIONS,),
    USAGE: (Topic.ANALYTICS,),
    "archive": (Topic.SESSIONS, Topic.ANALYTICS),
    "verify": (Topic.SESSIONS,),
}
_WHOLE = frozenset({"verify"})  # it reads what there is, every time

_Ends = Mapping[Topic, tuple[Offsets, Offsets]]


def rows(app: App, now_s: float) -> list[output.Row]:
    """Return one row for each nightly job and each log that it reads, in their order."""
    settings = app.loaded.config
    ends = _ends(app)
    at = None if settings.jobs.at is None else next_at(settings.jobs.at, now_s)
    when = None if at is None else datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%d %H:%M UTC")
    return [
        {"name": job, "at": when, **_part(app, job, topic, ends)}
        for job in settings.jobs.nightly
        for topic in _LOGS.get(job, (None,))
    ]


def _part(app: App, job: str, topic: Topic | None, ends: _Ends) -> output.Row:
    if topic is None:
        return {
            "log": None,
            "after": None,
            "from": "the archive, then the newer events of the logs",
            "to": None,
            "events": None,
        }
    begin, end = ends.get(topic, ((), ()))
    after = end if job == USAGE and _has_seen(app, end) else _after(app, job, topic)
    return {
        "log": _WORDS[topic],
        "after": list(after) or None,
        "from": _words(after, begin),
        "to": list(end) or None,
        "events": _count(after, begin, end) if end else None,
    }


def _ends(app: App) -> _Ends:
    with stores.reading_events(app.data_dir, app.loaded.config) as log:
        if log is None:
            return {}
        found = {}
        for topic in _WORDS:
            with suppress(NotFoundError):  # a topic of Kafka that was deleted: the hub makes it again
                found[topic] = (log.begin(topic), log.end(topic))
        return found


def _after(app: App, job: str, topic: Topic) -> Offsets:
    """Return up to which offsets a job has read a log."""
    if job == COMPACTION:
        with stores.reading_checkpoints(app.data_dir, app.loaded.config) as checkpoints:
            try:
                pointer = None if checkpoints is None else checkpoints.pointer()
            except CorruptRecordError as error:
                app.say(f"iothub: warning: {error}: the next run reads the whole log")
                return ()
        return () if pointer is None else pointer.offsets
    found = {} if job in _WHOLE else accounts.marks.of_job(app.store(), job, _WORDS[topic])
    return tuple(found.get(part, 0) for part in range(max(found, default=-1) + 1))


def _has_seen(app: App, end: Offsets) -> bool:
    """Say whether the log has no new events since the last run."""
    return bool(end) and accounts.marks.of_job(app.store(), USAGE, USAGE_SEEN) == dict(enumerate(end))


def _words(after: Offsets, begin: Offsets) -> str:
    if any(after):
        return "where the last run ended"
    return "the beginning of the log" if begin else "there is no log yet"


def _count(after: Offsets, begin: Offsets, end: Offsets) -> int:
    """Return the number of offsets, an upper bound of the events. A log of another generation is read from its beginning."""
    count = 0
    for part, upto in enumerate(end):
        low = max(begin[part] - 1, after[part] if part < len(after) else 0)
        count += (
            max((upto & _UNDER) - (low & _UNDER), 0)
            if upto >> GENERATION_BITS == low >> GENERATION_BITS
            else upto & _UNDER
        )
    return count
