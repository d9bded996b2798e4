"""What a running hub knows of the jobs: their last runs as metrics, and whether the checkpoint is getting old.

Knows the run history as it was last read, and no Spark: whether a job ran here or on another machine is all the same.

Theory: a hub that nobody compacts must not complain from its first day on, and one whose timer was never installed should. So the alarm is about
hubs where compaction was ever tried, or where the settings say that it is due (`jobs.at`); then time counts from the last good run, the first
attempt or the start of the hub, whichever is the first of these that there is.

A job that keeps what it reads has a mark in a log, and nobody trims past it: one that was run once and given up holds the log for good, unsaid. So a
mark that was not put anew for long is an alarm, where trimming does wait for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from iothub.base.clock import Clock
from iothub.config.sections import Config
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_spark.catalogue import COMPACTION
from iothub_tenants.accounts.job_runs import Overview, Result, Run, Summary, moment

LOOK_INTERVAL_S = 30.0
_HELD = ("sessions", "analytics")  # logs that are trimmed up to marks; the second one on Kafka goes by age alone


class JobWatch:
    """On the reactor thread; `take` what a thread has read."""

    def __init__(self, settings: Config, alarms: Alarms, clock: Clock) -> None:
        self._is_scheduled = settings.jobs.at is not None and COMPACTION in settings.jobs.nightly
        self._age_s = settings.alarms.checkpoint_age_s
        self._mark_age_s = settings.alarms.job_mark_age_s
        self._held_logs = _HELD if settings.events.driver == "sqlite" else _HELD[:1]
        self._alarms = alarms
        self._clock = clock
        self._started_s = clock.wall()
        self._found = Overview({}, [])

    def take(self, found: Overview) -> None:
        """Note what the history says, and raise or clear the alarm."""
        self._found = found
        summary = found.summaries.get(COMPACTION)
        since_s = self._since_s(summary)
        is_stale = since_s is not None and self._clock.wall() - since_s > self._age_s
        self._alarms.set(AlarmName.CHECKPOINT_STALE, is_stale, detail=_words(summary) if is_stale else "")

    def take_marks(self, moved: Mapping[tuple[str, str], int]) -> None:
        """Raise or clear the alarms of jobs that hold a log. `moved`: when the mark of a job in a log was put there."""
        stale: dict[str, str] = {}
        for (job, name), at_ms in sorted(moved.items()):
            if name not in self._held_logs or self._clock.wall() - at_ms / 1000 <= self._mark_age_s:
                continue
            if job in stale:
                stale[job] += f"; nor behind {moment(at_ms)} of the log {name}"
            else:
                stale[job] = f"job {job} ran last at {moment(at_ms)}: nothing behind that is trimmed of the log {name}"
        gone = [each.subject for each in self._alarms.active() if each.name is AlarmName.JOB_MARK_STALE]
        for job in {*gone, *stale}:
            self._alarms.set(AlarmName.JOB_MARK_STALE, job in stale, subject=job, detail=stale.get(job, ""))

    def _since_s(self, summary: Summary | None) -> float | None:
        """Return from when on the age counts; None: nobody wants checkpoints here."""
        if summary is None:
            return self._started_s if self._is_scheduled else None
        return _ended_s(summary.success) if summary.success is not None else summary.first_ms / 1000

    # --- sources of metrics, by job

    def last_success(self) -> Mapping[str, float]:
        return {job: _ended_s(each.success) for job, each in self._found.summaries.items() if each.success is not None}

    def duration_s(self) -> Mapping[str, float]:
        """Return how long the last run that ended took."""
        return {
            job: _ended_s(each.last) - each.last.started_ms / 1000
            for job, each in self._found.summaries.items()
            if each.last.ended_ms is not None
        }

    def last_result(self) -> Mapping[str, int]:
        """Return 1 for a job whose last run did what it was asked, 0 for another that has ended."""
        return {
            job: int(each.last.result is Result.DONE)
            for job, each in self._found.summaries.items()
            if each.last.ended_ms is not None
        }

    def running(self) -> Mapping[str, int]:
        under_way = {run.job for run in self._found.running}
        return {job: int(job in under_way) for job in {*self._found.summaries, *under_way}}


def _ended_s(run: Run) -> float:
    return (run.ended_ms or run.started_ms) / 1000


def _words(summary: Summary | None) -> str:
    if summary is None:
        return f"{COMPACTION} is scheduled (jobs.at) and has never run: is the timer installed?"
    good = (
        "there is no good checkpoint yet"
        if summary.success is None
        else f"the last good checkpoint is of {moment(int(_ended_s(summary.success) * 1000))}"
    )
    last = summary.last
    return f"{good}; last run: {last.id}, {last.result.value}{f': {last.text}' if last.text else ''}"
