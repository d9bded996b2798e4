"""Makes a backup of a data directory, beside a running hub or without one.

Knows no hub: who can keep its files unchanged for a moment is given. Everything is copied in this process, from snapshots: the hub writes on.

Theory. A hub may be killed at any moment and loses nothing that it has acknowledged, so its files as of one moment are a backup. While they are
opened, nothing is committed to them, and nothing is written to the journal of the queues, whose segments are opened as well. Other processes,
commands and jobs, commit to `accounts.db` and `checkpoints.db` meanwhile: what is in the hub's own files was in the accounts before, so the accounts
may be later than they, never earlier. A job trims `events.db` after its checkpoint is made, so `events.db` is opened before `checkpoints.db`. Small
files are copied before the databases, for they may say less than those, never more (`applied-changes.json`); what is in folders is listed
afterwards, for it may be more (`archive/`).
"""

from __future__ import annotations

import io
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, NamedTuple, Protocol

from iothub.backup import files, manifest
from iothub.backup.files import MANIFEST, UNFINISHED, OnProgress, Tally
from iothub.backup.manifest import Entry, Manifest
from iothub.base.clock import Clock
from iothub.base.errors import ConflictError, UnavailableError
from iothub.config.datadir import DataDir
from iothub_services.metrics.probes import disk_free_bytes
from iothub_services.queues.journal import segments
from iothub_services.sqlite.salvage import FRESH_SUFFIX
from iothub_services.sqlite.snapshot import Snapshot

HOLDS = 3  # attempts to find the hub's files unchanged
_FOLDER_MODE = 0o700


class HubHold(Protocol):
    """A running hub that can leave its files unchanged for a moment."""

    def hold(self) -> str:
        """Begin; return the hold. Raises IotHubError."""

    def release(self, hold: str) -> bool:
        """End it. False: it has ended before. Raises IotHubError."""


@dataclass(frozen=True, slots=True)
class Order:
    """What is to be made. `hub`: None: no hub runs, and the caller holds the directory's lock."""

    data_dir: DataDir
    folder: Path
    program: str
    elsewhere: tuple[str, ...]
    hub: HubHold | None


def make(order: Order, clock: Clock, on_progress: OnProgress) -> Manifest:
    """Make the backup; an attempt that fails or is interrupted leaves nothing behind.

    Raises:
        ConflictError: the folder has files, or is in the data directory.
        UnavailableError: no room, no permission, a hub that does not answer, or a damaged file.
    """
    _require_repaired(order.data_dir)
    with _claimed(order.folder, order.data_dir), files.explained(order.folder):
        return _Copying(order, clock, on_progress).run()


def _require_repaired(data_dir: DataDir) -> None:
    """Raise UnavailableError when a start was interrupted while it copied the rows of a damaged file: the file may be missing."""
    if left := sorted(data_dir.path.glob(f"*.db{FRESH_SUFFIX}")):
        raise UnavailableError(
            f"{left[0]}: a start of the hub was interrupted while it repaired a damaged file: start the hub, then make the backup"
        )


class _Segment(NamedTuple):
    """An open segment of the queues' journal."""

    path: Path
    content: BinaryIO
    size_bytes: int  # that are copied
    modified_ns: int


class _Copying:
    """One backup. Invariant: no snapshot and no segment is open when `run` has ended."""

    def __init__(self, order: Order, clock: Clock, on_progress: OnProgress) -> None:
        self._order = order
        self._clock = clock
        self._entries: list[Entry] = []
        self._open: list[Snapshot] = []
        self._segments: list[_Segment] = []
        needed = self._require_room()
        self._tally = Tally(needed, on_progress)

    def run(self) -> Manifest:
        path = self._order.data_dir.path
        for file in files.files_in(path):
            self._copy_file(file)
        with ExitStack() as stack:
            self._open, cut_at = self._cut(stack)
            folders = [file for folder in files.folders_in(path) for file in files.files_below(folder)]
            self._tally.total = self._tally.done + sum(map(files.size_of, folders))
            self._tally.total += sum(segment.size_bytes for segment in self._segments)
            self._tally.total += sum(2 * snapshot.size_bytes for snapshot in self._open)  # copied, then read again
            copied = self._copy_snapshots()
            for segment in self._segments:
                self._copy_segment(segment)
        for entry, file in copied:
            self._entries.append(self._hashed(entry, file))
        for file in folders:
            self._copy_file(file)
        return self._finish(cut_at)

    def _finish(self, cut_at: datetime) -> Manifest:
        order = self._order
        for folder in (order.folder, *(path for path in order.folder.rglob("*") if path.is_dir())):
            files.sync(folder)
        entries = tuple(sorted(self._entries, key=lambda entry: entry.name))
        at = cut_at.isoformat(timespec="milliseconds")
        made = Manifest(
            order.program, at, str(order.data_dir.path.resolve()), order.hub is not None, entries, order.elsewhere
        )
        manifest.write(order.folder, made)
        return made

    # --- room

    def _require_room(self) -> int:
        """Return how many bytes are to be read; set a limit for the logs. Raises UnavailableError."""
        path, folder = self._order.data_dir.path, self._order.folder
        held = list(files.databases(self._order.data_dir))
        stored = sum(files.size_of(file) + files.size_of(file.with_name(file.name + "-wal")) for file in held)
        plain = sum(files.size_of(file) for file in files.files_in(path))
        plain += sum(files.size_of(file) for sub in files.folders_in(path) for file in files.files_below(sub))
        plain += sum(size_bytes for _, size_bytes in self._segments_there())
        needed, free = stored + plain, disk_free_bytes(folder)
        if needed > free:
            raise UnavailableError(
                f"{folder}: the backup needs up to {needed} bytes, {free} bytes are free: free some space, or name a folder on another disk"
            )
        left = disk_free_bytes(path) - (needed if path.stat().st_dev == folder.stat().st_dev else 0)
        logs = sum(files.size_of(file.with_name(file.name + "-wal")) for file in held)
        self._log_limit_bytes = logs + max(left, 0) // 2
        return 2 * stored + plain

    def _segments_there(self) -> list[tuple[Path, int]]:
        return segments.to_copy(self._order.data_dir.queues, is_held=self._order.hub is not None)

    def _require_short_logs(self) -> None:
        """The hub must not run out of disk because somebody makes a backup."""
        if sum(snapshot.log_bytes() for snapshot in self._open) > self._log_limit_bytes:
            raise UnavailableError(
                f"the backup is too slow: the files *.db-wal in {self._order.data_dir.path} have taken half of the free disk space "
                "meanwhile, and shrink again when it ends: free some space, use a faster disk for the backup, or make it at a quieter time"
            )

    # --- the moment

    def _cut(self, stack: ExitStack) -> tuple[list[Snapshot], datetime]:
        """Open every file as of one moment; closed with `stack`. Whatever was acknowledged before the returned time is in them."""
        hub = self._order.hub
        for _ in range(HOLDS):
            with ExitStack() as attempt:
                at = datetime.fromtimestamp(self._clock.wall(), UTC)
                hold = "" if hub is None else hub.hold()
                try:
                    found = [_opened(file, attempt) for file in files.databases(self._order.data_dir)]
                    self._segments = list(_opened_segments(self._segments_there(), attempt))
                finally:
                    is_whole = hub is None or hub.release(hold)
                if is_whole:
                    stack.push(attempt.pop_all())
                    return found, at
        raise UnavailableError(
            "the hub's files could not be opened within the time for which it keeps them unchanged: the machine or the disk is overloaded; try again"
        )

    # --- copying

    def _copy_snapshots(self) -> list[tuple[Entry, Path]]:
        """Copy each and let it go at once: its log may be used anew then."""
        copied = []
        while self._open:
            snapshot = self._open[0]
            name = snapshot.path.relative_to(self._order.data_dir.path)
            target = self._order.folder / name
            target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            before, facts = self._tally.done, snapshot.path.stat()

            def on_step(done: int, before: int = before) -> None:
                self._tally.reach(before + done)
                self._require_short_logs()

            os.close(os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
            snapshot.copy_to(target, on_step)
            snapshot.close()
            self._open.pop(0)
            files.sync(target)
            mode = facts.st_mode & 0o777
            copied.append(
                (Entry(str(name), files.size_of(target), "", mode, facts.st_mtime_ns, snapshot.version), target)
            )
        return copied

    def _copy_segment(self, segment: _Segment) -> None:
        """Copy what was opened: the hub may have deleted the file meanwhile."""
        name = segment.path.relative_to(self._order.data_dir.path)
        target = self._order.folder / name
        target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        found = files.copy_open(segment.content, target, self._tally)
        self._entries.append(Entry(str(name), files.size_of(target), found, 0o600, segment.modified_ns, 0))

    def _hashed(self, entry: Entry, file: Path) -> Entry:
        found = files.hash_of(file, self._tally)
        file.chmod(entry.mode)
        return Entry(entry.name, entry.size_bytes, found, entry.mode, entry.modified_ns, entry.schema)

    def _copy_file(self, file: Path) -> None:
        """Copy one file that is no database of the hub; one that has gone meanwhile is left out."""
        name = file.relative_to(self._order.data_dir.path)
        target = self._order.folder / name
        with suppress(FileNotFoundError):
            facts = file.stat()
            file.open("rb").close()
            target.parent.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
            found = files.copy(file, target, self._tally)
            os.utime(target, ns=(facts.st_mtime_ns, facts.st_mtime_ns))
            mode = facts.st_mode & 0o777
            target.chmod(mode)
            self._entries.append(Entry(str(name), files.size_of(target), found, mode, facts.st_mtime_ns, 0))


def _opened(file: Path, stack: ExitStack) -> Snapshot:
    snapshot = Snapshot(file)
    stack.callback(snapshot.close)
    return snapshot


def _opened_segments(wanted: list[tuple[Path, int]], stack: ExitStack) -> Iterator[_Segment]:
    """Open segments; of one that is copied in part, that part is read at once. One that has gone shows that the hold is over, as its release does."""
    for path, size_bytes in wanted:
        with suppress(FileNotFoundError):
            content: BinaryIO = stack.enter_context(path.open("rb"))
            facts = os.fstat(content.fileno())
            if size_bytes < facts.st_size:
                content = io.BytesIO(content.read(size_bytes))
            yield _Segment(path, content, size_bytes, facts.st_mtime_ns)


# --- the folder of the backup


@contextmanager
def _claimed(folder: Path, data_dir: DataDir) -> Iterator[None]:
    """Have an empty folder for oneself; what was put into it is removed if the work fails. Raises ConflictError, UnavailableError."""
    if folder.resolve().is_relative_to(data_dir.path.resolve()):
        raise ConflictError(
            f"{folder} is in the data directory {data_dir.path}: name a folder elsewhere, best on another disk"
        )
    with files.explained(folder):
        is_new = not folder.exists()
        folder.mkdir(mode=_FOLDER_MODE, parents=True, exist_ok=True)
        _claim(folder)
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for path in folder.iterdir():
                shutil.rmtree(path) if path.is_dir() else path.unlink()
            if is_new:
                folder.rmdir()
        raise
    with suppress(OSError):
        (folder / UNFINISHED).unlink()


def _claim(folder: Path) -> None:
    """Raises ConflictError: it has files, or another backup is being made there. OSError."""
    names = {path.name for path in folder.iterdir()}
    if MANIFEST in names:
        raise ConflictError(f"{folder} has a backup already: name a new folder")
    if names - {UNFINISHED}:
        raise _taken(folder) if UNFINISHED in names else ConflictError(f"{folder} is not empty: name a new folder")
    try:
        os.close(os.open(folder / UNFINISHED, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        raise _taken(folder) from None


def _taken(folder: Path) -> ConflictError:
    return ConflictError(
        f"{folder}: another backup is being made there, or was killed: name a new folder, or remove this one"
    )
