"""Files of the journal: preallocated segments, written and synced by one thread; what a failed sync means; what is read at a start.

Knows no record but how a group is framed (`records`). Calls of the operating system go through `Disk`, so that a test can lose what is not synced.

Invariant: after a failed write or sync nothing is written to that segment again. The kernel may have dropped the pages and forgotten the error,
so a later sync that succeeds proves nothing.

Invariant: a segment is followed by another one only when that says, as its first record, how far this one counts (CLOSED). A group that failed may
be on the disk all the same; without the mark a start would do it a second time.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple, Protocol

from iothub.base.errors import BackendError
from iothub_services.queues.journal.records import (
    HEADER_BYTES,
    ClosedRecord,
    Found,
    GroupBuffer,
    Record,
    Verdict,
    encode_header,
    salvage,
    scan,
)

SEGMENT_BYTES = 64 << 20
_SUFFIX = ".segment"
_PRIVATE = 0o600


class Disk(Protocol):
    """What the journal asks of a file system. Every call raises OSError."""

    def create(self, path: Path, size_bytes: int) -> int:
        """Make a file of this size with blocks of its own, and sync it and its folder; return its descriptor."""

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...

    def close(self, descriptor: int) -> None: ...

    def read(self, path: Path) -> bytes: ...

    def remove(self, path: Path) -> None: ...

    def names(self, folder: Path) -> list[str]: ...


class RealDisk:
    """Fulfils `Disk`. Writes and syncs run without the interpreter's lock."""

    def create(self, path: Path, size_bytes: int) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            os.fsync(descriptor)
            _sync_folder(path.parent)
        except BaseException:
            os.close(descriptor)
            path.unlink()
            raise
        return descriptor

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

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


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
        self.segment = 0  # the one that is written, 0: none

    def numbers(self) -> list[int]:
        """Return the segments that are there, ascending."""
        names = [name.removesuffix(_SUFFIX) for name in self._disk.names(self._folder) if name.endswith(_SUFFIX)]
        return sorted(int(name) for name in names if name.isdigit())

    def load(self, flushed: int) -> list[Loaded]:
        """Read the segments above `flushed`, in their order, and begin a new one behind them. Raises BackendError.

        A segment that was flushed and is still there was to be deleted when the process died: it is deleted now.
        """
        try:
            return self._load(flushed)
        except OSError as error:
            raise _error(error, is_written=False) from error

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
                last = found.end
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
        """Whether the segment takes a group of this size; an empty one takes any."""
        return self._at + size_bytes <= self._segment_bytes or self._at <= 2 * HEADER_BYTES + 64

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
            raise _error(error, is_written=True) from error
        at = self._at
        self._at += len(data)
        return at

    def next_segment(self) -> int:
        """Begin another segment, which says where this one ends; return the number of the one that ended. Raises BackendError."""
        ended = self.segment
        try:
            self._begin(ended + 1)
        except OSError as error:
            raise _error(error, is_written=False) from error
        return ended

    def delete(self, segment: int) -> None:
        """Remove a segment that is flushed. Raises BackendError."""
        try:
            self._disk.remove(self._path(segment))
        except OSError as error:
            raise _error(error, is_written=True) from error

    def close(self) -> None:
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1

    def _begin(self, number: int) -> None:
        """Raises OSError: the segment before is still the current one, and still poisoned if it was."""
        path = self._path(number)
        if path.name in self._disk.names(self._folder):
            self._disk.remove(path)  # of an attempt that failed: nothing in it was answered as done
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
        self.segment, self._at = number, len(data)

    def _path(self, number: int) -> Path:
        return self._folder / f"{number:020d}{_SUFFIX}"


def _is_closed(found: Found) -> bool:
    return isinstance(found.record, ClosedRecord)


def _error(error: OSError, *, is_written: bool) -> BackendError:
    return BackendError(f"journal: {error.strerror or error}", retryable=True, is_written=is_written)
