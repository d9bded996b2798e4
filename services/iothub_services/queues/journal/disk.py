"""What the journal asks of a file system, so that a test can lose what is not synced; and the real one.

Knows no segment.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import Protocol

from iothub_services.metrics.probes import disk_free_bytes

_ZEROS = bytes(1 << 20)
_SYNCED_BYTES = 4 << 20  # of a new file at once: others sync theirs meanwhile
_PRIVATE = 0o600


class Disk(Protocol):
    """What the journal asks of a file system. Every call raises OSError. What changes names is durable with the next `sync_folder`."""

    def create(self, path: Path, size_bytes: int) -> int:
        """Make a file of this size with blocks of its own, and sync it; return its descriptor.

        Blocks that were written once: else each sync of a group has to say as well that another block is in use.
        """

    def open(self, path: Path) -> int:
        """Return a descriptor of a file that is there."""

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None: ...

    def sync(self, descriptor: int) -> None: ...

    def sync_folder(self, folder: Path) -> None: ...

    def close(self, descriptor: int) -> None: ...

    def read(self, path: Path) -> bytes: ...

    def read_at(self, descriptor: int, size_bytes: int, at: int) -> bytes:
        """Return as many bytes as there are, at most these."""

    def remove(self, path: Path) -> None: ...

    def rename(self, path: Path, new: Path) -> None: ...

    def link(self, path: Path, new: Path) -> None:
        """Give a file another name beside its own; nothing to do if it has that already."""

    def names(self, folder: Path) -> list[str]: ...

    def free_bytes(self, folder: Path) -> int: ...


class RealDisk:
    """Fulfils `Disk`. Writes and syncs run without the interpreter's lock."""

    def create(self, path: Path, size_bytes: int) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _PRIVATE)
        try:
            for at in range(0, size_bytes, len(_ZEROS)):
                self.write(descriptor, _ZEROS[: size_bytes - at], at)
                if at % _SYNCED_BYTES == 0:
                    os.fdatasync(descriptor)
            os.fsync(descriptor)
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

    def sync_folder(self, folder: Path) -> None:
        sync_folder(folder)

    def close(self, descriptor: int) -> None:
        os.close(descriptor)

    def read(self, path: Path) -> bytes:
        return path.read_bytes()

    def read_at(self, descriptor: int, size_bytes: int, at: int) -> bytes:
        data = os.pread(descriptor, size_bytes, at)
        while len(data) < size_bytes and (more := os.pread(descriptor, size_bytes - len(data), at + len(data))):
            data += more
        return data

    def remove(self, path: Path) -> None:
        path.unlink(missing_ok=True)

    def rename(self, path: Path, new: Path) -> None:
        path.rename(new)

    def link(self, path: Path, new: Path) -> None:
        with contextlib.suppress(FileExistsError):
            new.hardlink_to(path)

    def names(self, folder: Path) -> list[str]:
        return os.listdir(folder)

    def free_bytes(self, folder: Path) -> int:
        return disk_free_bytes(folder)


def sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
