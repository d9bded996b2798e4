"""`iothub job run` as processes: races, Ctrl-C, kill -9 of either side, and who finds out."""

from __future__ import annotations

import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.hub.test_health import get, read
from tests.support.alive import is_alive
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub
from tests.support.jobs.jobs import JobHarness
from tests.support.ports import free_port
from tests.support.waiting import PATIENCE_S, until

WAIT_S = PATIENCE_S


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[JobHarness]:
    (tmp_path / "fake").mkdir()
    harness = JobHarness(fresh_hub(tmp_path).data_dir, tmp_path / "fake")
    yield harness
    harness.end()


def under_way(harness: JobHarness, tmp_path: Path, *steps: str) -> tuple[subprocess.Popen[str], int, int]:
    """A run whose process, and one that this has started, are at work; their ids."""
    job, java, ready = tmp_path / "job.pid", tmp_path / "java.pid", tmp_path / "ready"
    harness.does("note:hello", f"pid:{job}", f"java:{java}", f"touch:{ready}", *(steps or ("forever",)))
    running = harness.start("run", "compact_events", "-o", "json")
    until(ready.exists, "the job's process", WAIT_S)
    return running, int(job.read_text()), int(java.read_text())


def test_of_runs_that_begin_at_once_one_is_done_and_the_others_are_told(harness: JobHarness, tmp_path: Path) -> None:
    """Real processes, no order between them."""
    go = tmp_path / "go"
    harness.does(f"until:{go}", "done:{}")
    started = [harness.start("run", "compact_events") for _ in range(4)]
    refused = []

    until(lambda: len([each for each in started if each.poll() is not None]) == 3, "three that are refused", WAIT_S)
    for each in started:
        if each.poll() is not None:
            refused.append((each.returncode, each.communicate()[1]))
    go.touch()
    (winner,) = [each for each in started if each.returncode is None]
    winner.communicate(timeout=WAIT_S)

    assert winner.returncode == 0
    assert [code for code, _ in refused] == [4, 4, 4]
    assert all(f"as process {winner.pid} on" in said for _, said in refused)
    assert [run["result"] for run in harness.history()] == ["done"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_run_takes_everything_with_it(harness: JobHarness, tmp_path: Path, number: signal.Signals) -> None:
    """Ctrl-C at a terminal, `systemctl stop`."""
    running, job, java = under_way(harness, tmp_path)

    running.send_signal(number)
    _, said = running.communicate(timeout=WAIT_S)

    assert running.returncode == 130
    assert "interrupted: compact_events was stopped, its unfinished work is discarded" in said
    assert "Traceback" not in said
    assert not is_alive(job)
    assert not is_alive(java)
    assert [run["result"] for run in harness.history()] == ["interrupted"]
    assert list(harness.data_dir.glob("jobs/run-*/")) == []


def test_killed_job_is_a_failed_run(harness: JobHarness, tmp_path: Path) -> None:
    """Also by the kernel, when memory ends."""
    running, job, java = under_way(harness, tmp_path)

    os.kill(job, signal.SIGKILL)
    _, said = running.communicate(timeout=WAIT_S)

    assert running.returncode == 1
    assert "its process was killed by SIGKILL" in said
    assert not is_alive(java)
    assert [(run["result"], run["kind"]) for run in harness.history()] == [("failed", "died")]


def test_job_of_a_killed_runner_ends_and_its_lease_expires(harness: JobHarness, tmp_path: Path) -> None:
    """Nobody could note anything: the row says `running` as long as there may have been a heartbeat."""
    running, job, java = under_way(harness, tmp_path)

    running.kill()
    running.communicate(timeout=WAIT_S)

    until(lambda: not is_alive(job) and not is_alive(java), "the end of both processes", WAIT_S)
    assert [run["result"] for run in harness.history()] == ["running"]
    harness.does("done:{}")
    assert harness.run("run", "usage").returncode == 4
    harness.let_lease_expire()
    assert harness.run("run", "usage").returncode == 0
    assert [(run["job"], run["result"], run["kind"]) for run in harness.history()] == [
        ("usage", "done", None),
        ("compact_events", "died", "died"),
    ]
    assert list(harness.data_dir.glob("jobs/run-*/")) == []


def test_hubs_with_one_accounts_database_have_one_turn(harness: JobHarness, tmp_path: Path) -> None:
    """Two data directories, as two machines have them."""
    url = tmp_path / "url"
    url.write_text(f"sqlite:///{harness.data_dir}/accounts.db")
    other = JobHarness(fresh_hub(tmp_path / "other").data_dir, harness.folder)
    with (other.data_dir / "iothub.toml").open("a") as file:
        file.write(f'\n[sql]\nurl_file = "{url}"\n')
    running, _, _ = under_way(harness, tmp_path)

    refused = other.run("run", "usage")

    assert (refused.returncode, "compact_events is running since" in refused.stderr) == (4, True)
    running.send_signal(signal.SIGINT)
    running.communicate(timeout=WAIT_S)


def test_terminal_is_told_in_words(harness: JobHarness) -> None:
    """One line for each stage, no JSON."""
    harness.does("stage:read:1:10", "stage:read:10:10", "stage:write:3:3", "note:all is well", 'done:{"rows": 3}')
    ours, theirs = pty.openpty()

    done = subprocess.run(
        harness.command("run", "compact_events"),
        env=harness.environment,
        stdout=subprocess.PIPE,
        stderr=theirs,
        text=True,
        check=False,
        timeout=WAIT_S,
    )

    os.close(theirs)
    said = os.read(ours, 1 << 16).decode()
    os.close(ours)
    assert done.returncode == 0
    assert said.startswith("compact_events: starting Spark ...")
    assert "compact_events: read: 10 records in" in said
    assert "compact_events: write: 3 records in" in said
    assert "compact_events: all is well" in said
    assert "{" not in said
    assert "figures  rows=3" in done.stdout


def test_hub_shows_what_became_of_jobs(harness: JobHarness) -> None:
    """From its start on, wherever they ran."""
    harness.does("done:{}")
    harness.run("run", "compact_events")
    harness.does("failed:unavailable:no broker answers", "exit:7")
    harness.run("run", "usage")
    hub = Hub(harness.data_dir, {"http": free_port()})

    hub.start()
    try:
        page = read(get(hub, "/metrics")[1])
    finally:
        hub.stop()

    compaction, usage = frozenset({("job", "compact_events")}), frozenset({("job", "usage")})
    assert page["iothub_job_last_result", compaction] == 1
    assert page["iothub_job_last_result", usage] == 0
    assert page["iothub_job_last_success_timestamp_seconds", compaction] > 1.7e9
    assert ("iothub_job_last_success_timestamp_seconds", usage) not in page
    assert page["iothub_job_running", compaction] == 0
