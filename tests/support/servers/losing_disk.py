"""A disk in memory that loses what is not synced. It has one folder, whatever that is called."""

from __future__ import annotations

import random
from pathlib import Path

from iothub_services.queues.journal.store import JournaledQueues

SECTOR = 512


class File:
    """`seen`: what is read; `durable`: what is there after a crash, but for what a crash keeps by chance."""

    def __init__(self, size_bytes: int) -> None:
        self.seen = bytearray(size_bytes)
        self.durable = bytearray(size_bytes)


class LosingDisk:
    """A `Disk` of the journal: what is not synced is lost when it crashes, content sector by sector, names from some change of the folder on.

    `failures`: how probable one is, of each call that changes something. `read_failures`: of each other one.
    """

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._open: dict[int, File] = {}
        self._files: dict[str, File] = {}
        self._folders: list[dict[str, File]] = [{}]  # as it was when it was synced, and after each change since
        self.failures = 0.0
        self.read_failures = 0.0
        self.free = 1 << 40
        self._next = 2

    def create(self, path: Path, size_bytes: int) -> int:
        assert path.name not in self._files
        self._fail()
        self._files[path.name] = File(size_bytes)
        self._changed()
        return self._opened(path)

    def open(self, path: Path) -> int:
        self._fail()
        return self._opened(path)

    def _opened(self, path: Path) -> int:
        descriptor = self._next = self._next + 1
        self._open[descriptor] = self._files[path.name]
        return descriptor

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None:
        seen = self._open[descriptor].seen
        seen.extend(bytes(max(at + len(data) - len(seen), 0)))
        if self._chance.random() < self.failures:
            short = self._chance.randrange(len(data))
            seen[at : at + short] = data[:short]
            raise OSError(28, "No space left on device")
        seen[at : at + len(data)] = data

    def sync(self, descriptor: int) -> None:
        file = self._open[descriptor]
        if self._chance.random() < self.failures:
            self._keep_some(file)
            raise OSError(5, "Input/output error")
        file.durable = bytearray(file.seen)

    def sync_folder(self, folder: Path) -> None:
        del folder
        self._fail()
        self._folders = [dict(self._files)]

    def close(self, descriptor: int) -> None: ...

    def read(self, path: Path) -> bytes:
        self._fail_read()
        return bytes(self._files[path.name].seen)

    def read_at(self, descriptor: int, size_bytes: int, at: int) -> bytes:
        self._fail_read()
        return bytes(self._open[descriptor].seen[at : at + size_bytes])

    def remove(self, path: Path) -> None:
        self._files.pop(path.name, None)
        self._changed()

    def rename(self, path: Path, new: Path) -> None:
        self._files[new.name] = self._files.pop(path.name)
        self._changed()

    def link(self, path: Path, new: Path) -> None:
        self._files[new.name] = self._files[path.name]
        self._changed()

    def names(self, folder: Path) -> list[str]:
        return list(self._files)

    def free_bytes(self, folder: Path) -> int:
        del folder
        return self.free

    def crash(self) -> None:
        """Keep any of the sectors that were written and not synced, and the folder as it was at any moment since it was synced."""
        self._open.clear()
        self._files = dict(self._chance.choice(self._folders))
        self._folders = [dict(self._files)]
        for file in self._files.values():
            self._keep_some(file)
            file.seen = bytearray(file.durable)

    def damage(self, name: str, at: int) -> None:
        """Change one byte that was durable."""
        for content in (self._files[name].durable, self._files[name].seen):
            content[at] ^= 0xFF

    def truncate(self, name: str, size_bytes: int) -> None:
        """Cut a file, as an administrator does."""
        for content in (self._files[name].durable, self._files[name].seen):
            del content[size_bytes:]

    def _changed(self) -> None:
        self._folders.append(dict(self._files))

    def _keep_some(self, file: File) -> None:
        durable, seen = file.durable, file.seen
        durable.extend(bytes(len(seen) - len(durable)))
        for at in range(0, len(durable), SECTOR):
            if self._chance.random() < 0.5:
                durable[at : at + SECTOR] = seen[at : at + SECTOR]

    def _fail(self) -> None:
        if self._chance.random() < self.failures:
            raise OSError(28, "No space left on device")

    def _fail_read(self) -> None:
        if self._chance.random() < self.read_failures:
            raise OSError(5, "Input/output error")


def abandon(store: JournaledQueues) -> None:
    """End as a process that is killed."""
    store._commits.on_hold.remove(store._put_down)
    store._roll_back()
    store._journal.close()
    store._database.close()
