"""Restores: nothing is changed before all is there and right, and what was there is kept."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import stat
from pathlib import Path

import pytest

from iothub.backup import files, manifest, restoring
from iothub.base.errors import ConflictError, CorruptRecordError, NotFoundError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.testing.clock import ManualClock
from tests.unit.backup.conftest import Make, Things, rows


def unheard(_done: int, _of: int) -> None:
    """Nobody watches."""


def names(data_dir: DataDir) -> list[str]:
    return sorted(str(path.relative_to(data_dir.path)) for path in data_dir.path.rglob("*") if path.is_file())


@pytest.fixture
def backup(things: Things, make: Make, tmp_path: Path) -> Path:
    (things.data_dir.path / "archive").mkdir()
    (things.data_dir.path / "archive" / "1.parquet").write_bytes(b"events")
    things.data_dir.heartbeat_file.touch()
    os.utime(things.data_dir.heartbeat_file, (5, 5))
    make()
    return tmp_path / "backup"


@pytest.fixture
def target(tmp_path: Path) -> DataDir:
    data_dir = DataDir(tmp_path / "restored")
    data_dir.make_directory()
    return data_dir


ALL = ["archive/1.parquet", "events.db", "heartbeat", "pepper", "queues.db"]


def test_restored_files_are_those_of_the_backup(backup: Path, target: DataDir) -> None:
    replaced = restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)

    assert replaced is None
    assert names(target) == ALL
    assert [rows(target.queues), rows(target.events)] == [1, 1]
    assert stat.S_IMODE(target.pepper_file.stat().st_mode) == 0o600
    assert target.last_heartbeat() == 5


def test_what_was_there_is_moved(backup: Path, target: DataDir) -> None:
    """The lock stays: the caller holds it."""
    target.lock_file.touch()
    target.pepper_file.write_text("old")
    (target.path / "archive").mkdir()
    (target.path / "archive" / "0.parquet").touch()

    first = restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)
    second = restoring.restore(backup, manifest.read(backup), target, ManualClock(wall=1e9), unheard)

    assert first is not None
    assert second is not None
    assert sorted(str(path.relative_to(first)) for path in first.rglob("*")) == [
        "archive",
        "archive/0.parquet",
        "pepper",
    ]
    assert (first / "pepper").read_text() == "old"
    assert sorted(path.name for path in second.iterdir()) == [
        "archive",
        "events.db",
        "heartbeat",
        "pepper",
        "queues.db",
    ]
    assert [path.name for path in restoring.entries_to_replace(target)] == [
        path.name for path in sorted(second.iterdir())
    ]


def test_two_restores_within_a_second_keep_what_each_has_moved(backup: Path, target: DataDir) -> None:
    """The folder has the time in its name: the second one must not move its files over those of the first."""
    target.pepper_file.write_text("old")

    first = restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)
    second = restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)

    assert first is not None
    assert second is not None
    assert (first / "pepper").read_text() == "old"
    assert (second / "pepper").stat().st_size == 32
    assert not any(files.is_replaced(path) for path in restoring.entries_to_replace(target))


def test_damaged_backup_is_refused(backup: Path) -> None:
    found = manifest.read(backup)
    restoring.require_sound(backup, found, unheard)
    content = (backup / "pepper").read_bytes()

    (backup / "pepper").write_bytes(content[:-1] + b"x")
    with pytest.raises(CorruptRecordError, match=r"pepper is damaged: it is not what the backup has written"):
        restoring.require_sound(backup, found, unheard)
    (backup / "pepper").write_bytes(content + b"x")
    with pytest.raises(CorruptRecordError, match=r"pepper is damaged"):
        restoring.require_sound(backup, found, unheard)
    (backup / "pepper").unlink()
    with pytest.raises(CorruptRecordError, match=r"pepper is missing"):
        restoring.require_sound(backup, found, unheard)


def test_backup_of_a_newer_program_is_refused(backup: Path) -> None:
    found = manifest.read(backup)
    entries = [dataclasses.replace(entry, schema=99) if entry.schema else entry for entry in found.files]

    with pytest.raises(
        ConflictError, match=r"events\.db has schema version 99, .* restore it with iothub 1\.2\.3 or newer"
    ):
        restoring.require_sound(backup, dataclasses.replace(found, files=tuple(entries)), unheard)


def test_file_that_changes_during_the_restore_changes_nothing(backup: Path, target: DataDir) -> None:
    target.pepper_file.write_text("old")
    found = manifest.read(backup)
    (backup / "queues.db").write_bytes(b"other")

    with pytest.raises(CorruptRecordError, match="has changed"):
        restoring.restore(backup, found, target, ManualClock(), unheard)

    assert names(target) == ["pepper"]
    assert target.pepper_file.read_text() == "old"


def test_interrupted_copy_changes_nothing(backup: Path, target: DataDir) -> None:
    target.pepper_file.write_text("old")

    def stop(_done: int, _of: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        restoring.restore(backup, manifest.read(backup), target, ManualClock(), stop)

    assert names(target) == ["pepper"]


def test_no_room_changes_nothing(backup: Path, target: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restoring, "disk_free_bytes", lambda _path: 1000)

    with pytest.raises(UnavailableError, match=r"has \d+ bytes, 1000 bytes are free: .*; nothing was changed"):
        restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)

    assert names(target) == []


def test_what_an_earlier_restore_has_left_is_room(
    backup: Path, target: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = manifest.read(backup)
    target.staged_files.mkdir()
    (target.staged_files / "rest").write_bytes(bytes(1000))
    monkeypatch.setattr(restoring, "disk_free_bytes", lambda _path: found.size_bytes - 1000)

    restoring.require_room(target, found)

    (target.staged_files / "rest").write_bytes(bytes(999))
    with pytest.raises(UnavailableError, match="bytes are free"):
        restoring.require_room(target, found)


@pytest.mark.parametrize("renames", range(6))
def test_crash_between_two_renames_keeps_hubs_away_and_is_repaired(
    backup: Path, target: DataDir, monkeypatch: pytest.MonkeyPatch, renames: int
) -> None:
    """Killed at any of them: a hub refuses to start until the restore was run again, and nothing is lost."""
    target.pepper_file.write_text("old")
    left, rename = iter(range(renames)), Path.rename

    def crash_later(path: Path, to: Path) -> Path:
        if next(left, None) is None:
            raise SystemExit
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", crash_later)
    with pytest.raises(SystemExit):
        restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)
    monkeypatch.undo()
    with pytest.raises(UnavailableError, match="a restore was interrupted here; run `iothub restore` again"):
        target.require_initialised()
    with pytest.raises(UnavailableError, match="a restore was interrupted here"):
        target.require_fresh()

    restoring.restore(backup, manifest.read(backup), target, ManualClock(wall=1e9), unheard)

    assert [name for name in names(target) if not name.startswith("replaced-")] == ALL
    assert len(target.pepper()) == 32
    assert any(file.read_text() == "old" for file in target.path.glob("replaced-*/pepper") if file.stat().st_size == 3)


def test_file_that_cannot_be_moved_changes_nothing(
    backup: Path, target: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mount point, such as a configuration that a container has from outside: the hub starts as before."""
    target.config_file.write_text("mounted")
    target.accounts.write_text("old")
    target.pepper_file.write_text("old")
    _refuse_to_move(target.config_file, monkeypatch)

    with pytest.raises(
        UnavailableError, match=r"iothub\.toml: cannot be moved \(Device or resource busy\).*nothing was changed"
    ):
        restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)

    assert sorted(path.name for path in target.path.iterdir()) == ["accounts.db", "iothub.toml", "pepper"]
    assert target.accounts.read_text() == "old"


def test_file_that_cannot_be_moved_after_a_crash_keeps_the_mark(
    backup: Path, target: DataDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Files of before and of the backup may be mixed."""
    target.config_file.write_text("mounted")
    target.unfinished_restore.touch()
    _refuse_to_move(target.config_file, monkeypatch)

    with pytest.raises(UnavailableError, match=r"iothub\.toml: cannot be moved"):
        restoring.restore(backup, manifest.read(backup), target, ManualClock(), unheard)

    assert sorted(path.name for path in target.path.iterdir()) == ["iothub.toml", "restore-unfinished"]


def _refuse_to_move(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rename = Path.rename

    def refuse(path: Path, to: Path) -> Path:
        if path == file:
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY), str(path), None, str(to))
        return rename(path, to)

    monkeypatch.setattr(Path, "rename", refuse)


@pytest.mark.parametrize("name", ["/etc/passwd", "../pepper", "a/../../pepper", ""])
def test_manifest_leads_nowhere_else(backup: Path, name: str) -> None:
    content = json.loads((backup / files.MANIFEST).read_text())
    content["files"][0]["name"] = name
    (backup / files.MANIFEST).write_text(json.dumps(content))

    with pytest.raises(CorruptRecordError, match="leads out of the data directory"):
        manifest.read(backup)


MANIFEST_OF = '{"version": 1, "program": "", "cut_at": "", "data_dir": "", "is_hub_running": true, "files": %s}'


@pytest.mark.parametrize(
    ("text", "error", "said"),
    [
        ('{"version": 2}', ConflictError, "this program knows up to 1"),
        (" \n", CorruptRecordError, "it is empty"),
        ('{\n"version"', CorruptRecordError, "it is no JSON at line 2, column 10"),
        ("\udcff{}", CorruptRecordError, "it is no UTF-8 text"),
        ("[" * 100_000, CorruptRecordError, "its JSON is nested too deeply"),
        ("[1]", CorruptRecordError, "expected an object with 'version', got [1]"),
        ('{"version": true}', CorruptRecordError, "'version' is not a number: true"),
        ('{"version": 1}', CorruptRecordError, "'program' is missing"),
        (MANIFEST_OF % '"x"', CorruptRecordError, "'files' is not a list: \"x\""),
        (MANIFEST_OF % "[7]", CorruptRecordError, "expected an object with 'name', got 7"),
        (MANIFEST_OF % '[{"name": "a", "size_bytes": "b"}]', CorruptRecordError, "'size_bytes' is not a number: \"b\""),
    ],
)
def test_manifest_that_cannot_be_read_is_refused(backup: Path, text: str, error: type[Exception], said: str) -> None:
    """In words: which file, what is wrong with it, what to do."""
    (backup / files.MANIFEST).write_text(text, errors="surrogateescape")

    with pytest.raises(error) as found:
        manifest.read(backup)

    assert said in str(found.value)
    if error is CorruptRecordError:
        assert str(found.value) == f"{backup / files.MANIFEST} is damaged: {said}; use another backup"


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("mode", 0o6777, "'mode' is 3583, expected a number from 0 to 511"),
        ("mode", -5, "'mode' is -5, expected a number from 0 to 511"),
        (
            "modified_ns",
            1 << 63,
            "'modified_ns' is 9223372036854775808, expected a number from 0 to 9223372036854775807",
        ),
        ("size_bytes", -1, "'size_bytes' is -1, expected"),
    ],
)
def test_manifest_with_a_number_that_no_file_has_is_refused(backup: Path, field: str, value: int, said: str) -> None:
    content = json.loads((backup / files.MANIFEST).read_text())
    content["files"][0][field] = value
    (backup / files.MANIFEST).write_text(json.dumps(content))

    with pytest.raises(CorruptRecordError, match=said):
        manifest.read(backup)


def test_manifest_that_names_not_every_database_once_is_refused(backup: Path) -> None:
    """It was cut or edited: a restore would leave something out, or fail in the middle."""
    content = json.loads((backup / files.MANIFEST).read_text())
    whole = content["files"]
    without = [entry for entry in whole if entry["name"] != "queues.db"]

    for entries, said in (
        ([], "it names no file"),
        (without, r"it does not name queues\.db, which is there"),
        ([*whole, whole[0]], "it names '.*' twice"),
    ):
        content["files"] = entries
        (backup / files.MANIFEST).write_text(json.dumps(content))
        with pytest.raises(CorruptRecordError, match=said):
            manifest.read(backup)


def test_manifest_that_is_no_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / files.MANIFEST).mkdir()

    with pytest.raises(UnavailableError, match=r"backup\.json: cannot be read"):
        manifest.read(tmp_path)
    with pytest.raises(NotFoundError):
        manifest.read(tmp_path / files.MANIFEST / "below")
