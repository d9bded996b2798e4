"""`iothub.jobs.runner`: whatever becomes of a job's process, its row says it, and never two runs are under way."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, InterruptedWorkError, UnavailableError
from iothub.jobs.child import Child
from iothub.jobs.lines import Done, Note, Report, Stage
from iothub.jobs.places import Places
from iothub.jobs.runner import HEARTBEAT_S, LIFELINE_S, Runner, Start
from iothub.testing.clock import ManualClock
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import LEASE_S, Owner, Result, Run, RunningError
from iothub_tenants.accounts.store import AccountStore
from tests.support.alive import is_alive
from tests.support.jobs.job_leases import let_expire

ELSEWHERE = Owner("hub-2", 5, "hub")

MakeRunner = Callable[..., Runner]
Fake = Callable[..., Start]


def elsewhere(store: AccountStore) -> Run:
    """A run of another machine."""
    return job_runs.begin(store, "usage", {}, ELSEWHERE)


def test_run_that_is_done_has_its_figures(
    make_runner: MakeRunner, fake: Fake, heard: list[Report], places: Places
) -> None:
    steps = ("noise:no JSON", "error:spark says", "stage:read:5:10", "note:hm", 'done:{"rows": 7}')

    run = make_runner().run("compact_events", {"full": True}, fake(*steps))

    assert (run.result, run.kind, run.figures, run.options) == (Result.DONE, "", {"rows": 7}, {"full": True})
    assert heard == [Stage("read", 5, 10, "records"), Note("hm"), Done({"rows": 7})]
    assert sorted(places.read_log(run.id).splitlines()) == [b"no JSON", b"spark says"]


@pytest.mark.parametrize(
    ("steps", "kind", "text"),
    [
        (["failed:conflict:the log has a gap", "exit:4"], "conflict", "the log has a gap"),
        (["failed::", "exit:1"], "died", "the job failed without a reason; see its log"),
        (
            ["error:java.lang.OutOfMemoryError", "exit:1"],
            "died",
            "exit code 1; last line of its log: java.lang.OutOfMemoryError",
        ),
        (["kill"], "died", "its process was killed by SIGKILL"),
        (['done:{"rows": 7}', "exit:1"], "died", "exit code 1"),
    ],
)
def test_run_that_failed_says_how(make_runner: MakeRunner, fake: Fake, steps: list[str], kind: str, text: str) -> None:
    run = make_runner().run("verify", {}, fake(*steps))

    assert (run.result, run.kind) == (Result.FAILED, kind)
    assert text in run.text


def test_exit_code_says_what_came_of_a_run(make_runner: MakeRunner, fake: Fake) -> None:
    """Also of one that says nothing."""
    run = make_runner().run("verify", {}, fake("exit:0"))

    assert (run.result, run.figures) == (Result.DONE, {})


def test_run_whose_process_does_not_end_after_its_last_word_is_done(
    make_runner: MakeRunner, fake: Fake, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is durable; only Spark has not let go."""
    monkeypatch.setattr("iothub.jobs.runner._EXIT_S", 0.0)

    run = make_runner().run("verify", {}, fake('done:{"rows": 7}', "forever"))

    assert (run.result, run.figures) == (Result.DONE, {"rows": 7})
    assert "its process did not exit and was killed" in run.text


def test_figures_of_a_failure_are_kept(make_runner: MakeRunner, fake: Fake) -> None:
    """What `verify` has counted says more than that something differs."""
    run = make_runner().run("verify", {}, fake('done:{"different": 2}', "failed:corrupt:2 sessions differ", "exit:1"))

    assert (run.result, run.figures) == (Result.FAILED, {"different": 2})


def test_nothing_is_left_of_a_run_but_its_log(make_runner: MakeRunner, fake: Fake, tmp_path: Path) -> None:
    """Also what its process has started is gone."""
    note = tmp_path / "java"

    run = make_runner().run("verify", {}, fake(f"java:{note}", "done:{}"))

    assert [path.name for path in (tmp_path / "jobs").iterdir()] == [f"run-{run.id}.log"]
    assert not is_alive(int(note.read_text()))


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted_run_ends_its_process_and_says_so(
    make_runner: MakeRunner, fake: Fake, store: AccountStore, tmp_path: Path, number: int
) -> None:
    """Ctrl-C, a service manager, a closed terminal."""
    note = tmp_path / "java"
    runner = make_runner()
    usual = signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL
    before = signal.signal(number, usual)  # whoever runs the tests with nohup, or in the background, ignores some

    def interrupt(_: Report) -> None:
        os.kill(os.getpid(), number)

    runner._on_report = interrupt
    try:
        with pytest.raises(InterruptedWorkError, match="its unfinished work is discarded"):
            runner.run("verify", {}, fake(f"java:{note}", "stage:read:1:2", "forever"))
    finally:
        signal.signal(number, before)

    (run,) = job_runs.history(store)
    assert run.result is Result.INTERRUPTED
    assert not is_alive(int(note.read_text()))


def test_process_that_ignores_the_signal_is_killed(
    make_runner: MakeRunner, fake: Fake, store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner = make_runner()
    runner._timing = type(runner._timing)(grace_s=0.1)

    def interrupt(_: Report) -> None:
        raise KeyboardInterrupt

    runner._on_report = interrupt
    with pytest.raises(InterruptedWorkError):
        runner.run("verify", {}, fake("stubborn", "stage:read:1:2", "forever"))

    assert job_runs.history(store)[0].result is Result.INTERRUPTED


def test_run_that_takes_too_long_is_ended(make_runner: MakeRunner, fake: Fake) -> None:
    run = make_runner(max_runtime_s=0.0).run("verify", {}, fake("forever"))

    assert (run.result, run.kind) == (Result.FAILED, "timeout")
    assert "longer than jobs.max_runtime" in run.text


def test_full_disk_is_told_with_its_place(make_runner: MakeRunner, store: AccountStore) -> None:
    """What a write says of itself has no file."""

    def start(_: Run, folder: Path) -> tuple[list[str], dict[str, str]]:
        raise OSError(errno.ENOSPC, "No space left on device")

    with pytest.raises(UnavailableError, match=r"jobs/run-1: cannot be written: No space left on device"):
        make_runner().run("verify", {}, start)
    assert job_runs.show(store, 1).result is Result.FAILED


def test_process_that_cannot_be_started_is_a_failed_run(make_runner: MakeRunner, store: AccountStore) -> None:
    def start(_run: Run, _folder: Path) -> tuple[list[str], dict[str, str]]:
        return ["/nonexistent/python"], {}

    with pytest.raises(UnavailableError, match="/nonexistent/python: cannot be started"):
        make_runner().run("verify", {}, start)

    assert job_runs.history(store)[0].result is Result.FAILED


# --- whose turn it is


def test_run_beside_another_one_is_refused_at_once(make_runner: MakeRunner, fake: Fake, store: AccountStore) -> None:
    """It has the lease, wherever it is."""
    elsewhere(store)

    with pytest.raises(RunningError, match="as process 5 on hub-2"):
        make_runner(pause=pytest.fail).run("verify", {}, fake("done:{}"))


def test_run_that_waits_follows_one_that_dies(make_runner: MakeRunner, fake: Fake, store: AccountStore) -> None:
    """As soon as the lease has expired; nobody has to look for a process."""
    other, clock = elsewhere(store), ManualClock()

    def pause(seconds: float) -> None:
        clock.advance(seconds)
        let_expire(store, other.id)

    run = make_runner(clock=clock, pause=pause, wait_s=600.0).run("verify", {}, fake("done:{}"))

    assert run.result is Result.DONE
    assert job_runs.show(store, other.id).result is Result.DIED


def test_patient_run_has_its_turn_when_the_other_one_has_ended(
    make_runner: MakeRunner, fake: Fake, store: AccountStore, heard: list[Report]
) -> None:
    """`--wait`: said once."""
    other, clock = elsewhere(store), ManualClock()

    def pause(seconds: float) -> None:
        clock.advance(seconds)
        if clock.monotonic() > began + 100:
            job_runs.end(store, other.id, Result.DONE, figures={})

    began = clock.monotonic()
    run = make_runner(clock=clock, pause=pause, wait_s=600.0).run("verify", {}, fake("done:{}"))

    assert run.result is Result.DONE
    assert heard == [Note(f"waiting: {other.who()}"), Done({})]


def test_run_that_has_lost_its_lease_ends_itself(make_runner: MakeRunner, fake: Fake, store: AccountStore) -> None:
    """Another one may be under way by then."""
    runner = make_runner(heartbeat_s=0.0)

    def lose(_: Report) -> None:
        (run,) = job_runs.running(store)
        let_expire(store, run.id)

    runner._on_report = lose
    with pytest.raises(ConflictError, match="it lost its lease"):
        runner.run("verify", {}, fake("stage:read:1:2", "forever"))

    assert [run.result for run in job_runs.history(store)] == [Result.DIED]


def test_run_without_accounts_ends_before_its_lease_expires(
    make_runner: MakeRunner, fake: Fake, store: AccountStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A busy database is borne for half of a lease."""
    tried: list[float] = []
    clock = ManualClock()

    def fail(_store: AccountStore, _run_id: int) -> bool:
        tried.append(clock.monotonic())
        clock.advance(10)
        raise BackendError("is locked", retryable=True)

    def on_report(_: Report) -> None:
        clock.advance(6)

    monkeypatch.setattr(job_runs, "renew", fail)
    runner = make_runner(clock=clock)
    runner._on_report = on_report
    with pytest.raises(BackendError):
        runner.run("verify", {}, fake("stage:read:1:2", "forever"))

    assert len(tried) == 4
    assert job_runs.history(store)[0].kind == "lost"


def test_process_ends_itself_when_its_runner_stands_still(make_runner: MakeRunner, fake: Fake) -> None:
    """A terminal that was stopped, a machine that was suspended: its time is over before another run may have the lease."""
    run = make_runner(lifeline_s=0.0).run("verify", {}, fake("forever"))

    assert (run.result, run.kind) == (Result.FAILED, "died")
    assert "killed by SIGKILL" in run.text
    assert "renews its lease no more" in run.text


def test_process_may_go_on_from_the_question_for_the_lease(
    make_runner: MakeRunner, fake: Fake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long the answer takes: another run counts the lease from there, too. No renewal, no more time."""
    clock = ManualClock()
    begun_s = clock.monotonic()
    answers = iter((BackendError("is locked", retryable=True), True))
    heard: list[float] = []
    renewed = tmp_path / "renewed"

    def renew(_store: AccountStore, _run_id: int) -> bool:
        clock.advance(5)
        answer = next(answers)
        if isinstance(answer, BackendError):
            raise answer
        return answer

    def on_report(_: Report) -> None:
        clock.advance(6)

    def keep_until(_: Child, until_s: float) -> None:
        heard.append(until_s - begun_s)
        if len(heard) > 1:
            renewed.touch()

    monkeypatch.setattr(job_runs, "renew", renew)
    monkeypatch.setattr(Child, "keep_until", keep_until)
    runner = make_runner(clock=clock, boot_s=clock.monotonic, heartbeat_s=6.0)
    runner._on_report = on_report
    runner.run("verify", {}, fake("stage:read:1:2", f"until:{renewed}"))

    assert heard == [45.0, 6.0 + 5.0 + 45.0]


def test_process_ends_before_its_lease_expires() -> None:
    """By more than the second in which it notices."""
    assert HEARTBEAT_S < LIFELINE_S < LEASE_S - 10


def test_end_that_cannot_be_noted_is_found_out_by_the_next(
    make_runner: MakeRunner, fake: Fake, store: AccountStore, tmp_path: Path
) -> None:
    """The database is gone when the job is done: the run does not count, and the error says why."""
    runner = make_runner()

    def spoil(_: Report) -> None:
        with sqlite3.connect(tmp_path / "accounts.db") as connection:
            connection.execute("DROP TABLE job_run")

    runner._on_report = spoil
    with pytest.raises(BackendError):
        runner.run("verify", {}, fake("done:{}"))
