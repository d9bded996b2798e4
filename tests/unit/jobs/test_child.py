"""`iothub.jobs.child`: a process that is heard to its last line, and ended with all that belongs to it."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from iothub.jobs.child import Child, boot_s
from iothub.jobs.lines import Done, Note, Report, Stage
from iothub.jobs.places import RunLog
from tests.support.alive import is_alive

FAKE = Path(__file__).parents[2] / "support" / "jobs" / "fake_job.py"


@pytest.fixture
def log(tmp_path: Path) -> Iterator[RunLog]:
    opened = RunLog(tmp_path / "log")
    yield opened
    opened.close()


@pytest.fixture
def started(tmp_path: Path, log: RunLog) -> Iterator[Callable[..., Child]]:
    children: list[Child] = []

    def start(*steps: str) -> Child:
        children.append(Child([sys.executable, str(FAKE), *steps], os.environ, tmp_path, log, boot_s() + 600))
        return children[-1]

    yield start
    for child in children:
        child.end(0.0)


def next_reports(child: Child) -> list[Report]:
    """Read until something is reported: a line may come in pieces."""
    found: list[Report] = []
    while not found and not child.is_over:
        found = child.read(30)
    return found


ECHO = """import sys
for line in sys.stdin: print('{"event": "note", "text": "%s"}' % line.strip(), flush=True)"""


def everything(child: Child) -> list[Report]:
    found: list[Report] = []
    while not child.is_over:
        found += child.read(1)
    return found


def test_child_is_heard_to_its_last_line(started: Callable[..., Child], log: RunLog) -> None:
    child = started("stage:read:1:2", "noise:no JSON", "done:{}", "error:OutOfMemoryError", "exit:3")

    assert everything(child) == [Stage("read", 1, 2, "records"), Done({})]
    assert (child.code, log.last) == (3, "OutOfMemoryError")


def test_silent_child_keeps_nobody_waiting(started: Callable[..., Child]) -> None:
    child = started("forever")

    assert child.read(0.0) == []
    assert (child.code, child.is_over) == (None, False)


def test_child_that_says_more_than_anybody_hears_is_ended(started: Callable[..., Child]) -> None:
    """Its lines wait for room; the end comes all the same."""
    child = started(*["note:x"] * 3000, "forever")
    child.read(30)

    child.end(0.0)

    assert child.code in (-9, -15)


def test_line_without_end_is_cut_and_logged(started: Callable[..., Child], log: RunLog) -> None:
    """Memory is bounded, and the lines behind it are heard."""
    child = started("long:600000", "done:{}")

    assert everything(child) == [Done({})]


def test_child_hears_until_when_it_may_go_on(tmp_path: Path, log: RunLog) -> None:
    """In milliseconds; the first time is there before its first step."""
    child = Child([sys.executable, "-c", ECHO], os.environ, tmp_path, log, 5.0)
    try:
        first = next_reports(child)
        child.keep_until(7.5)
        second = next_reports(child)
    finally:
        child.end(0.0)

    assert (first, second) == ([Note("5000")], [Note("7500")])


def test_child_that_has_ended_hears_nothing(started: Callable[..., Child]) -> None:
    child = started("exit:0")
    everything(child)

    child.keep_until(boot_s() + 600)

    assert child.code == 0


def test_what_a_child_leaves_behind_is_ended(started: Callable[..., Child], tmp_path: Path) -> None:
    """It holds the pipes open, and nobody waits for it."""
    note = tmp_path / "java"
    child = started(f"java:{note}", "done:{}")

    assert everything(child) == [Done({})]
    child.end()

    assert not is_alive(int(note.read_text()))
