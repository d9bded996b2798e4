"""Files of the journal: preallocated segments, written and synced by one thread; what a failed sync means; what is read at a start.

Knows no record but how a group is framed (`records`). Calls of the operating system go through `Disk`, so that a test can lose what is not synced.

Invariant: after a failed write or sync nothing is written to that segment again. The kernel may have dropped the pages and forgotten the error,
so a later sync that succeeds proves nothing.

Invariant: a segment is followed by another one only when that says, as its first record, how far this one counts (CLOSED). A group that failed may
be on the disk all the same; without the mark a start would do it a second time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from iothub.base.errors import BackendError
from iothub_services.metrics.probes import disk_free_bytes
from iothub_services.queues.journal.encoding import GroupBuffer
from iothub_services.queues.journal.records import (
    HEADER_BYTES,
    ClosedRecord,
    Found,
    Record,
    Verdict,
    encode_header,
    salvage,
    scan,
)

SEGMENT_BYTES = 32 << 20
_SUFFIX = ".segment"
DAMAGED_SUFFIX = ".damaged"
_SPARE = "next.spare"  # a flushed segment, to be used again
_ZEROS = bytes(1 << 20)
_REMEDIES = {
    errno.ENOSPC: "free some disk space first",
    errno.EDQUOT: "free some disk space first",
    errno.EIO: "check the disk (`smartctl`, the kernel's log)",
    errno.EACCES: "make the folder writable for the hub's user",
    errno.EROFS: "the file system is mounted read-only: mount it writable, and see the kernel's log for why it is not",
}
_PRIVATE = 0o600


class Disk(Protocol):
    """What the journal asks of a file system. Every call raises OSError."""

    def create(self, path: Path, size_bytes: int) -> int:
        """Make a file of this size with blocks of its own, and sync it and its folder; return its descriptor.

        Blocks that were written once: else each sync of a group has to say as well that another block is in use.
        """

    def open(self, path: Path) -> int:
        """Return a descriptor of a file that is there."""

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...

    def close(self, descriptor: int) -> None: ...

    def read(self, path: Path) -> bytes: ...

    def remove(self, path: Path) -> None: ...

    def rename(self, path: Path, new: Path) -> None: ...

    def names(self, folder: Path) -> list[str]: ...

    def free_bytes(self, folder: Path) -> int: ...


class RealDisk:
    """Fulfils `Disk`. Writes and syncs run without the interpreter's lock."""

    def create(self, path: Path, size_bytes: int) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        try:
            for at in range(0, size_bytes, len(_ZEROS)):
                self.write(descriptor, _ZEROS[: size_bytes - at], at)
            os.fsync(descriptor)
            _sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        return descriptor

    def open(self, path: Path) -> int:
        return os.open(path, os.O_RDWR | os.O_CLOEXEC)

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwritev(descriptor, [view], at)
            view = view[written:]
            at += written

    def sync(self, descriptor: int) -> None:
        os.fdatasync(descriptor)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)
        _sync_folder(path.parent)

    def rename(self, path: Path, new: Path) -> None:
        path.rename(new)
        _sync_folder(path.parent)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def free_bytes(self, folder: Path) -> int:
        return disk_free_bytes(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def folder_of(tables: Path) -> Path:
    """Return where the segments are that belong to the file of the tables."""
    return tables.with_suffix(".journal")


def is_left(tables: Path) -> bool:
    """Whether there are segments: a hub has not put them into the tables."""
    folder = folder_of(tables)
    return folder.is_dir() and any(path.suffix == _SUFFIX for path in folder.iterdir())


class Loaded(NamedTuple):
    """A segment as a start finds it. `is_damaged`: `records` are those that are whole, and some are missing."""

    segment: int
    records: list[Found]
    is_damaged: bool


class Journal:
    """The segments of one folder. One thread.

    Invariants: `_at` is behind the last group that was synced, and nothing behind it counts. A segment that failed is not written again.
    """

    def __init__(self, folder: Path, disk: Disk, segment_bytes: int = SEGMENT_BYTES) -> None:
        self._folder = folder
        self._disk = disk
        self._segment_bytes = segment_bytes
        self._descriptor = -1
        self._is_poisoned = False
        self._at = 0
        self._first = 0  # behind what the segment begins with
        self._ends: dict[int, int] = {}  # of the earlier segments that are there
        self.segment = 0  # the one that is written, 0: none

    def numbers(self) -> list[int]:
        """Return the segments that are there, ascending. Raises BackendError."""
        try:
            found = self._disk.names(self._folder)
        except OSError as error:
            raise self._error(error, is_written=False) from error
        names = [name.removesuffix(_SUFFIX) for name in found if name.endswith(_SUFFIX)]
        return sorted(int(name) for name in names if name.isdigit())

    def load(self, flushed: int) -> list[Loaded]:
        """Read the segments above `flushed`, in their order, and begin a new one behind them. Raises BackendError.

        A segment that was flushed and is still there was to be deleted when the process died: it is deleted now.
        """
        try:
            return self._load(flushed)
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def _load(self, flushed: int) -> list[Loaded]:
        numbers = self.numbers()
        for number in numbers:
            if number <= flushed:
                self._disk.remove(self._path(number))
        numbers = [number for number in numbers if number > flushed]
        datas = {number: self._disk.read(self._path(number)) for number in numbers}
        scans = {number: scan(data, number) for number, data in datas.items()}
        ends: dict[int, int] = {}
        for begun in scans.values():
            for first in begun.records[:1]:
                if isinstance(first.record, ClosedRecord):
                    ends[first.record.segment] = first.record.end
        loaded = []
        for number in numbers:
            found = scans[number]
            end = ends.get(number)
            is_last = number == numbers[-1]
            if end is None:  # the last one; or its successor's first group was cut, and is then the last one itself
                is_damaged = found.verdict is Verdict.DAMAGED
                last = len(datas[number]) if is_damaged else found.end  # the next start looks at all of it again
            else:
                is_damaged = found.end < end
                last = end
            if is_last:
                self.segment, self._at = number, last
            records = salvage(datas[number][: end or len(datas[number])], number) if is_damaged else found.records
            kept = [each for each in records if (is_damaged or each.at < last) and not _is_closed(each)]
            loaded.append(Loaded(number, kept, is_damaged))
        self._begin(self.segment + 1 if self.segment else flushed + 1)
        return loaded

    def has_room(self, size_bytes: int) -> bool:
        """Whether the segment takes a group of this size; a fresh one takes any."""
        return self.is_fresh or self._at + size_bytes <= self._segment_bytes

    @property
    def is_fresh(self) -> bool:
        """Whether no group was written to the segment."""
        return self._at == self._first and not self._is_poisoned

    @property
    def is_poisoned(self) -> bool:
        """Whether a write or a sync of the segment has failed."""
        return self._is_poisoned

    def read_back(self, flushed: int) -> list[Found]:
        """Return the records of the segments above `flushed`, up to the last group that was written. Raises BackendError."""
        records: list[Found] = []
        try:
            for number in self.numbers():
                if flushed < number <= self.segment:
                    end = self._at if number == self.segment else self._ends[number]
                    found = scan(self._disk.read(self._path(number))[:end], number)
                    if found.end < end:
                        raise OSError(errno.EIO, f"segment {number} cannot be read back")
                    records += [each for each in found.records if not _is_closed(each)]
        except OSError as error:
            raise self._error(error, is_written=False) from error
        return records

    def group(self) -> GroupBuffer:
        """Return an empty group for where it will be written; a new segment begins behind one that failed. Raises BackendError."""
        if self._is_poisoned or self._descriptor < 0:
            self.next_segment()
        return GroupBuffer(self.segment, self._at)

    def write(self, group: GroupBuffer) -> int:
        """Make a group durable; return where it begins.

        Raises BackendError: it may be there at the next start, unless another segment is begun, which says that it does not count.
        """
        if self._is_poisoned or (group.segment, group.start) != (self.segment, self._at):
            raise AssertionError("a group is written where it was begun")
        data = group.finish()
        try:
            self._disk.write(self._descriptor, data, self._at)
            self._disk.sync(self._descriptor)
        except OSError as error:
            self._is_poisoned = True
            raise self._error(error, is_written=True) from error
        at = self._at
        self._at += len(data)
        return at

    def require_room(self) -> None:
        """Raise BackendError unless another segment, and what the tables take of this one, fit on the disk."""
        try:
            if self._disk.free_bytes(self._folder) < 2 * self._segment_bytes:
                raise OSError(errno.ENOSPC, "no room for another segment")
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def next_segment(self) -> int:
        """Begin another segment, which says where this one ends; return the number of the one that ended. Raises BackendError."""
        ended = self.segment
        try:
            self._begin(ended + 1)
        except OSError as error:
            self._is_poisoned = True  # what was begun may be there, and say that this one ends here
            raise self._error(error, is_written=False) from error
        return ended

    def delete(self, segment: int) -> None:
        """Remove a segment that is flushed, or keep its blocks for the next one. Raises BackendError."""
        path, spare = self._path(segment), self._folder / _SPARE
        try:
            if spare.name in self._disk.names(self._folder):
                self._disk.remove(path)
            else:
                self._disk.rename(path, spare)
        except OSError as error:
            raise self._error(error, is_written=True) from error

    def clear(self) -> None:
        """Remove what is left when everything is flushed. Raises BackendError."""
        try:
            for path in (self._path(self.segment), self._folder / _SPARE):
                if path.name in self._disk.names(self._folder):
                    self._disk.remove(path)
        except OSError as error:
            raise self._error(error, is_written=True) from error

    def set_aside(self, segment: int) -> str:
        """Keep a damaged segment that is flushed for whoever looks at it; return its new name. Raises BackendError."""
        path = self._path(segment)
        kept = path.with_suffix(DAMAGED_SUFFIX)
        try:
            self._disk.rename(path, kept)
        except OSError as error:
            raise self._error(error, is_written=True) from error
        return kept.name

    def close(self) -> None:
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def _begin(self, number: int) -> None:
        """Raises OSError: the segment before is still the current one, and still poisoned if it was."""
        path, spare = self._path(number), self._folder / _SPARE
        names = self._disk.names(self._folder)
        if path.name in names:
            self._disk.remove(path)  # of an attempt that failed: nothing in it was answered as done
        if spare.name in names:
            self._disk.rename(spare, path)  # what is in it has another number
            descriptor = self._disk.open(path)
        else:
            descriptor = self._disk.create(path, self._segment_bytes)
        try:
            first: Iterable[Record] = [ClosedRecord(self.segment, self._at)] if self.segment else []
            group = GroupBuffer(number, HEADER_BYTES)
            for record in first:
                group.write(record)
            data = encode_header(number) + bytes(group.finish())
            self._disk.write(descriptor, data, 0)
            self._disk.sync(descriptor)
        except BaseException:
            self._disk.close(descriptor)
            raise
        self.close()
        self._descriptor = descriptor
        self._is_poisoned = False
        if self.segment:
            self._ends[self.segment] = self._at
        self.segment = number
        self._at = self._first = len(data)

    def _error(self, error: OSError, *, is_written: bool) -> BackendError:
        remedy = _REMEDIES.get(error.errno or 0, "")
        return BackendError(
            f"{self._folder}: {error.strerror or error}", retryable=True, is_written=is_written, remedy=remedy
        )

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}{_SUFFIX}"


def _is_closed(found: Found) -> bool:
    return isinstance(found.record, ClosedRecord)
