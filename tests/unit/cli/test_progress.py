"""Rate and time left, rarely enough."""

from __future__ import annotations

import sys

import pytest

from iothub.cli.progress import Progress, StagedProgress
from iothub.testing.clock import ManualClock


def run(clock: ManualClock, seconds: int, per_s: int = 20, of: int = 100_000) -> None:
    with Progress("passwords hashed", clock) as progress:
        for second in range(1, seconds + 1):
            clock.advance(1)
            progress(second * per_s, of)


def test_progress_is_said_every_ten_seconds_in_a_log(capsys: pytest.CaptureFixture[str]) -> None:
    run(ManualClock(), 25)

    assert capsys.readouterr().err.splitlines() == [
        "200 of 100000 passwords hashed, 20 per second, 1 h 23 min left",
        "400 of 100000 passwords hashed, 20 per second, 1 h 23 min left",
    ]


def test_work_that_has_done_nothing_yet_foretells_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run(ManualClock(), 10, per_s=0)

    assert capsys.readouterr().err == "0 of 100000 passwords hashed, 0 per second, time left unknown\n"


def test_short_work_is_silent(capsys: pytest.CaptureFixture[str]) -> None:
    run(ManualClock(), 9)

    assert capsys.readouterr().err == ""


def test_progress_stays_on_one_line_of_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once a second, over the line before, and at the end; what follows begins on its own."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "100")
    clock = ManualClock()
    with Progress("passwords hashed", clock) as progress:
        for step in range(1, 6):
            clock.advance(0.5)
            progress(step * 10, 100)

    said = capsys.readouterr().err
    assert said.count("\r") == 3
    assert f"\r[{'#' * 9}{' ' * 15}]  40 % 40 of 100 passwords hashed, 20 per second, 3 s left" in said
    assert said.endswith(f"\r[{'#' * 12}{' ' * 12}]  50 % 50 of 100 passwords hashed, 20 per second, 2 s left\n")
    assert said.count("\n") == 1


def test_work_that_goes_on_counts_what_it_does_itself(capsys: pytest.CaptureFixture[str]) -> None:
    """Where it begins is told; what was there before says nothing of the time left."""
    clock = ManualClock()
    with Progress("rows", clock) as progress:
        progress.begin(900)
        clock.advance(10)
        progress(950, 1000)
        clock.advance(100)
        progress.begin(0)
        clock.advance(10)
        progress(100, 1000)

    assert capsys.readouterr().err.splitlines() == [
        "950 of 1000 rows, 5 per second, 10 s left",
        "100 of 1000 rows, 10 per second, 1 min 30 s left",
    ]


@pytest.mark.parametrize(("columns", "bar"), [(70, f"[{'#' * 3}{' ' * 6}]  40 % "), (60, "")])
def test_bar_is_as_wide_as_the_terminal_lets_it(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, columns: int, bar: str
) -> None:
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", str(columns))
    run(ManualClock(), 2, of=100)

    said = capsys.readouterr().err.rpartition("\r")[2]
    assert said == f"{bar}40 of 100 passwords hashed, 20 per second, 3 s left\n"


@pytest.mark.parametrize(("of", "left"), [(1000, "40 s left"), (10_000, "8 min 10 s left")])
def test_time_left_has_two_units_at_most(capsys: pytest.CaptureFixture[str], of: int, left: str) -> None:
    run(ManualClock(), 10, of=of)

    assert capsys.readouterr().err.endswith(f"{left}\n")


def test_each_stage_has_a_line_and_a_rate_of_its_own(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short stage is shown, too, when the whole work is long."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "20")
    clock = ManualClock()

    with StagedProgress(clock) as progress:
        for what, per_report in (("secrets made", 10), ("devices written", 20)):
            for number in (1, 2, 3):
                progress.report(what, number * per_report, 100)
                clock.advance(0.5)

    first, second, *_ = capsys.readouterr().err.split("\n")
    assert first.endswith("30 of 100 secrets made, 13 per second, 5 s left")
    assert second.endswith("60 of 100 devices written, 30 per second, 1 s left")
    assert progress.last == "60 of 100 devices written"
