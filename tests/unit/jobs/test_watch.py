"""`iothub.jobs.watch`: what a hub shows of jobs that run elsewhere, and when it complains of an old checkpoint."""

from __future__ import annotations

import pytest

from iothub.config.loader import load
from iothub.jobs.watch import JobWatch
from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import Overview, Owner, Result
from iothub_tenants.accounts.store import AccountStore

HOUR_S = 3600.0
DAY_S = 24 * HOUR_S
OWNER = Owner("hub-1", 5, "hub")


class Harness:
    """A watch over a history of its own, on one clock."""

    def __init__(self, store: AccountStore, *flags: str) -> None:
        self.clock = ManualClock()
        store.clock = self.clock
        self.store = store
        self.alarms = Alarms(self.clock)
        self.watch = JobWatch(load(flags=flags).config, self.alarms, self.clock)

    def run(self, result: Result, job: str = "compact_events", took_s: float = 30.0, **options: bool) -> None:
        run = job_runs.begin(self.store, job, options, OWNER)
        self.clock.advance(took_s)
        job_runs.end(self.store, run.id, result, figures={}, text="")

    def stale(self, hours: float = 0.0) -> str | None:
        """The detail of the alarm after some time; None: there is none."""
        self.clock.advance(hours * HOUR_S)
        self.watch.update(job_runs.overview(self.store))
        return next((alarm.detail for alarm in self.alarms.active() if alarm.name is AlarmName.CHECKPOINT_STALE), None)


@pytest.fixture
def harness(store: AccountStore) -> Harness:
    return Harness(store)


def test_hub_that_nobody_compacts_does_not_complain(harness: Harness) -> None:
    """The embedded default without a timer: not from the first day on, and not later."""
    assert harness.stale(hours=1000) is None


def test_old_checkpoint_is_an_alarm_until_the_next_one(harness: Harness) -> None:
    """26 hours: a day, and time for one more attempt."""
    harness.run(Result.DONE)
    assert harness.stale(hours=26) is None
    assert harness.stale(hours=0.1) is not None

    harness.run(Result.DONE)

    assert harness.stale() is None


def test_attempts_that_fail_do_not_count(harness: Harness) -> None:
    """The detail says what came of the last one."""
    harness.run(Result.DONE)
    harness.clock.advance(20 * HOUR_S)
    harness.run(Result.FAILED)
    harness.run(Result.DONE, dry_run=True)

    detail = harness.stale(hours=7)

    assert detail is not None
    assert "the last good checkpoint is from " in detail
    assert "; last run: 2, failed" in detail


def test_compaction_that_never_succeeds_is_an_alarm_after_its_first_attempt(harness: Harness) -> None:
    harness.run(Result.FAILED)
    assert harness.stale(hours=25.9) is None

    assert "no run has succeeded yet" in str(harness.stale(hours=0.2))


def test_schedule_without_a_timer_is_an_alarm(store: AccountStore) -> None:
    """The settings say when, and nothing comes."""
    harness = Harness(store, "jobs.at=02:30")
    assert harness.stale(hours=25) is None

    assert "has never run: is the timer installed?" in str(harness.stale(hours=1.1))


def test_schedule_of_other_jobs_says_nothing_of_checkpoints(store: AccountStore) -> None:
    assert Harness(store, "jobs.at=02:30", "jobs.nightly=usage").stale(hours=100) is None


def test_age_is_a_setting(store: AccountStore) -> None:
    harness = Harness(store, "alarms.checkpoint_age=1h")
    harness.run(Result.DONE)

    assert harness.stale(hours=1.1) is not None


def test_metrics_tell_of_the_last_run_of_each_job(harness: Harness) -> None:
    harness.run(Result.DONE, took_s=30.0)
    good = harness.clock.wall()
    harness.run(Result.FAILED, took_s=5.0)
    harness.run(Result.INTERRUPTED, "usage", took_s=7.0)
    job_runs.begin(harness.store, "usage", {}, OWNER)
    harness.watch.update(job_runs.overview(harness.store))

    assert harness.watch.last_success() == {"compact_events": pytest.approx(good)}
    assert harness.watch.duration_s() == {"compact_events": pytest.approx(5.0), "usage": pytest.approx(7.0)}
    assert harness.watch.last_result() == {"compact_events": 0, "usage": 0}
    assert harness.watch.running() == {"compact_events": 0, "usage": 1}


def test_run_that_died_counts_as_one_that_failed(harness: Harness) -> None:
    """Not as one that is under way for ever; it took until its last heartbeat."""
    job_runs.begin(harness.store, "usage", {}, OWNER)
    harness.clock.advance(30)
    assert job_runs.renew(harness.store, 1)
    harness.clock.advance(60)
    harness.watch.update(job_runs.overview(harness.store))

    assert (harness.watch.running(), harness.watch.last_result()) == ({"usage": 0}, {"usage": 0})
    assert harness.watch.duration_s() == {"usage": pytest.approx(30.0)}


def test_nothing_is_shown_of_jobs_that_never_ran(harness: Harness) -> None:
    """A timestamp of 0 would be an alert of everybody's Prometheus."""
    harness.watch.update(Overview({}, []))

    assert (harness.watch.last_success(), harness.watch.running()) == ({}, {})


def held(harness: Harness, days: float, moved: dict[tuple[str, str], float]) -> dict[str, str]:
    """Return the alarms of jobs that hold a log after some days. `moved`: so many days after the start."""
    harness.clock.advance(days * DAY_S)
    begun = harness.clock.wall() - days * DAY_S
    harness.watch.take_marks({key: int((begun + day * DAY_S) * 1000) for key, day in moved.items()})
    active = [alarm for alarm in harness.alarms.active() if alarm.name is AlarmName.JOB_MARK_STALE]
    return {alarm.subject: alarm.detail for alarm in active}


def test_job_that_was_given_up_and_holds_a_log_is_an_alarm(harness: Harness) -> None:
    """Until it has run again, or was let go."""
    marks: dict[tuple[str, str], float] = {("archive", "sessions"): 0.0, ("usage", "analytics"): 2.0}
    assert held(harness, 6.9, marks) == {}

    alarms = held(harness, 0.2, {key: day - 6.9 for key, day in marks.items()})
    assert list(alarms) == ["archive"]
    assert "job archive last ran at " in alarms["archive"]
    assert "the log sessions is not trimmed after that" in alarms["archive"]

    assert held(harness, 0.0, {("archive", "sessions"): 0.0}) == {}


def test_alarm_names_both_logs_that_a_job_holds(harness: Harness) -> None:
    """Whoever looks for what fills the disk looks at the log for statistics, too."""
    (detail,) = held(harness, 9.0, {("archive", "analytics"): 0.0, ("archive", "sessions"): 1.0}).values()

    assert detail.count("job archive last ran at") == 1
    assert "the log analytics is not trimmed after that; the log sessions is not trimmed after " in detail


def test_job_that_holds_nothing_on_kafka_is_no_alarm(store: AccountStore) -> None:
    """The log for statistics goes there by age alone; that of the sessions waits for its readers."""
    harness = Harness(store, "events.driver=kafka", "kafka.brokers=kafka-1:9092", "alarms.job_mark_age=1d")
    marks = {("usage", "analytics"): 0.0, ("archive", "analytics"): 0.0}
    assert held(harness, 2.0, marks) == {}

    assert list(held(harness, 2.0, {**marks, ("archive", "sessions"): 0.0})) == ["archive"]
