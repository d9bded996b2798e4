"""`iothub.jobs.places`: logs that are kept and bounded, a folder that goes with its run."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.base.errors import NotFoundError, UnavailableError
from iothub.jobs import places as module
from iothub.jobs.places import Places, RunLog


def test_folder_goes_with_its_run(places: Places) -> None:
    """Whatever ended it: the folder names secrets' files."""
    seen: list[Path] = []

    def run() -> None:
        with places.scratch(3) as folder:
            seen.append(folder)
            (folder / "spec.json").write_text("{}")
            assert folder.stat().st_mode & 0o077 == 0
            raise KeyError

    with pytest.raises(KeyError):
        run()

    assert [folder.exists() for folder in seen] == [False]


def test_folder_of_a_killed_run_is_removed_by_the_next(places: Places) -> None:
    with places.scratch(3) as folder:
        left = folder.rename(folder.with_name("kept"))
    left.rename(folder)

    with places.scratch(4):
        assert not folder.exists()


def test_log_keeps_the_newest_lines(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    """What matters most stands at its end."""
    monkeypatch.setattr(module, "LOG_LIMIT_BYTES", 100)
    with places.scratch(5):
        log = RunLog(places.log_file(5))
        for number in range(1000):
            log.write(b"line %04d\n" % number)
        log.close()
        log.write(b"too late\n")

    kept = places.read_log(5)
    assert kept.endswith(b"line 0999\n")
    assert 100 < len(kept) < 300
    assert log.last == "too late"


def test_logs_of_the_last_runs_are_kept(places: Places, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "KEPT_LOGS", 3)
    for run_id in (8, 9, 10, 11):
        with places.scratch(run_id):
            RunLog(places.log_file(run_id)).close()

    assert [places.log_file(run_id).exists() for run_id in (8, 9, 10, 11)] == [False, True, True, True]
    with pytest.raises(NotFoundError, match=r"run-8\.log: not found"):
        places.read_log(8)


def test_what_cannot_be_made_is_said(tmp_path: Path) -> None:
    (tmp_path / "jobs").write_text("a file")

    with pytest.raises(UnavailableError, match="cannot be created"), Places(tmp_path).scratch(1):
        pass
    with pytest.raises(UnavailableError, match="cannot be written"):
        RunLog(tmp_path / "none" / "log")
