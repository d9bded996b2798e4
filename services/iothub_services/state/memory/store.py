"""The session-state port in plain Python objects, for tests. Nothing survives.

Knows no file and no thread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from iothub_services.events.port import NOWHERE, Offsets
from iothub_services.state.port import StateWrite, StoredState, applied_with


class MemoryStates:
    """Fulfils `StateStore`."""

    def __init__(self) -> None:
        self._rows: dict[tuple[int, str], StoredState] = {}
        self._applied: Offsets = NOWHERE

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def group(self) -> Iterator[None]:
        yield

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        applied = applied_with(self._applied, offsets)
        if applied == self._applied:
            return False
        self._applied = applied
        for tenant_id, client_id, offset, record in writes:
            key = tenant_id, client_id
            if record is None:
                self._rows.pop(key, None)
            elif key not in self._rows or self._rows[key].offset <= offset:
                self._rows[key] = StoredState(tenant_id, client_id, offset, record)
        return True

    def applied_offsets(self) -> Offsets:
        return self._applied

    def get(self, tenant_id: int, client_id: str) -> StoredState | None:
        return self._rows.get((tenant_id, client_id))

    def get_many(self, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        return [self._rows[key] for key in keys if key in self._rows]

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        for key in sorted(self._rows):
            if tenant_id in (None, key[0]):
                yield self._rows[key]

    def drop_tenant(self, tenant_id: int) -> int:
        keys = [key for key in self._rows if key[0] == tenant_id]
        for key in keys:
            del self._rows[key]
        return len(keys)
