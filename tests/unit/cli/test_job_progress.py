"""`iothub.cli.job_progress`: a person at a terminal sees lines that move, a log gets few lines that stay."""

from __future__ import annotations

import json

import pytest

from iothub.cli import job_progress
from iothub.cli.job_progress import JobProgress
from iothub.jobs.lines import Done, Note, Stage
from iothub.testing.clock import ManualClock


def stage(done: int, name: str = "read") -> Stage:
    return Stage(name, done, 100, "records")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def log(clock: ManualClock) -> JobProgress:
    return JobProgress("usage", clock)


@pytest.fixture
def terminal(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> JobProgress:
    monkeypatch.setattr(job_progress, "is_terminal", lambda: True)
    return JobProgress("usage", clock)


def test_log_gets_a_line_every_ten_seconds_and_one_at_the_end(
    log: JobProgress, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    for done in range(25):
        log(stage(done))
        clock.advance(1)
    log(stage(7, "write"))
    log.close()

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert [(line["name"], line["done"], line.get("seconds")) for line in lines] == [
        ("read", 0, None),
        ("read", 10, None),
        ("read", 20, None),
        ("read", 24, 25.0),
        ("write", 7, None),
        ("write", 7, 0.0),
    ]


def test_log_gets_everything_else_at_once(log: JobProgress, capsys: pytest.CaptureFixture[str]) -> None:
    log(Note("two are damaged"))
    log(Done({"rows": 7}))
    log.close()

    lines = [json.loads(line) for line in capsys.readouterr().err.splitlines()]
    assert lines == [
        {"job": "usage", "event": "note", "text": "two are damaged"},
        {"job": "usage", "event": "done", "figures": {"rows": 7}},
    ]


def test_terminal_shows_rate_and_time_left_and_then_how_long_it_took(
    terminal: JobProgress, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal(stage(0))
    clock.advance(10)
    terminal(stage(50))
    terminal(Note("a name with \x1b[2J in it"))
    terminal(Done({"rows": 7}))
    terminal.close()

    said = capsys.readouterr().err
    assert "50 of 100 records (usage: read), 5 per second, 10 s left" in said
    assert "usage: read: 50 records in 10.0 s\n" in said
    assert "\x1b" not in said
    assert "rows" not in said


def test_stage_of_unknown_length_is_shown(
    terminal: JobProgress, clock: ManualClock, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nobody knows how much there is: at least how much there was."""
    terminal(Stage("trim", 0, 0, "records"))
    clock.advance(2)
    terminal(Stage("trim", 30, 0, "records"))
    terminal.close()

    assert "usage: trim: 30 records in 2.0 s" in capsys.readouterr().err
