"""What is said when the journal's folder cannot be used: what is there instead, and what to do."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub_services.queues.journal import segments
from iothub_services.queues.journal.segments import is_left, make_folder


def test_file_in_its_place_is_named_and_kept(tmp_path: Path) -> None:
    folder = tmp_path / "queues.journal"
    folder.write_text("x")

    with pytest.raises(BackendError) as raised:
        make_folder(folder)

    assert raised.value.fact == f"{folder} is a file, and the folder of the queues' journal was expected"
    assert raised.value.remedy.startswith("move the file away")
    assert folder.read_text() == "x"


def test_link_that_leads_nowhere_is_no_reason_to_lose_what_it_led_to(tmp_path: Path) -> None:
    """A disk that is not mounted, say; a hub without a journal does not start either, because it would leave messages there."""
    folder, target = tmp_path / "queues.journal", tmp_path / "disk" / "segments"
    folder.symlink_to(target)

    for look in (lambda: make_folder(folder), lambda: is_left(tmp_path / "queues.db")):
        with pytest.raises(BackendError) as raised:
            look()
        assert raised.value.fact == f"{folder} is a link to {target}, which is not there"
        assert "mount the disk" in raised.value.remedy

    target.mkdir(parents=True)
    make_folder(folder)
    assert not is_left(tmp_path / "queues.db")


@pytest.mark.parametrize(
    ("number", "remedy"),
    [
        (errno.EACCES, "make the data directory writable for the hub's user"),
        (errno.EROFS, "mounted read-only: mount it writable"),
        (errno.ENOSPC, "free some disk space first"),
    ],
)
def test_folder_that_cannot_be_made_says_why_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, remedy: str
) -> None:
    def mkdir(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(Path, "mkdir", mkdir)

    with pytest.raises(BackendError) as raised:
        make_folder(tmp_path / "queues.journal")

    assert f"is not there, and cannot be made: {os.strerror(number)}; " in str(raised.value)
    assert remedy in raised.value.remedy


def test_folder_that_cannot_be_looked_into_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_folder: Path) -> list[Path]:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(segments, "_segments_in", fail)

    with pytest.raises(BackendError, match="chown -R"):
        is_left(tmp_path / "queues.db")
