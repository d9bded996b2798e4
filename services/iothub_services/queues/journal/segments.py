"""Files of the journal: preallocated segments, written and synced by one thread; what a failed sync means; what is read at a start.

Knows no record but how a group is framed (`records`). Calls of the operating system go through `Disk`, so that a test can lose what is not synced.

Invariant: after a failed write or sync nothing is written to that segment again. The kernel may have dropped the pages and forgotten the error,
so a later sync that succeeds proves nothing.

Invariant: a segment is followed by another one only when that says, as its first record, how far this one counts (CLOSED). A group that failed may
be on the disk all the same; without that record a start would do it a second time.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from iothub.base.errors import BackendError
from iothub_services.metrics.probes import ROOM_BYTES
from iothub_services.queues.journal.beside import Beside, InThread
from iothub_services.queues.journal.decoding import Scan, Verdict, salvage, scan
from iothub_services.queues.journal.disk import Disk, sync_folder
from iothub_services.queues.journal.encoding import GroupBuffer, encode_group
from iothub_services.queues.journal.records import (
    DELIVERY,
    MARK_BYTES,
    AppendRecord,
    ClosedRecord,
    Found,
    MadeRecord,
    Record,
    steps_of,
)
from iothub_services.queues.journal.sizes import LARGEST, SegmentSizes, most_bytes

_SUFFIX = ".segment"
_NAME = re.compile(rf"(\d{{20}})\.([0-9a-f]{{{2 * MARK_BYTES}}}){re.escape(_SUFFIX)}")  # number, mark
DAMAGED_SUFFIX = ".damaged"
_MADE = "made.spare"  # blocks that are made ahead
_SPARE = "next.spare"  # a flushed segment, to be used again if it has the right size
MOST_READING = (
    16  # earlier segments whose files are open: there may be a thousand, and connections need descriptors as well
)
_BEGIN_BYTES = 256  # more than the first group of a segment; so long is the newest one in a backup
MISSING = "is missing"
BROKEN = "has broken records"
_REMEDIES = {
    errno.ENOSPC: "free some disk space first",
    errno.EDQUOT: "free some disk space first",
    errno.EIO: "check the disk (`smartctl`, the kernel's log)",
    errno.EACCES: "make the folder and what is in it readable and writable for the hub's user (`chown -R`)",
    errno.EROFS: "the file system is mounted read-only: mount it writable, and see the kernel's log for why it is not",
}
_REMEDIES_OF_PARENT = {**_REMEDIES, errno.EACCES: "make the data directory writable for the hub's user"}
_FOLDER_MODE = 0o700


def folder_of(tables: Path) -> Path:
    """Return where the segments are that belong to the file of the tables."""
    return tables.with_suffix(".journal")


def make_folder(folder: Path) -> None:
    """Make the folder of the segments durable: a process that was killed may have made it and no more. Raises BackendError."""
    _require_folder(folder)
    try:
        folder.mkdir(_FOLDER_MODE, exist_ok=True)
        sync_folder(folder.parent)
    except OSError as error:
        what = f"{folder} is not there, and cannot be made: {error.strerror}"
        remedy = _REMEDIES_OF_PARENT.get(error.errno or 0, "")
        raise BackendError(what, retryable=True, remedy=remedy) from error


def is_left(tables: Path) -> bool:
    """Whether there are segments: a hub has not put them into the tables. Raises BackendError: that cannot be seen."""
    folder = folder_of(tables)
    _require_folder(folder)
    try:
        return bool(_segments_in(folder))
    except OSError as error:
        raise _error_of(folder, error, is_written=False) from error


def _require_folder(folder: Path) -> None:
    """Raise BackendError if something else has its name."""
    if folder.is_dir() or not os.path.lexists(folder):
        return
    if folder.is_symlink() and not folder.exists():
        what = f"{folder} is a link to {os.readlink(folder)}, which is not there"
        remedy = "mount the disk or make the folder that it leads to; remove the link only if no segments were there, because messages are in them"
    else:
        what = f"{folder} is a file, and the folder of the queues' journal was expected"
        remedy = "move the file away, and put the folder back if there was one: messages are in it; the hub makes one where there is nothing"
    raise BackendError(what, retryable=True, remedy=remedy)


def _error_of(folder: Path, error: OSError, *, is_written: bool) -> BackendError:
    remedy = _REMEDIES.get(error.errno or 0, "")
    return BackendError(f"{folder}: {error.strerror or error}", retryable=True, is_written=is_written, remedy=remedy)


def to_copy(tables: Path, *, is_held: bool) -> list[tuple[Path, int]]:
    """Return the segments that belong to a copy of the tables, and how many bytes of each. Raises OSError.

    `is_held`: a hub has just begun the newest one, and writes to it when the hold is over.
    """
    sizes = []
    for path in sorted(_segments_in(folder_of(tables))):
        with contextlib.suppress(FileNotFoundError):  # flushed meanwhile
            sizes.append((path, path.stat().st_size))
    if is_held and sizes:
        newest, size_bytes = sizes[-1]
        sizes[-1] = newest, min(size_bytes, _BEGIN_BYTES)
    return sizes


def _segments_in(folder: Path) -> list[Path]:
    return [path for path in folder.iterdir() if _NAME.fullmatch(path.name)] if folder.is_dir() else []


class Loaded(NamedTuple):
    """A segment as a start finds it. `damage`: what it says of itself, behind its number; then `records` are those that are whole."""

    segment: int
    records: list[Found]
    damage: str = ""

    @property
    def is_damaged(self) -> bool:
        return bool(self.damage)


class Journal:
    """The segments of one folder. One thread.

    Invariants: `_at` is behind the last group that was synced, and nothing behind it counts. A segment that failed is not written again.
    """

    def __init__(self, folder: Path, disk: Disk, largest_segment: int = LARGEST, beside: Beside | None = None) -> None:
        """`beside`: makes blocks ahead."""
        self._folder = folder
        self._disk = disk
        self._segment_sizes = SegmentSizes(largest_segment)
        self._descriptor = -1
        self._is_poisoned = False
        self._at = 0
        self._first = 0  # behind what the segment begins with
        self._size = 0  # of the segment as it was made, to which groups are written while they fit
        self._sizes: dict[
            int, int
        ] = {}  # of the segments that this process has made; a very large message makes one longer
        self._found_bytes: dict[int, int] = {}  # of those that it has found
        self._spare_bytes = 0  # 0: there is none
        self._making = beside or InThread("queues-segment")
        self._making_bytes = 0  # of the blocks that are made ahead, 0: none are
        self.disk_bytes = 0  # of the segments that this process has made, with the spare one; read in any thread
        self._ends: dict[int, int] = {}  # of the earlier segments that are there
        self._steps: dict[int, int] = {}  # of a start, for each of them
        self._reading: dict[int, int] = {}  # descriptors of those that were read
        self._kept: set[int] = set()  # whose blocks are not used again: damaged ones, and those that a backup reads
        self._mark = b""
        self.segment = 0  # the one that is written, 0: none
        self.records = 0  # that were written to it
        self._deliveries = 0  # that are in these

    def numbers(self) -> list[int]:
        """Return the segments that are there, ascending. Raises BackendError."""
        try:
            return sorted(self._marks())
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def load(self, flushed: int | None, done: int = -1) -> Iterator[Loaded]:
        """Read the segments above `flushed`, in their order, and begin a new one behind them. Raises BackendError.

        A segment that was flushed and is still there was to be deleted when the process died: it is deleted now.
        None: the tables do not know, because they are new or have lost it; then none is missing. `done`: the one behind it was there; -1: none was.
        """
        try:
            yield from self._load(flushed or 0, -1 if flushed is None else done, is_known=flushed is not None)
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def _load(self, flushed: int, done: int, *, is_known: bool) -> Iterator[Loaded]:
        marks = self._marks()
        for number in [number for number in marks if number <= flushed]:
            self._disk.remove(self._path(number, marks.pop(number)))
        self._disk.remove(self._folder / _SPARE)
        self._disk.remove(self._folder / _MADE)
        ends = self._ends_of(marks)
        named = {*ends, *([done + 1] if done >= 0 else [])}
        missing = {each for each in named if is_known and each > flushed and each not in marks}
        last = max([flushed, *marks, *missing])
        for number in sorted(marks.keys() | missing):
            if number in marks:
                is_begun = done >= 0 and number == done + 1  # the tables were committed behind its first group
                yield self._loaded(number, marks[number], ends.get(number), is_begun=is_begun)
            else:
                yield Loaded(number, [], MISSING)
        self._begin(last + 1)

    def _ends_of(self, marks: dict[int, bytes]) -> dict[int, int]:
        """Return where segments end by what those behind them say first. Raises OSError."""
        ends: dict[int, int] = {}
        for number, mark in marks.items():
            begin = self._disk.read_at(self._descriptor_of(number, mark), _BEGIN_BYTES, 0)
            for first in scan(begin, mark).records[:1]:
                if isinstance(first.record, ClosedRecord):
                    ends[first.record.segment] = first.record.end
        return ends

    def _loaded(self, number: int, mark: bytes, end: int | None, *, is_begun: bool) -> Loaded:
        data = self._disk.read(self._path(number, mark))
        found = scan(data, mark)
        damage = _damage_of(found, len(data), end, is_begun=is_begun)
        # No end: the last one; or its successor's first group was cut, and is then the last one itself.
        last = found.end if end is None else min(end, len(data))
        if damage and end is None:
            last = len(data)  # the next start looks at all of it again
        self.segment, self._at = number, last
        self._ends[number] = last
        records = salvage(data[: end or len(data)], mark) if damage else found.records
        if not damage and found.end > last:
            records = [each for each in records if each.at < last]
        records = _without_beginning(records)
        self._steps[number] = steps_of(len(records), sum(map(_deliveries_of, records)))
        self._found_bytes[number] = len(data)
        return Loaded(number, records, damage)

    @property
    def size_bytes(self) -> int:
        """How long the segment was made."""
        return self._size

    def most_bytes(self, limit: int) -> int:
        """Return how much all segments may take: `limit`, or their share of a disk that is not as large. Raises BackendError."""
        try:
            return most_bytes(limit, self.size_bytes, self._disk.free_bytes(self._folder) + self.disk_bytes)
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def has_room(self, size_bytes: int) -> bool:
        """Whether the segment takes a group of this size; a fresh one takes any."""
        return self.is_fresh or self._at + size_bytes <= self.size_bytes

    @property
    def is_fresh(self) -> bool:
        """Whether no group was written to the segment."""
        return self._at == self._first and not self._is_poisoned

    @property
    def is_poisoned(self) -> bool:
        """Whether a write or a sync of the segment has failed."""
        return self._is_poisoned

    @property
    def at(self) -> int:
        """Where the next group is written."""
        return self._at

    def end_of(self, segment: int) -> int:
        """Return how far a segment counts."""
        return self._at if segment == self.segment else self._ends.get(segment, 0)

    def steps_above(self, flushed: int) -> int:
        """Return what a start pays for, in records."""
        above = sum([steps for number, steps in self._steps.items() if number > flushed])
        return steps_of(self.records, self._deliveries) + above

    def bytes_above(self, flushed: int) -> int:
        """Return what the segments above `flushed` take."""
        sizes = (*self._sizes.items(), *self._found_bytes.items())
        return sum([size for number, size in sizes if number > flushed])

    def mark_of(self, segment: int) -> bytes:
        """Raises BackendError: it is not there."""
        try:
            return self._marks()[segment]
        except OSError as error:
            raise self._error(error, is_written=False) from error
        except KeyError:
            raise self._error(OSError(errno.EIO, f"segment {segment} is missing"), is_written=False) from None

    def read_at(self, segment: int, at: int, size_bytes: int) -> bytes:
        """Read what is written to a segment. Raises BackendError."""
        descriptor = self._descriptor if segment == self.segment else self._reading.get(segment, -1)
        try:
            if descriptor < 0:
                descriptor = self._descriptor_of(segment, self.mark_of(segment))
            data = self._disk.read_at(descriptor, size_bytes, at)
            if len(data) < size_bytes:
                raise OSError(errno.EIO, f"segment {segment} ends too early")
        except OSError as error:
            raise self._error(error, is_written=False) from error
        return data

    def _descriptor_of(self, segment: int, mark: bytes) -> int:
        """Raises OSError."""
        descriptor = self._reading.get(segment)
        if descriptor is None:
            descriptor = self._disk.open(self._path(segment, mark))
            self._keep_open(segment, descriptor)
        return descriptor

    def _keep_open(self, segment: int, descriptor: int) -> None:
        """For reading; the one that was opened first is closed if they are too many."""
        while len(self._reading) >= MOST_READING:
            self._close_reading(next(iter(self._reading)))
        self._reading[segment] = descriptor

    def read_back(self, flushed: int) -> Iterator[Loaded]:
        """Give the records of the segments above `flushed`, up to the last group that was written. Raises BackendError."""
        try:
            for number, mark in sorted(self._marks().items()):
                if flushed < number <= self.segment:
                    end = self._at if number == self.segment else self._ends[number]
                    found = scan(self._disk.read(self._path(number, mark))[:end], mark)
                    if found.end < end:
                        raise OSError(errno.EIO, f"segment {number} cannot be read back")
                    yield Loaded(number, _without_beginning(found.records))
        except OSError as error:
            raise self._error(error, is_written=False) from error

    def group(self) -> GroupBuffer:
        """Return an empty group for where it will be written; a new segment begins behind one that failed. Raises BackendError."""
        if self._is_poisoned or self._descriptor < 0:
            self.next_segment()
        return GroupBuffer(self._mark, self._at)

    def write(self, group: GroupBuffer) -> int:
        """Make a group durable; return where it begins.

        Raises BackendError: it may be there at the next start, unless another segment is begun, which says that it does not count.
        """
        if self._is_poisoned or (group.mark, group.start) != (self._mark, self._at):
            raise AssertionError("a group is written where it was begun")
        data = group.finish()
        self._is_poisoned = True  # whatever ends the attempt
        if self._at + len(data) > self._sizes[self.segment]:
            self._sizes[self.segment] = self._at + len(data)
            self._count()
        try:
            self._disk.write(self._descriptor, data, self._at)
            self._disk.sync(self._descriptor)
        except OSError as error:
            raise self._error(error, is_written=True) from error
        self._is_poisoned = False
        at = self._at
        self._at += len(data)
        self.records += group.records
        self._deliveries += group.deliveries
        return at

    def prepare(self) -> None:
        """Have the blocks of the next segment made ahead, beside the groups, when half of this one is used and there are none."""
        if self._making_bytes or self._spare_bytes or 2 * self._at < self._size or self._is_poisoned:
            return
        try:
            free_bytes = self._disk.free_bytes(self._folder)
        except OSError:
            return  # whoever begins the segment meets it again
        size_bytes = self._segment_sizes.following(self._size, self._size, free_bytes)
        self._making_bytes = size_bytes
        self._making.start(lambda: self._make(size_bytes))

    def _make(self, size_bytes: int) -> None:
        """Raises OSError."""
        self._disk.close(self._disk.create(self._folder / _MADE, size_bytes))

    def _await_made(self) -> None:
        """Have what is made ahead as the spare segment; nothing if that has failed. Raises OSError."""
        size_bytes, self._making_bytes = self._making_bytes, 0
        if size_bytes:
            with contextlib.suppress(OSError):
                self._making.wait()
                self._disk.rename(self._folder / _MADE, self._folder / _SPARE)
                self._spare_bytes = size_bytes
            if not self._spare_bytes:
                self._disk.remove(self._folder / _MADE)

    def require_room(self) -> None:
        """Raise BackendError unless another segment, and what the tables take of this one, fit on the disk."""
        try:
            self._await_made()
            size_bytes, free_bytes = self._next_bytes(), self._disk.free_bytes(self._folder)
            made = 0 if size_bytes == self._spare_bytes else size_bytes - self._spare_bytes
            if free_bytes < made + self._at + ROOM_BYTES:
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
        """Remove a segment that is flushed, or keep its blocks for the next one if they are as many. Raises BackendError."""
        try:
            path = self._path(segment, self._marks()[segment])
            self._close_reading(segment)
            self._ends.pop(segment, None)
            self._steps.pop(segment, None)
            self._found_bytes.pop(segment, None)
            has_right_size = self._sizes.get(segment) == self.size_bytes
            if segment in self._kept or self._spare_bytes or self._making_bytes or not has_right_size:
                self._disk.remove(path)
            else:
                self._disk.rename(path, self._folder / _SPARE)
                self._spare_bytes = self.size_bytes
            self._sizes.pop(segment, None)
            self._kept.discard(segment)
            self._count()
        except OSError as error:
            raise self._error(error, is_written=True) from error

    def clear(self) -> None:
        """Remove what is left when everything is flushed. Raises BackendError."""
        try:
            self._await_made()
            for path in (self._path(self.segment, self._mark), self._folder / _SPARE):
                if path.name in self._disk.names(self._folder):
                    self._disk.remove(path)
            self._sizes.clear()
            self._size = 0
            self._spare_bytes = self.disk_bytes = 0
        except OSError as error:
            raise self._error(error, is_written=True) from error

    def keep_blocks(self) -> None:
        """Write to none of the segments that are there but the newest: whoever has opened them may read on when they are deleted."""
        self._kept.update(self._ends)

    def keep(self, segment: int) -> str:
        """Keep a damaged segment for whoever looks at it, also when it is deleted; return its other name. Raises BackendError."""
        kept = self._folder / f"{segment:020d}{DAMAGED_SUFFIX}"
        self._kept.add(segment)
        try:
            self._disk.link(self._path(segment, self._marks()[segment]), kept)
            self._disk.sync_folder(self._folder)
        except OSError as error:
            raise self._error(error, is_written=True) from error
        return kept.name

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._await_made()
        if self._descriptor >= 0:
            self._disk.close(self._descriptor)
            self._descriptor = -1
        for segment in list(self._reading):
            self._close_reading(segment)

    def _close_reading(self, segment: int) -> None:
        descriptor = self._reading.pop(segment, None)
        if descriptor is not None:
            self._disk.close(descriptor)

    def _begin(self, number: int) -> None:
        """Raises OSError: the segment before is still the current one, and still poisoned if it was."""
        self._await_made()
        marks, mark = self._marks(), os.urandom(MARK_BYTES)
        if number in marks:
            # Of an attempt that failed: nothing in it was answered as done. Two of one number must never be there.
            self._close_reading(number)
            self._disk.remove(self._path(number, marks[number]))
            self._disk.sync_folder(self._folder)
        path, size_bytes = self._path(number, mark), self._next_bytes()
        descriptor = self._prepared(path, size_bytes)
        try:
            closed: list[Record] = [ClosedRecord(self.segment, self._at)] if self.segment else []
            data = encode_group(mark, 0, [*closed, MadeRecord(size_bytes)])
            self._disk.write(descriptor, data, 0)
            self._disk.sync(descriptor)
            self._disk.sync_folder(self._folder)
        except BaseException:
            self._disk.close(descriptor)
            raise
        if self._descriptor >= 0:
            self._keep_open(self.segment, self._descriptor)
        self._descriptor = descriptor
        self._is_poisoned = False
        if self.segment:
            self._ends[self.segment] = self._at
            self._steps.setdefault(self.segment, steps_of(self.records, self._deliveries))
        self.segment, self._mark = number, mark
        self._size = self._sizes[number] = size_bytes
        self._count()
        self._at = self._first = len(data)
        self.records = self._deliveries = 0

    def _next_bytes(self) -> int:
        """Return how large the next segment is, if a spare one of another size goes. Raises OSError."""
        free_bytes = self._disk.free_bytes(self._folder) + self._spare_bytes
        if not self.size_bytes:
            return self._segment_sizes.first(free_bytes)
        return self._segment_sizes.following(self.size_bytes, self._at, free_bytes)

    def _prepared(self, path: Path, size_bytes: int) -> int:
        """Return the descriptor of a segment with blocks of its own. Raises OSError."""
        spare, spare_bytes = self._folder / _SPARE, self._spare_bytes
        self._spare_bytes = 0
        if spare_bytes == size_bytes:
            self._disk.rename(spare, path)  # what is in it has another mark
            return self._disk.open(path)
        self._disk.remove(spare)
        return self._disk.create(path, size_bytes)

    def _count(self) -> None:
        self.disk_bytes = sum(self._sizes.values()) + self._spare_bytes

    def _error(self, error: OSError, *, is_written: bool) -> BackendError:
        return _error_of(self._folder, error, is_written=is_written)

    def _marks(self) -> dict[int, bytes]:
        """Return the number and the mark of each segment that is there. Raises OSError."""
        found = map(_NAME.fullmatch, self._disk.names(self._folder))
        return {int(each[1]): bytes.fromhex(each[2]) for each in found if each is not None}

    def _path(self, number: int, mark: bytes) -> Path:
        return self._folder / f"{number:020d}.{mark.hex()}{_SUFFIX}"


def _deliveries_of(found: Found) -> int:
    record = found.record
    return len(record.deliveries) // DELIVERY.size if isinstance(record, AppendRecord) else 0


def _damage_of(found: Scan, size_bytes: int, end: int | None, *, is_begun: bool) -> str:
    """Say what is wrong with a segment whose file is so long and that counts up to `end`; nothing: it is whole, or a crash has cut its last group.

    `is_begun`: its first group was certainly synced.
    """
    made = next((each.record.size_bytes for each in found.records[:2] if isinstance(each.record, MadeRecord)), 0)
    is_cut = size_bytes < made and size_bytes != _BEGIN_BYTES
    if is_cut and (end is None or size_bytes <= end):
        return f"was cut to {size_bytes} of {made} bytes"
    if is_begun and not found.end:
        return BROKEN if size_bytes else "is an empty file"
    is_broken = found.verdict is Verdict.DAMAGED if end is None else found.end < end
    return BROKEN if is_broken else ""


def _without_beginning(records: list[Found]) -> list[Found]:
    """Leave out what only the segments need, which comes first."""
    begin = 0
    while begin < len(records) and isinstance(records[begin].record, ClosedRecord | MadeRecord):
        begin += 1
    return records[begin:]
