"""The checkpoint port over the store process: the driver of a worker, and the verbs that both sides know.

Knows rows as bytes. The first job makes the file: as long as there is none, there is no checkpoint; the store process looks each time.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from pathlib import Path
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import Pointer, decode_pointer, encode_pointer
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StoredState
from iothub_services.store_process.connection import OnNotices, StoreConnection
from iothub_services.store_process.frames import FrameError, data, flag, many, maybe, nothing, number
from iothub_services.store_process.ports import Port, Probed
from iothub_services.store_process.states import KEY, PAGE, STORED, sendable
from iothub_services.store_process.verbs import Verb

PORT = "checkpoints"


def _pointer(value: object) -> Pointer:
    try:
        return decode_pointer(data(value))
    except CorruptRecordError as error:
        raise FrameError(str(error)) from None


VERBS = {
    "move": Verb((maybe(_pointer), _pointer), flag, is_write=True),
    "write": Verb((number, many(STORED)), nothing, is_write=True),
    "drop": Verb((number,), number, is_write=True),
    "pointer": Verb((), maybe(_pointer)),
    "page": Verb((number, KEY, number), many(STORED)),
    "versions": Verb((), many(number)),
}


class KeptCheckpoints(CheckpointStore, Probed, Protocol):
    """What the store process needs of the file."""

    def group(self) -> AbstractContextManager[None]: ...

    def rows(self, version: int, after: tuple[int, str] = (-1, "")) -> Iterator[StoredState]: ...


class CheckpointFile:
    """The file, opened when it is there, or when something is written. Any thread; `group` and all that writes belong to one."""

    def __init__(self, path: Path, open_file: Callable[[], KeptCheckpoints]) -> None:
        self._path = path
        self._open_file = open_file
        self._lock = threading.Lock()
        self._store: KeptCheckpoints | None = None

    def if_there(self) -> KeptCheckpoints | None:
        return self.made() if self._store is not None or self._path.exists() else None

    def made(self) -> KeptCheckpoints:
        with self._lock:
            if self._store is None:
                self._store = self._open_file()
            return self._store

    def group(self) -> AbstractContextManager[None]:
        return self.made().group()

    def probe(self) -> None:
        self.made().probe()

    def close(self) -> None:
        if self._store is not None:
            self._store.close()


def checkpoint_port(file: CheckpointFile, clock: Clock) -> Port:
    """Return the port of the store process."""

    def pointer() -> bytes | None:
        store = file.if_there()
        found = None if store is None else store.pointer()
        return None if found is None else encode_pointer(found)

    def page(version: int, after: tuple[int, str], count: int) -> list[StoredState]:
        store = file.if_there()
        return [] if store is None else list(map(sendable, islice(store.rows(version, after), count)))

    def versions() -> list[int]:
        store = file.if_there()
        return [] if store is None else store.versions()

    calls: dict[str, Callable[..., object]] = {
        "move": lambda expected, to: file.made().move(expected, to),
        "write": lambda version, rows: file.made().write(version, rows),
        "drop": lambda version: file.made().drop(version),
        "pointer": pointer,
        "page": page,
        "versions": versions,
    }
    return Port(PORT, VERBS, file, clock, calls=calls)


class RemoteCheckpoints:
    """Fulfils `CheckpointStore`."""

    def __init__(
        self,
        path: Path,
        on_notices: OnNotices | None = None,
        *,
        connection: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._connection = connection(path, PORT, VERBS, is_writer=True, on_notices=on_notices)

    def close(self) -> None:
        self._connection.close()

    def pointer(self) -> Pointer | None:
        pointer: Pointer | None = self._connection.read("pointer")
        return pointer

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        before = None if expected is None else encode_pointer(expected)
        return bool(self._connection.write("move", before, encode_pointer(to)))

    def rows(self, version: int) -> Iterator[StoredState]:
        after = (-1, "")
        while True:
            page: list[StoredState] = self._connection.read("page", version, after, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1][:2]

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        coming = iter(rows)
        while some := list(islice(coming, PAGE)):
            self._connection.write("write", version, some)

    def versions(self) -> list[int]:
        versions: list[int] = self._connection.read("versions")
        return versions

    def drop(self, version: int) -> int:
        return int(self._connection.write("drop", version))
