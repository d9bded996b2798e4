"""A server's process is found again, and never taken for another one's: with a stand-in that has a JVM's command line."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.process import ServerProcess, until
from ops.services.server import Habits
from tests.support.stand_in import make_stand_in
from tests.support.waiting import PATIENCE_S


@pytest.fixture
def java(tmp_path: Path) -> str:
    return make_stand_in(tmp_path)


@pytest.fixture
def process(tmp_path: Path) -> Iterator[ServerProcess]:
    made = ServerProcess("kafka", tmp_path / "kafka")
    yield made
    made.kill()


def _start(process: ServerProcess, java: str, *words: str) -> int:
    process.start([java], words)
    assert until(lambda: process.out.read_text().endswith("ready\n"), PATIENCE_S)
    return process.pid() or 0


def test_process_outlives_its_starter_and_is_no_child_of_it(process: ServerProcess, java: str) -> None:
    """Nobody must wait for it, and no Ctrl-C reaches it."""
    pid = _start(process, java)

    assert process.state() == "running"
    assert process.resident_bytes() > 0
    assert os.getsid(pid) != os.getsid(0)
    with pytest.raises(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def test_nothing_runs_before_the_first_start(process: ServerProcess) -> None:
    """No folder, no file."""
    assert process.state() == "down"
    assert process.pid() is None
    assert process.resident_bytes() == 0
    assert process.cpu_s() == 0.0


def test_stale_number_is_recognised(process: ServerProcess, tmp_path: Path) -> None:
    """The number in the file is by now somebody else's: he is not ours, and must not be stopped."""
    with subprocess.Popen(["sleep", "60"]) as stranger:
        (tmp_path / "kafka").mkdir()
        (tmp_path / "kafka/pid").write_text(str(stranger.pid))

        assert process.state() == "down"
        assert process.stop(1.0)
        assert stranger.poll() is None
        stranger.kill()


def test_lost_or_broken_file_does_not_hide_the_process(process: ServerProcess, java: str, tmp_path: Path) -> None:
    """Somebody removed the folder while the server ran: it must not hold its ports for ever."""
    pid = _start(process, java)
    (tmp_path / "kafka/pid").write_text("no number")
    assert process.pid() == pid

    (tmp_path / "kafka/pid").unlink()
    assert process.pid() == pid


def test_server_of_another_folder_is_not_ours(process: ServerProcess, java: str, tmp_path: Path) -> None:
    """Two checkouts on one machine."""
    _start(process, java)

    assert ServerProcess("kafka", tmp_path / "other").pid() is None


def test_killed_process_is_gone(process: ServerProcess, java: str) -> None:
    """As after a crash; its file stays behind and is stale."""
    _start(process, java)

    process.kill()

    assert process.state() == "down"


def test_paused_process_goes_on(process: ServerProcess, java: str) -> None:
    """SIGSTOP and SIGCONT."""
    _start(process, java)
    process.pause()
    assert until(lambda: process.state() == "paused", PATIENCE_S)

    process.resume()

    assert until(lambda: process.state() == "running", PATIENCE_S)


def test_paused_process_can_be_stopped(process: ServerProcess, java: str) -> None:
    """It would not hear of SIGTERM alone."""
    _start(process, java)
    process.pause()
    assert until(lambda: process.state() == "paused", PATIENCE_S)

    assert process.stop(PATIENCE_S)


def test_children_are_paused_and_killed_with_it(process: ServerProcess, java: str) -> None:
    """PostgreSQL answers in children of its own, which would go on."""
    _start(process, java, "parent")
    child = int(process.out.read_text().split()[0])
    process.pause()
    assert until(lambda: _state(child) == "T", PATIENCE_S)

    process.kill()

    assert _state(child) in ("", "Z")


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return ""


def test_process_has_its_own_mark_and_signal(tmp_path: Path, java: str) -> None:
    """The file of settings among its arguments; PostgreSQL waits for its clients after SIGTERM."""
    process = ServerProcess("postgresql", tmp_path / "pg", Habits("--config={folder}/conf", signal.SIGUSR1))
    _start(process, java, "deaf")

    assert process.stop(PATIENCE_S)


def test_process_that_does_not_stop_is_killed(process: ServerProcess, java: str) -> None:
    """Bounded, and said."""
    _start(process, java, "deaf")

    assert not process.stop(0.2)
    assert process.state() == "down"


def test_process_that_ends_at_once_is_down(process: ServerProcess, java: str) -> None:
    """The starter looks at its log then."""
    process.start([java], ["brief"])

    assert process.has_ended(10)


def test_missing_program_is_down_with_a_reason(process: ServerProcess) -> None:
    """What the shell said stands in `out`."""
    process.start(["/nowhere/java"], [])

    assert process.has_ended(10)
    assert "/nowhere/java" in process.out.read_text()
