"""Puts a backup into a data directory: its hashes first, then its files, then their names.

Knows no store. The caller holds the directory's lock when files are put there.

Invariant: nothing of a data directory is changed before every file of the backup lies in it, synced. From there on until the end a mark keeps
hubs and commands away; what was there is moved, never deleted.
"""

from __future__ import annotations

import os
import shutil
from datetime import UTC, datetime, timedelta
from pathlib import Path

from iothub.backup import files
from iothub.backup.files import OnProgress, Tally
from iothub.backup.manifest import Entry, Manifest
from iothub.base.clock import Clock
from iothub.base.errors import ConflictError, CorruptRecordError, UnavailableError
from iothub.config.datadir import STAGED, UNFINISHED_RESTORE, DataDir
from iothub.config.sections import Config
from iothub.hub.stores.choices import file_versions
from iothub_services.metrics.probes import disk_free_bytes

_FOLDER_MODE = 0o700
_STAYS = {"lock", STAGED, UNFINISHED_RESTORE, "lost+found"}


def require_sound(folder: Path, manifest: Manifest, on_progress: OnProgress) -> None:
    """See that every file of a backup is there, whole, and known to this program.

    Raises:
        CorruptRecordError: a file is missing or another one than was written.
        ConflictError: a newer program has made it.
        UnavailableError: it cannot be read.
    """
    known = {file.name: version for file, version in file_versions(Config(), DataDir(folder)).items()}
    tally = Tally(manifest.size_bytes, on_progress)
    with files.explained(folder):
        for entry in manifest.files:
            if entry.schema > known.get(entry.name, entry.schema):
                raise ConflictError(
                    f"{folder / entry.name} has schema version {entry.schema}, this program knows up to {known[entry.name]}: "
                    f"restore it with iothub {manifest.program} or newer"
                )
            _require_whole(folder / entry.name, entry, tally)


def _require_whole(file: Path, entry: Entry, tally: Tally) -> None:
    if not file.is_file():
        raise CorruptRecordError(f"{file} is missing, and belongs to the backup: use another backup")
    if file.stat().st_size != entry.size_bytes or files.hash_of(file, tally) != entry.sha256:
        raise CorruptRecordError(f"{file} is damaged: it is not what the backup has written; use another backup")


def entries_to_replace(data_dir: DataDir) -> list[Path]:
    """Return what a restore replaces. Raises UnavailableError."""
    data_dir.require_directory()
    with files.explained(data_dir.path):
        if not data_dir.path.exists():
            return []
        return sorted(
            path for path in data_dir.path.iterdir() if path.name not in _STAYS and not files.is_replaced(path)
        )


def restore(folder: Path, manifest: Manifest, data_dir: DataDir, clock: Clock, on_progress: OnProgress) -> Path | None:
    """Put the backup in the place of what is in the directory, whose lock is held; return where that is now, None: nothing was there.

    It may be repeated after a crash, whatever that has left.

    Raises:
        CorruptRecordError: a file of the backup has changed meanwhile; nothing is changed.
        UnavailableError: no room, or no permission.
    """
    with files.explained(data_dir.path):
        _remove(data_dir.staged_files)
        require_room(data_dir, manifest)
        try:
            _stage(folder, manifest, data_dir.staged_files, on_progress)
        except BaseException:
            _remove(data_dir.staged_files)
            raise
        was_unfinished = data_dir.unfinished_restore.exists()
        data_dir.unfinished_restore.touch(0o600)
        files.sync(data_dir.path)
        try:
            replaced = _move_aside(data_dir, clock)
        except UnavailableError:  # what was moved is back
            _remove(data_dir.staged_files)
            if not was_unfinished:
                data_dir.unfinished_restore.unlink()
            raise
        for path in data_dir.staged_files.iterdir():
            path.rename(data_dir.path / path.name)
        data_dir.staged_files.rmdir()
        files.sync(data_dir.path)
        data_dir.unfinished_restore.unlink()
        files.sync(data_dir.path)
    return replaced


def require_room(data_dir: DataDir, manifest: Manifest) -> None:
    """Raise UnavailableError if the backup has more bytes than are free, or will be when what an earlier restore has left is removed."""
    with files.explained(data_dir.path):
        free = disk_free_bytes(next(path for path in (data_dir.path, *data_dir.path.parents) if path.exists()))
        free += sum(path.stat().st_size for path in data_dir.staged_files.rglob("*") if path.is_file())
    if manifest.size_bytes > free:
        raise UnavailableError(
            f"{data_dir.path}: the backup has {manifest.size_bytes} bytes, {free} bytes are free: free some space; nothing was changed"
        )


def _stage(folder: Path, manifest: Manifest, staged: Path, on_progress: OnProgress) -> None:
    """Copy every file, with its mode and time; all synced."""
    tally = Tally(manifest.size_bytes, on_progress)
    staged.mkdir(mode=_FOLDER_MODE)
    for entry in manifest.files:
        target = staged / entry.name
        target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        if files.copy(folder / entry.name, target, tally) != entry.sha256:
            raise CorruptRecordError(f"{folder / entry.name} has changed while it was restored; nothing was changed")
        os.utime(target, ns=(entry.modified_ns, entry.modified_ns))
        target.chmod(entry.mode)
        files.sync(target)
    for path in (staged, *(path for path in staged.rglob("*") if path.is_dir())):
        files.sync(path)


def _move_aside(data_dir: DataDir, clock: Clock) -> Path | None:
    """Move what is there into a folder of its own. Raises UnavailableError: something cannot be moved, and all is where it was."""
    found = entries_to_replace(data_dir)
    if not found:
        return None
    aside = _new_folder(data_dir, clock)
    moved: list[Path] = []
    try:
        for path in found:
            path.rename(aside / path.name)
            moved.append(path)
    except OSError as error:
        for path in moved:
            (aside / path.name).rename(path)
        aside.rmdir()
        raise UnavailableError(
            f"{found[len(moved)]}: cannot be moved ({error.strerror}): is it a mount point? Unmount it first; nothing was changed"
        ) from None
    files.sync(aside)
    return aside


def _new_folder(data_dir: DataDir, clock: Clock) -> Path:
    """Make a folder that nothing was moved to before: a rename replaces a file of the same name, and nothing may be lost."""
    at = datetime.fromtimestamp(clock.wall(), UTC)
    while True:
        folder = data_dir.path / f"replaced-{at:%Y%m%dT%H%M%SZ}"
        try:
            folder.mkdir(mode=_FOLDER_MODE)
        except FileExistsError:
            at += timedelta(seconds=1)
        else:
            return folder


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
