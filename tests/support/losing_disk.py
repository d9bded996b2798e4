"""A disk in memory that loses what is not synced. It has one folder, whatever that is called."""

from __future__ import annotations

import random
from pathlib import Path

from iothub_services.queues.journal.store import JournaledQueues

SECTOR = 512


class LosingDisk:
    """A `Disk` of the journal: what is not synced is lost, sector by sector, when it crashes. `failures`: how probable one is, of each call."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._open: dict[int, str] = {}
        self._durable: dict[str, bytearray] = {}
        self._seen: dict[str, bytearray] = {}
        self.failures = 0.0
        self.free = 1 << 40
        self._next = 2

    def create(self, path: Path, size_bytes: int) -> int:
        assert path.name not in self._seen
        self._fail()
        self._durable[path.name] = bytearray(size_bytes)
        self._seen[path.name] = bytearray(size_bytes)
        descriptor = self._next = self._next + 1
        self._open[descriptor] = path.name
        return descriptor

    def open(self, path: Path) -> int:
        self._fail()
        descriptor = self._next = self._next + 1
        self._open[descriptor] = path.name
        return descriptor

    def write(self, descriptor: int, data: bytes | bytearray, at: int) -> None:
        seen = self._seen[self._open[descriptor]]
        seen.extend(bytes(max(at + len(data) - len(seen), 0)))
        if self._chance.random() < self.failures:
            short = self._chance.randrange(len(data))
            seen[at : at + short] = data[:short]
            raise OSError(28, "No space left on device")
        seen[at : at + len(data)] = data

    def sync(self, descriptor: int) -> None:
        name = self._open[descriptor]
        if self._chance.random() < self.failures:
            self._keep_some(name)
            raise OSError(5, "Input/output error")
        self._durable[name] = bytearray(self._seen[name])

    def close(self, descriptor: int) -> None: ...

    def read(self, path: Path) -> bytes:
        return bytes(self._seen[path.name])

    def remove(self, path: Path) -> None:
        del self._seen[path.name], self._durable[path.name]

    def rename(self, path: Path, new: Path) -> None:
        self._seen[new.name], self._durable[new.name] = self._seen.pop(path.name), self._durable.pop(path.name)

    def names(self, folder: Path) -> list[str]:
        return list(self._seen)

    def free_bytes(self, folder: Path) -> int:
        del folder
        return self.free

    def crash(self) -> None:
        """Keep any of the sectors that were written and not synced."""
        self._open.clear()
        for name, durable in self._durable.items():
            self._keep_some(name)
            self._seen[name] = bytearray(durable)

    def damage(self, name: str, at: int) -> None:
        """Change one byte that was durable."""
        for content in (self._durable[name], self._seen[name]):
            content[at] ^= 0xFF

    def _keep_some(self, name: str) -> None:
        durable, seen = self._durable[name], self._seen[name]
        durable.extend(bytes(len(seen) - len(durable)))
        for at in range(0, len(durable), SECTOR):
            if self._chance.random() < 0.5:
                durable[at : at + SECTOR] = seen[at : at + SECTOR]

    def _fail(self) -> None:
        if self._chance.random() < self.failures:
            raise OSError(28, "No space left on device")


def abandon(store: JournaledQueues) -> None:
    """End as a process that is killed."""
    store._commits.on_hold.remove(store._put_down)
    store._roll_back()
    store._journal.close()
    store._database.close()
