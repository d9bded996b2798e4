"""The session-state port: what every driver must do.

Knows records as bytes (`iothub.records.state` reads them) and places in the event log; knows no fold.
All methods block; drivers run in a thread of their own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from iothub_services.events.port import Offsets


class StateWrite(NamedTuple):
    """The whole folded record of one persistent session; None removes the row.

    `offset`: of the last event that the record includes, in the partition of its key.
    """

    tenant_id: int
    client_id: str
    offset: int
    record: bytes | None


class StoredState(NamedTuple):
    """One row. `offset`: of the last event that its record includes, in the partition of its key.

    A damaged row has a record that `iothub.records.state.decode_state` refuses, whatever of it is damaged.
    """

    tenant_id: int
    client_id: str
    offset: int
    record: bytes


class StateStore(Protocol):
    """One contract suite (`iothub.testing.state_contract`) holds every driver to this."""

    def group(self) -> AbstractContextManager[None]:
        """Everything done inside is one commit."""

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        """Write records that include the log up to `offsets`; durable when it returns. A row never goes back to a lower offset.

        False, and nothing done, when all of that was applied before.
        """

    def applied_offsets(self) -> Offsets:
        """The log up to here is in the rows; empty in a new store. As long as what was applied last."""

    def get(self, tenant_id: int, client_id: str) -> StoredState | None: ...

    def get_many(self, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        """Those of these rows that are there, in any order. A server is asked for all of them at once."""

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        """Every row (of one tenant), ascending by tenant and client id."""

    def drop_tenant(self, tenant_id: int) -> int: ...

    def close(self) -> None: ...


def applied_with(applied: Offsets, offsets: Offsets) -> Offsets:
    """Return what is applied after `offsets`; a vector of another length is of another log, and takes the place of the old one."""
    if len(applied) != len(offsets):
        return offsets
    return tuple(map(max, applied, offsets))
