"""The files of a data directory that belong into a backup, and how files are copied and errors of the operating system are said.

Knows no manifest.
"""

from __future__ import annotations

import errno
import hashlib
import os
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from iothub.base.errors import UnavailableError
from iothub.config.datadir import RUN, STAGED, UNFINISHED_RESTORE, WORKERS, DataDir
from iothub_services.metrics.probes import disk_free_bytes
from iothub_services.queues.journal.segments import folder_of

MANIFEST = "backup.json"
UNFINISHED = "backup-unfinished"  # in a backup's folder while it is being made
_REPLACED = re.compile(r"replaced-\d{8}T\d{6}Z")  # what a restore has moved aside
_TEMPORARY = re.compile(r"\..+-[a-z0-9_]{8}")  # of `iothub.config.datadir.write_atomically`
_LEFT = re.compile(r".+\.db\.(corrupt-.+|salvaged)")  # of a damaged database
_OF_A_PROCESS = {
    "lock",
    "hub.json",
    "api.json",
    "api-restarts.json",
    "reloaded",
    "admin.sock",
    "init-unfinished",
    "usage.map",
    "webhooks.db",  # events that wait to be delivered: a hub that is restored must not deliver them again
    "webhooks.db-wal",
    "webhooks.db-shm",
    "jobs",
    "lost+found",
    RUN,
    STAGED,
    UNFINISHED_RESTORE,
}
_USAGE = "usage.db"  # also of each worker; and beside it, `usage.db-wal`
_PIECE_BYTES = 1 << 20

OnProgress = Callable[[int, int], None]
"""Called with the bytes that are done and those that there are."""


class Tally:
    """Counts bytes, and reports them."""

    def __init__(self, total: int, on_progress: OnProgress) -> None:
        self.done = 0
        self.total = total
        self._on_progress = on_progress

    def __call__(self, size_bytes: int) -> None:
        """Count bytes that were read."""
        self.reach(self.done + size_bytes)

    def reach(self, done: int) -> None:
        """Count up to a number."""
        self.done = done
        self._on_progress(min(done, self.total), self.total)  # a file may have grown since they were added up


def databases(data_dir: DataDir) -> Iterator[Path]:
    """Yield the SQLite files that are there, in the order in which they are opened; whether one is there is found when it is its turn."""
    return (file for file in _databases_of(data_dir) if size_of(file))


def files_in(path: Path) -> list[Path]:
    """Return the files beside the databases that belong into a backup."""
    own = {f"{file.name}{end}" for file in _databases_of(DataDir(path)) for end in ("", "-wal", "-shm")}
    return sorted(file for file in path.iterdir() if file.is_file() and file.name not in own and _is_kept(file.name))


def folders_in(path: Path) -> list[Path]:
    """Return the folders that do, but for the journal of the queues, which belongs to its database."""
    journal = folder_of(DataDir(path).queues)
    return sorted(
        folder for folder in path.iterdir() if folder.is_dir() and folder != journal and _is_kept(folder.name)
    )


def files_below(folder: Path) -> list[Path]:
    """Return its files, at any depth; folders behind a symbolic link are not entered. Of workers: without what a process leaves, and databases."""
    found = (Path(where) / name for where, _, names in os.walk(folder) for name in names)
    if folder.name == WORKERS:
        found = (file for file in found if _is_kept(file.name) and not file.name.startswith(_USAGE))
    return sorted(file for file in found if file.is_file())


def hash_of(file: Path, tally: Tally) -> str:
    """Return the SHA-256 of a file. Raises OSError."""
    found = hashlib.sha256()
    with file.open("rb") as source:
        while piece := source.read(_PIECE_BYTES):
            found.update(piece)
            tally(len(piece))
    return found.hexdigest()


def copy(source: Path, target: Path, tally: Tally) -> str:
    """Copy a file's content to a new file that only its owner can read, synced; return its SHA-256. Raises OSError."""
    with source.open("rb") as old:
        return copy_open(old, target, tally)


def copy_open(old: BinaryIO, target: Path, tally: Tally) -> str:
    """Do the same with what is left to read of an open file. Raises OSError."""
    found = hashlib.sha256()
    with open(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
        while piece := old.read(_PIECE_BYTES):
            found.update(piece)
            new.write(piece)
            tally(len(piece))
        new.flush()
        os.fsync(new.fileno())
    return found.hexdigest()


def size_of(file: Path) -> int:
    """Return a file's size; 0: it is not there."""
    try:
        return file.stat().st_size
    except FileNotFoundError:
        return 0


def sync(path: Path) -> None:
    """Let a file's content, or the names in a folder, survive a power cut. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def is_replaced(path: Path) -> bool:
    """Is it what a restore has moved aside?"""
    return _REPLACED.fullmatch(path.name) is not None


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Describe an operating-system error in one line that names the path. Raises UnavailableError."""
    try:
        yield
    except OSError as error:
        where = error.filename if isinstance(error.filename, str) else str(folder)
        if error.errno in {errno.ENOSPC, errno.EDQUOT}:
            with suppress(OSError):
                where = f"{where} ({disk_free_bytes(folder)} bytes free)"
            raise UnavailableError(
                f"{where}: the disk is full: free some space, or name a folder on another disk"
            ) from None
        raise UnavailableError(f"{where}: {error.strerror or error}") from None


def _databases_of(data_dir: DataDir) -> tuple[Path, ...]:
    written_by_jobs = (data_dir.events, data_dir.checkpoints)  # this one first
    stores = (data_dir.state, data_dir.queues, data_dir.retained, data_dir.usage)
    return (*written_by_jobs, *stores, *(worker.usage for worker in data_dir.workers()), data_dir.accounts)


def _is_kept(name: str) -> bool:
    """Neither of a process that runs, nor what a damaged file, a restore, an interrupted write or a backup that was copied here has left."""
    is_left = any(pattern.fullmatch(name) for pattern in (_LEFT, _REPLACED, _TEMPORARY))
    return not (is_left or name in _OF_A_PROCESS or name in {MANIFEST, UNFINISHED})
