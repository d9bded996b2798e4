"""The session-state port (storage page, section 3): what every driver must do.

Knows records as bytes (`iothub.records.state` reads them) and offsets of the event log; knows no fold.
All methods block; drivers run in a thread of their own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol


class StateWrite(NamedTuple):
    """The whole folded record of one persistent session; None removes the row."""

    tenant_id: int
    client_id: str
    record: bytes | None


class StoredState(NamedTuple):
    """One row. `offset`: the event-log offset that its record includes."""

    tenant_id: int
    client_id: str
    offset: int
    record: bytes


class StateStore(Protocol):
    """One contract suite (`iothub.testing.state_contract`) holds every driver to this."""

    def group(self) -> AbstractContextManager[None]:
        """Everything done inside is one commit."""

    def apply(self, offset: int, writes: list[StateWrite]) -> bool:
        """Write records that include the log up to `offset`; durable when it returns.

        False, and nothing done, when that offset was applied before.
        """

    def applied_offset(self) -> int:
        """The log up to here is in the rows; 0 in a new store."""

    def get(self, tenant_id: int, client_id: str) -> StoredState | None: ...

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        """Every row (of one tenant), ascending by tenant and client id."""

    def forget(self, keys: list[tuple[int, str]]) -> None:
        """Remove rows (tombstones that the log no longer contradicts) without moving the applied offset."""

    def drop_tenant(self, tenant_id: int) -> int: ...

    def close(self) -> None: ...
