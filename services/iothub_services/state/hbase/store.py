"""The session-state port on HBase: a row per persistent session, whose cell's timestamp says up to where the log is folded into it.

Knows records as bytes. Any thread may use it, and several hubs may share the table.

Theory: HBase shows the cell with the highest timestamp, so a late write never takes a row back, and no write has to compare. Rows are folded
together up to one place in each partition, and that place is the timestamp of all of a partition's rows: the row says the same at its own
offset and anywhere up to there, and one call writes many rows. A row that is to be gone is an empty record: an older write stays below it, which
a delete of HBase's would not see to after its next major compaction. How far the log is applied is a row of its own, moved by
compare-and-swap after the rows are durable: a crash between the two repeats writes that change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager

from iothub.base.errors import BackendError
from iothub.records import keys as row_keys
from iothub.records.events import partition_of
from iothub.records.layout import (
    APPLIED_COLUMN,
    STATE_COLUMN,
    decode_applied,
    decode_state_row,
    encode_applied,
    encode_state_cell,
)
from iothub_services.events.port import NOWHERE, Offsets, reached
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import change_rows, pages
from iothub_services.hbase.replies import Row
from iothub_services.hbase.tables import Tables
from iothub_services.state.port import StateWrite, StoredState, applied_with

_SWAPS = 16  # others may be quicker; then it is tried again
_ROWS = 64  # asked for in one call


class HBaseStates:
    """Fulfils `StateStore`. The caller stays its owner's."""

    def __init__(self, caller: Caller, tables: Tables) -> None:
        self._caller = caller
        self._table = tables.state

    def close(self) -> None:
        """Nothing is open: the connections are the caller's."""

    @contextmanager
    def group(self) -> Iterator[None]:
        """Every `apply` is durable by itself here."""
        yield

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        before = self.applied_offsets()
        if applied_with(before, offsets) == before:
            return False
        places: dict[int | None, list[Mutation]] = {}
        for write in writes:
            places.setdefault(_place(write, offsets), []).append(_put(write))
        change_rows(self._caller, self._table, places)
        self._advance(offsets)
        return True

    def applied_offsets(self) -> Offsets:
        return self._applied()[1]

    def get(self, tenant_id: int, client_id: str) -> StoredState | None:
        return next(iter(self.get_many([(tenant_id, client_id)])), None)

    def get_many(self, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        asked = [calls.get_rows(self._table, some, (STATE_COLUMN,)) for some in _in_pieces(keys)]
        found = (_stored(row) for rows in self._caller.call_all(asked) for row in rows)
        return [stored for stored in found if stored is not None]

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        for rows in self._pages(tenant_id):
            yield from filter(None, map(_stored, rows))

    def drop_tenant(self, tenant_id: int) -> int:
        count = 0
        for rows in self._pages(tenant_id):
            living = [row for row in rows if STATE_COLUMN in row.cells]
            if living:
                newest = max(row.cells[STATE_COLUMN].timestamp for row in living)
                gone = [Mutation(row.key, {}, (STATE_COLUMN,)) for row in living]
                self._caller.call(calls.mutate_rows(self._table, gone, newest))
            count += sum(_stored(row) is not None for row in living)
        return count

    def _pages(self, tenant_id: int | None) -> Iterator[list[Row]]:
        """Scan a tenant's rows, or those of all; the row of the applied offsets sorts before them."""
        start = row_keys.tenant_key(tenant_id or row_keys.NO_TENANT)
        stop = b"" if tenant_id is None else row_keys.prefix_end(start)
        return pages(self._caller, Scan(self._table, start, stop, (STATE_COLUMN,)))

    # --- how far the log is applied

    def _applied(self) -> tuple[bytes | None, Offsets]:
        """Return the cell's bytes, for a swap, and what they say."""
        row = self._caller.call(calls.get_row(self._table, row_keys.APPLIED_KEY, (APPLIED_COLUMN,)))
        if row is None or APPLIED_COLUMN not in row.cells:
            return None, NOWHERE
        value = row.cells[APPLIED_COLUMN].value
        return value, decode_applied(value, f"table {self._table.decode()}, the applied offsets")

    def _advance(self, offsets: Offsets) -> None:
        for _ in range(_SWAPS):
            value, before = self._applied()
            after = applied_with(before, offsets)
            if after == before:
                return
            put = (APPLIED_COLUMN, encode_applied(after))
            if self._caller.call(calls.check_and_put(self._table, row_keys.APPLIED_KEY, APPLIED_COLUMN, value, put)):
                return
        raise BackendError(
            f"table {self._table.decode()}: concurrent updates of the applied offsets; gave up after {_SWAPS} tries",
            retryable=True,
            is_written=True,
        )


def _stored(row: Row) -> StoredState | None:
    """Return what a row says; None: the session is gone."""
    cell = row.cells.get(STATE_COLUMN)
    if cell is None:
        return None
    stored = StoredState(*decode_state_row(row.key, cell.value))
    return stored if stored.record else None


def _place(write: StateWrite, offsets: Offsets) -> int:
    """Return up to where the log is folded into a row: at least its own offset."""
    key = f"{write.tenant_id}/{write.client_id}"
    return max(write.offset, reached(offsets, partition_of(key, len(offsets))) if offsets else 0)


def _put(write: StateWrite) -> Mutation:
    key = row_keys.state_key(write.tenant_id, write.client_id)
    return Mutation(key, {STATE_COLUMN: encode_state_cell(write.offset, write.record or b"")})


def _in_pieces(keys: Collection[tuple[int, str]]) -> Iterator[list[bytes]]:
    """Yield row keys, not too many at once: what a row has behind its key is not known."""
    wanted = [row_keys.state_key(*key) for key in keys]
    return (wanted[start : start + _ROWS] for start in range(0, len(wanted), _ROWS))
