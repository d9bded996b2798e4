"""`iothub.jobs.child`: a process that is heard to its last line, and ended with all that belongs to it."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

import pytest

from iothub.jobs import process
from iothub.jobs.child import Child
from iothub.jobs.lines import Done, Said, Stage
from iothub.jobs.places import RunLog

FAKE = Path(__file__).parents[2] / "support" / "fake_job.py"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    opened = RunLog(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture
def started(tmp_path: Path, log: RunLog) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(*steps: str) -> Child:
        children.append(Child([sys.executable, str(FAKE), *steps], os.environ, tmp_path, log))
        return children[-1]

    yield start
    for child in children:
        child.end(0.0)


def everything(child: Child) -> list[Said]:
    found = []
    while (said := child.said(30)) is not None:
        found.append(said)
    return found


def test_child_is_heard_to_its_last_line(started: Callable[..., Child]) -> None:
    child = started("stage:read:1:2", "noise:no JSON", "done:{}", "exit:3")

    assert everything(child) == [Stage("read", 1, 2, "records"), Done({})]
    assert child.wait(10) == 3


def test_last_words_are_in_the_log_when_the_exit_code_is_known(
    started: Callable[..., Child], log: RunLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also when whoever writes them down is slower than the end."""
    is_over = threading.Event()
    take = log.take

    def take_later(source: IO[bytes]) -> None:
        is_over.wait(30)
        take(source)

    monkeypatch.setattr(log, "take", take_later)
    child = started("error:OutOfMemoryError", "exit:1")
    everything(child)
    threading.Timer(0.05, is_over.set).start()

    assert child.wait(30) == 1
    assert log.last == "OutOfMemoryError"


def test_silent_child_keeps_nobody_waiting(started: Callable[..., Child]) -> None:
    child = started("forever")

    with pytest.raises(TimeoutError):
        child.said(0.0)
    assert child.wait(0.0) is None
    assert not child.is_over()


def test_child_that_says_more_than_anybody_hears_is_ended(started: Callable[..., Child]) -> None:
    """Its lines wait for room; the end comes all the same."""
    child = started(*["note:x"] * 3000, "forever")
    child.said(30)

    child.end(0.0)

    assert child.wait(0.0) == -9 or child.wait(0.0) == -15


def test_line_without_end_is_cut_and_logged(started: Callable[..., Child], log: RunLog) -> None:
    """Memory is bounded, and the lines behind it are heard."""
    child = started("long:600000", "done:{}")

    assert everything(child) == [Done({})]


def test_what_a_child_leaves_behind_is_ended(started: Callable[..., Child], tmp_path: Path) -> None:
    """It would hold the pipes open for ever."""
    note = tmp_path / "java"
    child = started(f"java:{note}", "done:{}")
    assert child.said(30) == Done({})
    child.wait(10)

    assert not child.is_over()
    assert child.said(10) is None
    assert process.name_of(int(note.read_text())) is None
