"""`iothub job run compact_events` with the real job: Spark in a process of its own, from the command line to the history."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import psutil  # type: ignore[import-untyped]
import pytest

from iothub.config.datadir import DataDir
from iothub.records import events
from iothub.records.events import Event, Subject
from tests.support.alive import is_alive
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import IOTHUB
from tests.support.hubs.left_behind import left_behind
from tests.support.jobs.jobs import JobHarness
from tests.support.waiting import until

SESSIONS = 50


def created(number: int) -> Event:
    subject = Subject(1, f"meter-{number}", 1, 1000 + number)
    return events.session_created(
        subject, device="dev1", queue_id=number + 1, protocol_version=5, session_expiry_s=86_400
    )


@pytest.fixture
def data_dir(tmp_path: Path) -> Path:
    """A hub's directory with a log that nobody has compacted."""
    path = fresh_hub(tmp_path).data_dir
    with left_behind(DataDir(path)) as written:
        written.log.append([created(number) for number in range(SESSIONS)])
    return path


def run(data_dir: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(IOTHUB), "--data-dir", str(data_dir), *words], capture_output=True, text=True, check=False, timeout=500
    )


def java_of(runner: int) -> list[int]:
    """The runner's job and its Java, once there is one; by process id."""
    try:
        found = psutil.Process(runner).children(recursive=True)
        return [each.pid for each in found] if any("java" in each.name() for each in found) else []
    except psutil.NoSuchProcess:
        return []  # one of them has just ended


def test_night_from_the_command_line(data_dir: Path, tmp_path: Path) -> None:
    """A checkpoint that counts and that the states agree with; then a runner that is killed takes Spark with it, and changes nothing."""
    harness = JobHarness(data_dir, tmp_path / "fake")
    first = run(data_dir, "job", "run", "compact_events", "-o", "json")
    assert first.returncode == 0, first.stderr
    assert json.loads(first.stdout)["figures"]["rows"] == SESSIONS
    verified = json.loads(run(data_dir, "state", "verify", "-o", "json").stdout)
    assert (verified["from"].partition(" ")[0], verified["different"]) == ("checkpoint", 0)
    plan = json.loads(run(data_dir, "job", "plan", "-o", "json").stdout)
    assert [row["events"] for row in plan if row["name"] == "compact_events"] == [0]

    killed = subprocess.Popen(
        [str(IOTHUB), "--data-dir", str(data_dir), "job", "run", "compact_events", "--full"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until(lambda: java_of(killed.pid), "Spark's Java")
    found = java_of(killed.pid)
    os.kill(killed.pid, 9)
    killed.wait()

    until(lambda: not any(map(is_alive, found)), "the end of the job and its Java")
    harness.let_lease_expire()
    harness.does("done:{}")
    assert harness.run("run", "usage").returncode == 0
    assert [(each["result"], each["kind"]) for each in harness.history()] == [
        ("done", None),
        ("died", "died"),
        ("done", None),
    ]
