"""The process of a job, started as the runner starts it, to be watched and killed."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal, get_args

import psutil  # type: ignore[import-untyped]

from iothub.records.job_spec import Spec, write_spec
from iothub_spark import daemon

WAIT_S = 400.0  # for Java on a busy machine
_POLL_S = 0.01

Whom = Literal["driver", "java", "workers"]
ALL: tuple[Whom, ...] = get_args(Whom)


class Child:
    """One run in a process of its own."""

    def __init__(self, spec: Spec, folder: Path) -> None:
        file = folder / "spec.json"
        file.write_text(write_spec(spec), encoding="utf-8")
        self._errors = (folder / "stderr.txt").open("wb")
        self._process = subprocess.Popen(
            [sys.executable, "-m", "iothub_spark", spec.job, "--spec", str(file)],
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable},
        )
        self._folder = folder

    def kill_when(self, is_time: Callable[[], bool]) -> None:
        """Kill -9 the driver as soon as something is so. Fails when it ends before."""
        self._await(is_time)
        os.kill(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)

    def kill_workers_when(self, is_time: Callable[[], bool]) -> int:
        """Kill -9 the Python workers as soon as something is so. Returns how many there were; `finish` tells what came of it."""
        self._await(is_time)
        return _kill_workers(self._process.pid)

    def kill_all_workers(self) -> int:
        """Kill -9 each Python worker that comes, until the driver ends. Returns how many there were; `finish` tells what came of it."""
        killed, deadline = 0, time.monotonic() + WAIT_S
        while self._process.poll() is None:
            assert time.monotonic() < deadline, self._failure_text("it never ended")
            with suppress(psutil.NoSuchProcess):
                killed += _kill_workers(self._process.pid)
            time.sleep(_POLL_S)
        return killed

    def kill_java_when(self, is_time: Callable[[], bool], *, are_workers_killed: bool = False) -> None:
        """Kill -9 the driver's Java as soon as something is so, its Python workers first or not at all. `finish` tells what came of it."""
        self._await(is_time)
        if are_workers_killed:
            _kill_workers(self._process.pid)
        _kill_java(self._process.pid)

    def kill_at(self, moment: float, whom: Whom) -> bool:
        """Kill -9 at a moment of the monotonic clock, and let the run end as it will. Returns whether there was anybody to kill."""
        try:
            self._process.wait(max(0.0, moment - time.monotonic()))
            return False
        except subprocess.TimeoutExpired:
            is_hit = _KILLS[whom](self._process.pid) > 0
        if whom == "driver":
            self._process.wait(WAIT_S)
        else:
            self._process.communicate(timeout=WAIT_S)
        return is_hit

    def finish(self) -> tuple[int, list[dict[str, object]]]:
        """Wait for the end; returns the exit code and what it said."""
        out, _ = self._process.communicate(timeout=WAIT_S)
        return self._process.returncode, [json.loads(line) for line in out.splitlines()]

    def close(self) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait(WAIT_S)
        if self._process.stdout is not None:
            self._process.stdout.close()
        self._errors.close()

    def _await(self, is_time: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_S
        while not is_time():
            assert self._process.poll() is None, self._failure_text("it ended before it could be killed")
            assert time.monotonic() < deadline, self._failure_text("it never came so far")
            time.sleep(_POLL_S)

    def _failure_text(self, what: str) -> str:
        return f"{what}:\n{(self._folder / 'stderr.txt').read_text(errors='replace')[-3000:]}"


@contextmanager
def started(spec: Spec, folder: Path) -> Iterator[Child]:
    child = Child(spec, folder)
    try:
        yield child
    finally:
        child.close()


def require_hits(hits: Mapping[str, int], tried: int) -> None:
    """Fail unless at least half of the kills that were tried have hit somebody, and each kind one where many were tried."""
    print(f"kills that hit, of {tried}: {dict(hits)}")
    assert sum(hits.values()) >= tried / 2, hits
    assert tried < 10 or all(hits[whom] for whom in ALL), hits


def seen(folder: Path, statement: str) -> bool:
    """Say whether a statement finds a row in `checkpoints.db`; False while there is no such table."""
    path = folder / "checkpoints.db"
    if not path.exists():
        return False
    try:
        with closing(sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, timeout=5)) as file:
            return file.execute(statement).fetchone() is not None
    except sqlite3.OperationalError:
        return False


def _kill_driver(pid: int) -> int:
    os.kill(pid, signal.SIGKILL)
    return 1


def _kill_java(pid: int) -> int:
    return _killed(psutil.Process(pid).children())


def _kill_workers(pid: int) -> int:
    return _killed(filter(_is_worker, psutil.Process(pid).children(recursive=True)))


_KILLS: dict[Whom, Callable[[int], int]] = {"driver": _kill_driver, "java": _kill_java, "workers": _kill_workers}


def _is_worker(process: psutil.Process) -> bool:
    try:
        return process.name().startswith("python") and daemon.NAME in process.cmdline()
    except (psutil.NoSuchProcess, psutil.ZombieProcess):
        return False


def _killed(processes: Iterable[psutil.Process]) -> int:
    killed = 0
    for process in processes:
        with suppress(psutil.NoSuchProcess):
            process.kill()
            killed += 1
    return killed
