"""`job_runs`: one run at a time, whatever its job; what came of each is remembered, and who died without a word is found out."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from iothub.base.errors import NotFoundError
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import Owner, Result, Run, RunningError
from iothub_tenants.accounts.store import AccountStore

OWNER = Owner("hub-1", 77, "hub-1/boot/77", "hub")


def begin(store: AccountStore, job: str = "compact_events", *, is_gone: bool = False, **options: bool) -> Run:
    return job_runs.begin(store, job, options, OWNER, lambda _: is_gone)


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


def test_run_whose_process_is_gone_has_failed_and_stands_in_nobodys_way(store: AccountStore) -> None:
    dead = begin(store)

    alive = begin(store, is_gone=True)

    found = job_runs.show(store, dead.id)
    assert (found.result, found.kind) == (Result.FAILED, "died")
    assert "its process 77 on hub-1 ended without a word" in found.text
    assert [run.id for run in job_runs.running(store)] == [alive.id]


def test_beat_shows_that_a_run_lives(store: AccountStore) -> None:
    """Who has seen the beat of before may not bury it."""
    run = begin(store)

    assert job_runs.beat(store, run.id)
    assert not job_runs.bury(store, run)
    assert job_runs.bury(store, job_runs.running(store)[0])


def test_buried_run_hears_of_it_and_changes_nothing(store: AccountStore) -> None:
    """It was only slow: by then another one may be running."""
    run = begin(store)
    job_runs.bury(store, run)

    assert not job_runs.beat(store, run.id)
    assert not job_runs.end(store, run.id, Result.DONE, figures={})
    assert job_runs.show(store, run.id).result is Result.FAILED


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


def test_figures_and_text_are_bounded(store: AccountStore) -> None:
    """They come from another process."""
    run = begin(store)
    job_runs.end(store, run.id, Result.FAILED, kind="k" * 99, figures={"a": "x" * (64 << 10)}, text="t" * 5000)

    found = job_runs.show(store, run.id)
    assert len(found.text) == job_runs.TEXT_LIMIT
    assert len(found.kind) == 16
    assert list(found.figures) == ["left_out"]
