"""Secrets that are told once: whole, private, and never over something else."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConflictError, UnavailableError
from iothub.cli.secrets_file import SecretsFile, SecretsOutput


def test_file_is_private_from_its_first_moment(tmp_path: Path) -> None:
    path = tmp_path / "secrets.csv"
    with SecretsFile(path) as file:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        file.write(["a,1", "b,2"])

    assert path.read_text() == "a,1\nb,2\n"


def test_name_that_is_taken_is_refused(tmp_path: Path) -> None:
    """Also a link to nowhere: following it would write where nobody looks."""
    (tmp_path / "mine").write_text("x")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    (tmp_path / "folder").mkdir()

    for name in ("mine", "link", "folder"):
        with pytest.raises(ConflictError, match="exists already and may contain secrets: name a new file; if a killed"):
            SecretsFile(tmp_path / name)
    assert (tmp_path / "mine").read_text() == "x"


def test_file_goes_with_what_it_is_for(tmp_path: Path) -> None:
    path = tmp_path / "secrets.csv"

    def fail() -> None:
        with SecretsFile(path) as file:
            file.write(["a,1"])
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        fail()

    assert not path.exists()


def test_file_stays_when_the_database_fails_after_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A commit whose answer was lost may have happened: then these are the only copies."""
    path = tmp_path / "secrets.csv"

    def fail(*lines: str) -> None:
        with SecretsFile(path) as file:
            if lines:
                file.write(lines)
            raise BackendError("server closed the connection unexpectedly", retryable=True)

    with pytest.raises(BackendError):
        fail()
    assert not path.exists()

    with pytest.raises(BackendError):
        fail("a,1")
    assert path.read_text() == "a,1\n"
    assert "is kept" in capsys.readouterr().err


def test_empty_file_of_a_killed_import_is_taken_over(tmp_path: Path) -> None:
    """Private, whoever made it; `kill -9` must not block the next run."""
    path = tmp_path / "secrets.csv"
    path.touch(0o644)

    with SecretsFile(path) as file:
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        file.write(["a,1"])

    assert path.read_text() == "a,1\n"


def test_file_of_an_import_that_runs_is_left_to_it(tmp_path: Path) -> None:
    """It is empty until everything is hashed."""
    path = tmp_path / "secrets.csv"
    with SecretsFile(path) as first:
        with pytest.raises(ConflictError, match="another import is writing"):
            SecretsFile(path)
        first.write(["a,1"])

    assert path.read_text() == "a,1\n"


def test_standard_output_takes_secrets(capsys: pytest.CaptureFixture[str]) -> None:
    with SecretsOutput() as secrets:
        secrets.write(["a,1", "b,2"])

    assert capsys.readouterr() == ("a,1\nb,2\n", "")


def test_disk_that_refuses_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    path = tmp_path / "secrets.csv"
    monkeypatch.setattr("os.fsync", refuse)
    with pytest.raises(UnavailableError, match="cannot be written: No space left"), SecretsFile(path) as file:
        file.write(["a,1"])

    assert not path.exists()
    with pytest.raises(UnavailableError, match="cannot be written"):
        SecretsFile(tmp_path / "no" / "secrets.csv")
