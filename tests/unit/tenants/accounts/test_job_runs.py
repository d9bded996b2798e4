"""`job_runs`: one run at a time, whatever its job; what came of each is remembered, and a run without heartbeats has died."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iothub.base.errors import NotFoundError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import Owner, Result, Run, RunningError
from iothub_tenants.accounts.store import AccountStore
from tests.support.jobs.job_leases import let_expire

OWNER = Owner("hub-1", 77, "hub")


def begin(store: AccountStore, job: str = "compact_events", **options: bool) -> Run:
    return job_runs.begin(store, job, options, OWNER)


def whole_run(store: AccountStore, result: Result, job: str = "compact_events", **options: bool) -> Run:
    run = begin(store, job, **options)
    figures: Mapping[str, object] = {"rows": run.id}
    assert job_runs.end(store, run.id, result, figures=figures)
    return job_runs.show(store, run.id)


def test_run_is_noted_from_its_begin_to_its_end(store: AccountStore, clock: ManualClock) -> None:
    """Who, where, when, what was asked for, and what came of it."""
    run = begin(store, full=True)
    clock.advance(5)
    job_runs.end(store, run.id, Result.FAILED, kind="conflict", figures={"events": 3}, text="the log has a gap")

    ended = job_runs.show(store, run.id)
    assert (run.result, run.ended_ms, run.options, run.owner) == (Result.RUNNING, None, {"full": True}, OWNER)
    assert (ended.result, ended.kind, ended.text) == (Result.FAILED, "conflict", "the log has a gap")
    assert (ended.figures, ended.is_dry_run) == ({"events": 3}, False)
    assert ended.ended_ms == run.started_ms + 5000


@pytest.mark.parametrize("other", ["compact_events", "usage"])
def test_second_run_is_refused_whatever_its_job(store: AccountStore, other: str) -> None:
    """Compaction trims what others read."""
    first = begin(store)

    with pytest.raises(RunningError) as refused:
        begin(store, other)

    assert refused.value.run == first
    assert refused.value.exit_code == 4
    assert f"compact_events is running since {job_runs.moment(first.started_ms)} as process 77 on hub-1" in str(
        refused.value
    )
    assert len(job_runs.history(store)) == 1


def test_run_whose_lease_has_expired_has_died_and_stands_in_nobodys_way(store: AccountStore) -> None:
    """Nothing is written of it: its row says so to whoever reads it."""
    dead = begin(store)
    let_expire(store, dead.id)

    found = job_runs.show(store, dead.id)
    assert (found.result, found.kind) == (Result.DIED, "died")
    assert f"no heartbeat since {job_runs.moment(found.ended_ms or 0)}: process 77 on hub-1 was killed" in found.text
    assert job_runs.running(store) == []
    alive = begin(store)
    assert [run.result for run in job_runs.history(store)] == [Result.RUNNING, Result.DIED]
    assert job_runs.running(store) == [alive]


def test_heartbeat_keeps_the_lease(store: AccountStore) -> None:
    run = begin(store)
    let_expire(store, run.id, but_for_s=20.0)

    assert job_runs.renew(store, run.id)

    let_expire(store, run.id, but_for_s=20.0)
    assert job_runs.running(store) == [run]


def test_lease_that_has_expired_stays_so(store: AccountStore) -> None:
    """The run was only slow: by then another one may be under way."""
    run = begin(store)
    let_expire(store, run.id)

    assert not job_runs.renew(store, run.id)
    assert not job_runs.end(store, run.id, Result.DONE, figures={})
    assert job_runs.show(store, run.id).result is Result.DIED


def test_history_begins_with_the_newest_and_is_bounded(store: AccountStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """So many runs of each job."""
    monkeypatch.setattr(job_runs, "KEPT", 3)
    usage = whole_run(store, Result.DONE, "usage")
    ids = [whole_run(store, Result.DONE).id for _ in range(5)]

    assert [run.id for run in job_runs.history(store, "compact_events")] == ids[:1:-1]
    assert [run.id for run in job_runs.history(store, limit=2)] == ids[:2:-1]
    assert job_runs.history(store, "usage") == [usage]


def test_run_that_is_not_remembered_is_not_found(store: AccountStore) -> None:
    with pytest.raises(NotFoundError, match="there is no run 5"):
        job_runs.show(store, 5)


def test_summary_has_the_last_run_and_the_last_success(store: AccountStore, clock: ManualClock) -> None:
    """A dry run has done nothing."""
    assert job_runs.summaries(store) == {}
    good = whole_run(store, Result.DONE)
    clock.advance(10)
    bad = whole_run(store, Result.FAILED)
    whole_run(store, Result.DONE, dry_run=True)
    failed = whole_run(store, Result.INTERRUPTED, "usage")

    found = job_runs.summaries(store)

    assert (found["compact_events"].last, found["compact_events"].success) == (bad, good)
    assert found["compact_events"].first_ms == good.started_ms
    assert (found["usage"].last, found["usage"].success) == (failed, None)


def test_summary_has_a_run_that_died_as_the_last_one(store: AccountStore) -> None:
    """Like one that failed."""
    good = whole_run(store, Result.DONE)
    dead = begin(store)
    assert job_runs.summaries(store)["compact_events"].last == good

    let_expire(store, dead.id)

    summary = job_runs.summaries(store)["compact_events"]
    assert (summary.last.id, summary.last.result, summary.success) == (dead.id, Result.DIED, good)


def test_figures_and_text_are_bounded(store: AccountStore) -> None:
    """They come from another process."""
    run = begin(store)
    job_runs.end(store, run.id, Result.FAILED, kind="k" * 99, figures={"a": "x" * (64 << 10)}, text="t" * 5000)

    found = job_runs.show(store, run.id)
    assert len(found.text) == job_runs.TEXT_LIMIT
    assert len(found.kind) == 16
    assert list(found.figures) == ["left_out"]
