"""`iothub job run compact_events` with the real job: Spark in a process of its own, from the command line to the history."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.jobs import process
from iothub.records import events
from iothub.records.events import Event, Subject
from tests.support.datadirs import fresh_hub
from tests.support.hub import IOTHUB
from tests.support.jobs import JobHouse
from tests.support.left_behind import left_behind
from tests.support.waiting import until

SESSIONS = 50

pytestmark = pytest.mark.timeout(600)  # Java starts several times


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


def is_java(pid: int) -> bool:
    try:
        return "java" in Path(f"/proc/{pid}/comm").read_text()
    except OSError:
        return False  # it has just ended


def java_of(data_dir: Path) -> tuple[str, str] | None:
    """The job's process and its Java, once there is one; by name."""
    for file in data_dir.glob("jobs/run-*/process"):
        leader = file.read_text()
        members = [pid for pid, session in process.sessions().items() if str(session) == leader.split("/")[-2]]
        names = [name for name in map(process.name_of, filter(is_java, members)) if name is not None]
        if names:
            return leader, names[0]
    return None


def test_night_from_the_command_line(data_dir: Path, tmp_path: Path) -> None:
    """A checkpoint that counts and that the states agree with; then a runner that is killed takes Spark with it, and changes nothing."""
    house = JobHouse(data_dir, tmp_path / "fake")
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
    until(lambda: java_of(data_dir) is not None, "Spark's Java", 120)
    found = java_of(data_dir)
    assert found is not None
    os.kill(killed.pid, 9)
    killed.wait()

    until(lambda: not any(process.lives(name) for name in found), "the end of the job and its Java", 30)
    house.does("done:{}")
    assert house.run("run", "usage").returncode == 0
    assert [(each["result"], each["kind"]) for each in house.history()] == [
        ("done", None),
        ("failed", "died"),
        ("done", None),
    ]
