"""`iothub.cli.serve_child`: what a process that a supervisor has started says when it cannot start."""

from __future__ import annotations

import json
import os
import subprocess
from functools import partial
from pathlib import Path

import pytest

from iothub.config.datadir import DataDir
from iothub.hub.workers.supervised import REPORT
from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.waiting import PATIENCE_S


def start(data_dir: Path, *words: str) -> tuple[int, str, dict[str, object]]:
    """Run to its end; return exit code, standard error and the report."""
    reading, writing = os.pipe()
    done = subprocess.run(
        [str(IOTHUB), "--data-dir", str(data_dir), "serve", *words],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        close_fds=False,
        preexec_fn=partial(os.dup2, writing, REPORT),
        check=False,
    )
    os.close(writing)
    with os.fdopen(reading) as report:
        return done.returncode, done.stderr, json.loads(report.read())


@pytest.mark.parametrize("child", [("--as-worker", "2"), ("--store-process",)])
def test_by_hand_nothing_is_opened_and_written(tmp_path: Path, child: tuple[str, ...]) -> None:
    """Without a supervisor the descriptor of the report may be a store's file."""
    hub = Hub(tmp_path / "hub")
    hub.init()
    before = sorted(path.name for path in hub.data_dir.rglob("*"))

    done = subprocess.run(
        [str(IOTHUB), "--data-dir", str(hub.data_dir), "serve", "--workers", "2", *child],
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )

    assert done.returncode == 2
    assert "which starts these processes itself" in done.stderr
    assert sorted(path.name for path in hub.data_dir.rglob("*")) == before


@pytest.mark.parametrize("child", [("--as-worker", "2"), ("--store-process",)])
def test_wrong_configuration_is_reported_and_not_printed(tmp_path: Path, child: tuple[str, ...]) -> None:
    """Its supervisor prints it, once for all of them."""
    hub = Hub(tmp_path / "hub")
    hub.init()

    code, printed, report = start(hub.data_dir, "--workers", "2", "--set", "http.port=0", *child)

    assert (code, printed, report["exit_code"]) == (2, "", 2)
    assert "http.port = 0" in str(report["error"])


def test_child_whose_supervisor_ended_before_it_began_ends(tmp_path: Path) -> None:
    """The kernel kills only those that have asked for it before."""
    hub = Hub(tmp_path / "hub")
    hub.init()
    reading, writing = os.pipe()
    os.close(reading)

    done = subprocess.run(
        [str(IOTHUB), "--data-dir", str(hub.data_dir), "serve", "--workers", "2", "--as-worker", "2"],
        timeout=PATIENCE_S,
        close_fds=False,
        preexec_fn=partial(os.dup2, writing, REPORT),
        check=False,
    )

    os.close(writing)
    assert done.returncode == 1


def test_worker_whose_directory_is_in_use_does_not_start(tmp_path: Path) -> None:
    hub = Hub(tmp_path / "hub")
    hub.init()
    worker = DataDir.of_worker(hub.data_dir, 2)
    worker.make_own()
    lock = worker.lock("another")

    code, printed, report = start(hub.data_dir, "--workers", "2", "--as-worker", "2")

    lock.release()
    assert (code, printed, report["exit_code"]) == (4, "", 4)
    assert "is in use by process" in str(report["error"])
