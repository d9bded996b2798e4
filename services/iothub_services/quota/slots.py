"""Counters in a memory-mapped file: what was counted a microsecond ago is still there after kill -9.

Knows no quota and no SQL: numbered slots of four words. The kernel keeps a killed process's pages, so writing a word is enough;
a power cut may lose them, which is what the database of `usage` is for.

A slot: key digest | tenant id << 32 | window seconds | window start | used. The file is made whole at its creation
(`posix_fallocate`): a full disk is an error then, never a signal later.
"""

from __future__ import annotations

import contextlib
import errno
import mmap
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from iothub.base.errors import UnavailableError
from iothub.base.units import format_size_roughly
from iothub_services.metrics import probes

SLOTS = 16_384  # 512 KiB; counters beyond are as durable as the database: at most one flush is lost
_WORDS = 4
_MAGIC = int.from_bytes(b"iothubU1", sys.byteorder)
SIZE_BYTES = (SLOTS + 1) * _WORDS * 8  # slot 0 holds the magic word
_MASK = (1 << 32) - 1


@dataclass(frozen=True, slots=True)
class SlotRecord:
    """What one slot says."""

    slot: int
    digest: int
    tenant_id: int
    seconds: int
    start: int
    used: int


class SlotFile:
    """The mapped file. One thread.

    Invariants: a slot is free or belongs to one counter; a free one has the digest 0.
    """

    def __init__(self, path: Path) -> None:
        """Open or create the file; one of another form is begun anew.

        Raises:
            UnavailableError: it cannot be created, written or mapped.
        """
        try:
            self._map = _map(path)
        except OSError as error:
            raise UnavailableError(f"cannot use {path}: {error.strerror}{_room(path, error)}") from error
        self._words = memoryview(self._map).cast("Q")
        if self._words[0] != _MAGIC:
            self._words[0] = _MAGIC
        self._free = [slot for slot in range(SLOTS, 0, -1) if not self._words[slot * _WORDS]]

    def records(self) -> Iterator[SlotRecord]:
        """Iterate over the slots in use."""
        return _records(self._words)

    def take_slot(self, digest: int, tenant_id: int, seconds: int, start: int, used: int) -> int:
        """Give a slot to a counter; 0 if none is free."""
        if not self._free:
            return 0
        slot = self._free.pop()
        base = slot * _WORDS
        self._words[base + 1] = tenant_id << 32 | seconds
        self._words[base + 2] = start
        self._words[base + 3] = used
        self._words[base] = digest  # last: until now the slot was free
        return slot

    def set_used(self, slot: int, used: int) -> None:
        """Write a counter. One word, so a kill leaves the old or the new figure."""
        self._words[slot * _WORDS + 3] = used

    def release(self, slot: int) -> None:
        """Free a slot."""
        self._words[slot * _WORDS] = 0
        self._free.append(slot)

    def close(self) -> None:
        self._words.release()
        self._map.close()


def read_slots(path: Path) -> list[SlotRecord]:
    """Read the slots in use of a file that somebody else may write; none, if it is no such file. Raises OSError."""
    if not path.exists():
        return []
    words = memoryview(path.read_bytes()[:SIZE_BYTES].ljust(SIZE_BYTES, b"\0")).cast("Q")
    return list(_records(words)) if words[0] == _MAGIC else []


def _records(words: memoryview[int]) -> Iterator[SlotRecord]:
    for slot in range(1, SLOTS + 1):
        digest, owner, start, used = words[slot * _WORDS : slot * _WORDS + _WORDS]
        if digest:
            yield SlotRecord(slot, digest, owner >> 32, owner & _MASK, start, used)


def _room(path: Path, error: OSError) -> str:
    """Say what is free on a full disk, and what to do about it."""
    if error.errno != errno.ENOSPC:
        return ""
    free = format_size_roughly(probes.disk_free_bytes(path.parent))
    return (
        f" ({free} free in {path.parent}; the file takes {format_size_roughly(SIZE_BYTES)}); free some disk space first"
    )


def _map(path: Path) -> mmap.mmap:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        if os.fstat(descriptor).st_size != SIZE_BYTES or _first_word(descriptor) not in (0, _MAGIC):
            os.ftruncate(descriptor, 0)
        try:
            os.posix_fallocate(descriptor, 0, SIZE_BYTES)
        except OSError:
            with contextlib.suppress(OSError):
                os.ftruncate(descriptor, 0)
            raise
        return mmap.mmap(descriptor, SIZE_BYTES)
    finally:
        os.close(descriptor)


def _first_word(descriptor: int) -> int:
    return int.from_bytes(os.pread(descriptor, 8, 0), sys.byteorder)
