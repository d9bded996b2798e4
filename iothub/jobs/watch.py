"""What a running hub shows of the jobs: their last runs as metrics, and alarms for an old checkpoint or an abandoned job.

Knows the run history as it was last read, and no Spark; the job may have run on any machine.

Theory: a hub without compaction must not raise an alarm from its first day on, but one whose timer was never installed should. So
`checkpoint_stale` is only for hubs where compaction was ever tried, or where the settings say that it is due (`jobs.at`). Its age counts from the
last good run, else from the first attempt, else from the start of the hub.

A job such as `archive` has a mark in a log, and the log is not trimmed past it: an abandoned job would hold the log for ever, unnoticed. So a mark
that has not moved for long is an alarm, if trimming waits for it.
"""

from __future__ import annotations

from collections.abc import Mapping

from iothub.base.clock import Clock
from iothub.config.sections import Config
from iothub.records.job_catalogue import COMPACTION
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_tenants.accounts.job_runs import Overview, Result, Run, Summary, moment

LOOK_INTERVAL_S = 30.0
_HELD = ("sessions", "analytics")  # logs that are trimmed up to marks; on Kafka the second one is trimmed by age only


class JobWatch:
    """Used on the reactor thread; a worker thread reads the history."""

    def __init__(self, settings: Config, alarms: Alarms, clock: Clock) -> None:
        self._held_logs = _HELD if settings.events.driver == "sqlite" else _HELD[:1]
        self.apply(settings)
        self._alarms = alarms
        self._clock = clock
        self._started_s = clock.wall()
        self._found = Overview({}, [])

    def apply(self, settings: Config) -> None:
        """Judge by this schedule and these ages from the next look on."""
        self._is_scheduled = settings.jobs.at is not None and COMPACTION in settings.jobs.nightly
        self._age_s = settings.alarms.checkpoint_age_s
        self._mark_age_s = settings.alarms.job_mark_age_s

    def update(self, found: Overview) -> None:
        """Store the history, and raise or clear the alarm."""
        self._found = found
        summary = found.summaries.get(COMPACTION)
        since_s = self._since_s(summary)
        is_stale = since_s is not None and self._clock.wall() - since_s > self._age_s
        self._alarms.set(AlarmName.CHECKPOINT_STALE, is_stale, detail=_words(summary) if is_stale else "")

    def take_marks(self, moved: Mapping[tuple[str, str], int]) -> None:
        """Raise or clear the alarms of jobs that hold a log. `moved`: when the mark of a job in a log last moved."""
        stale: dict[str, str] = {}
        for (job, name), at_ms in sorted(moved.items()):
            if name not in self._held_logs or self._clock.wall() - at_ms / 1000 <= self._mark_age_s:
                continue
            if job in stale:
                stale[job] += f"; the log {name} is not trimmed after {moment(at_ms)}"
            else:
                stale[job] = f"job {job} last ran at {moment(at_ms)}: the log {name} is not trimmed after that"
        gone = [each.subject for each in self._alarms.active() if each.name is AlarmName.JOB_MARK_STALE]
        for job in {*gone, *stale}:
            self._alarms.set(AlarmName.JOB_MARK_STALE, job in stale, subject=job, detail=stale.get(job, ""))

    def _since_s(self, summary: Summary | None) -> float | None:
        """Return from when the age counts; None: checkpoints are not used here."""
        if summary is None:
            return self._started_s if self._is_scheduled else None
        return _ended_s(summary.success) if summary.success is not None else summary.first_ms / 1000

    # --- sources of metrics, by job

    def last_success(self) -> Mapping[str, float]:
        return {job: _ended_s(each.success) for job, each in self._found.summaries.items() if each.success is not None}

    def duration_s(self) -> Mapping[str, float]:
        """Return the duration of the last run that ended."""
        return {
            job: _ended_s(each.last) - each.last.started_ms / 1000
            for job, each in self._found.summaries.items()
            if each.last.ended_ms is not None
        }

    def last_result(self) -> Mapping[str, int]:
        """Return 1 if the last run that ended succeeded, else 0."""
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
        return f"{COMPACTION} is scheduled (jobs.at) but has never run: is the timer installed?"
    good = (
        "no run has succeeded yet"
        if summary.success is None
        else f"the last good checkpoint is from {moment(int(_ended_s(summary.success) * 1000))}"
    )
    last = summary.last
    return f"{good}; last run: {last.id}, {last.result.value}{f': {last.text}' if last.text else ''}"
