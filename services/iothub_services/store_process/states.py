"""The session-state port over the store process: the driver of a worker, and the verbs that both sides know.

Knows records as bytes. All workers write the same fold of the same log, each as far as it has read it: a row never goes back.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, nullcontext
from itertools import islice
from pathlib import Path
from typing import Protocol

from iothub.base.clock import Clock
from iothub_services.events.port import Offsets
from iothub_services.state.port import StateStore, StateWrite, StoredState
from iothub_services.store_process.connection import OnNotices, StoreConnection
from iothub_services.store_process.frames import data, flag, many, maybe, number, pair, row, several, text
from iothub_services.store_process.ports import Port, Probed
from iothub_services.store_process.verbs import Verb

PORT = "states"

PAGE = 500  # rows in one answer
DAMAGED = b"?"  # a record that `iothub.records.state.decode_state` refuses

OFFSETS = several(number)
KEY = row(pair, number, text)
STORED = row(StoredState, number, text, number, data)

VERBS = {
    "apply": Verb((OFFSETS, many(row(StateWrite, number, text, number, maybe(data)))), flag, is_write=True),
    "drop_tenant": Verb((number,), number, is_write=True),
    "applied_offsets": Verb((), OFFSETS),
    "get_many": Verb((many(KEY),), many(STORED)),
    "page": Verb((maybe(number), maybe(KEY), number), many(STORED)),
}


class KeptStates(StateStore, Probed, Protocol):
    """What the store process needs of the file."""

    def load(self, tenant_id: int | None = None, after: tuple[int, str] | None = None) -> Iterator[StoredState]: ...


def state_port(states: KeptStates, clock: Clock) -> Port:
    """Return the port of the store process."""

    def page(tenant_id: int | None, after: tuple[int, str] | None, count: int) -> list[StoredState]:
        return list(map(sendable, islice(states.load(tenant_id, after), count)))

    def get_many(keys: list[tuple[int, str]]) -> list[StoredState]:
        return list(map(sendable, states.get_many(keys)))

    return Port(PORT, VERBS, states, clock, calls={"page": page, "get_many": get_many})


def sendable(stored: StoredState) -> StoredState:
    """Return a row as it may be sent. SQLite has values of any type in any column: what a record or an offset cannot be is a damaged record."""
    if type(stored.record) is bytes and type(stored.offset) is int:
        return stored
    return StoredState(stored.tenant_id, stored.client_id, 0, DAMAGED)


class RemoteStates:
    """Fulfils `StateStore`. Writing verbs belong to one thread, the others to any."""

    def __init__(
        self,
        path: Path,
        on_notices: OnNotices | None = None,
        *,
        connection: Callable[..., StoreConnection] = StoreConnection,
    ) -> None:
        self._writes = connection(path, PORT, VERBS, is_writer=True, on_notices=on_notices)
        self._reads = connection(path, PORT, VERBS)

    def close(self) -> None:
        self._writes.close()
        self._reads.close()

    def group(self) -> AbstractContextManager[None]:
        """Each verb is one commit."""
        return nullcontext()

    def probe(self) -> None:
        """Commit something small. Raises BackendError: the store process is away, or its file takes no writes."""
        self._writes.probe()

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        return bool(self._writes.write("apply", offsets, writes))

    def applied_offsets(self) -> Offsets:
        offsets: Offsets = self._reads.read("applied_offsets")
        return offsets

    def get(self, tenant_id: int, client_id: str) -> StoredState | None:
        return next(iter(self.get_many([(tenant_id, client_id)])), None)

    def get_many(self, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        found: list[StoredState] = self._reads.read("get_many", list(keys)) if keys else []
        return found

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        after: tuple[int, str] | None = None
        while True:
            page: list[StoredState] = self._reads.read("page", tenant_id, after, PAGE)
            yield from page
            if len(page) < PAGE:
                return
            after = page[-1][:2]

    def drop_tenant(self, tenant_id: int) -> int:
        return int(self._writes.write("drop_tenant", tenant_id))
