"""The checkpoint port on HBase: rows below their version, and one row that is swapped when another version is to count.

Knows rows as bytes. A job may write the same table with any other client: row keys and cells are those of `iothub.records`.

Theory: a version's rows are written before anything reads them, so an unfinished job leaves only garbage. The pointer changes by compare-and-swap;
a swap whose answer was lost is known by what the pointer says afterwards, for no two jobs want the same pointer.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice

from iothub.base.errors import BackendError, ConflictError
from iothub.records import keys
from iothub.records.checkpoint import Pointer, decode_pointer, decode_row, encode_pointer, encode_row
from iothub.records.layout import CHECKPOINT_COLUMN, POINTER_COLUMN
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import change_rows, pages
from iothub_services.hbase.tables import Tables
from iothub_services.state.checkpoints import in_use
from iothub_services.state.port import StoredState

_ROWS = 1_000  # written together


class HBaseCheckpoints:
    """Fulfils `CheckpointStore`. The caller stays its owner's."""

    def __init__(self, caller: Caller, tables: Tables) -> None:
        self._caller = caller
        self._table = tables.checkpoints

    def close(self) -> None:
        """Nothing is open: the connections are the caller's."""

    def pointer(self) -> Pointer | None:
        row = self._caller.call(calls.get_row(self._table, keys.POINTER_KEY, (POINTER_COLUMN,)))
        return None if row is None else decode_pointer(row.cells[POINTER_COLUMN].value)

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        before = None if expected is None else encode_pointer(expected)
        put = (POINTER_COLUMN, encode_pointer(to))
        try:
            return self._caller.call(calls.check_and_put(self._table, keys.POINTER_KEY, POINTER_COLUMN, before, put))
        except BackendError as error:
            if error.is_written and self._is_at(to):
                return True
            raise

    def _is_at(self, wanted: Pointer) -> bool:
        """Say whether the pointer is this one; also False when that cannot be read."""
        try:
            return self.pointer() == wanted
        except BackendError:
            return False

    def rows(self, version: int) -> Iterator[StoredState]:
        for page in pages(self._caller, self._scan(version)):
            for row in page:
                _, tenant_id, client_id = keys.session_of_checkpoint(row.key)
                yield StoredState(tenant_id, client_id, *decode_row(row.cells[CHECKPOINT_COLUMN].value))

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        coming = iter(rows)
        while some := list(islice(coming, _ROWS)):
            changes = [
                Mutation(
                    keys.checkpoint_key(version, row.tenant_id, row.client_id),
                    {CHECKPOINT_COLUMN: encode_row(row.offset, row.record)},
                )
                for row in some
            ]
            change_rows(self._caller, self._table, {None: changes})

    def versions(self) -> list[int]:
        found: list[int] = []
        start = keys.RECORD
        while (
            page := next(pages(self._caller, Scan(self._table, start, columns=(CHECKPOINT_COLUMN,), caching=1)), None)
        ) is not None:
            version, _, _ = keys.session_of_checkpoint(page[0].key)
            found.append(version)
            start = keys.prefix_end(keys.checkpoint_prefix(version))
        return found

    def drop(self, version: int) -> int:
        pointer = self.pointer()
        if pointer is not None and pointer.version == version:
            raise ConflictError(in_use(version))
        count = 0
        for page in pages(self._caller, self._scan(version)):
            self._caller.call(
                calls.mutate_rows(self._table, [Mutation(row.key, {}, (CHECKPOINT_COLUMN,)) for row in page])
            )
            count += len(page)
        return count

    def _scan(self, version: int) -> Scan:
        prefix = keys.checkpoint_prefix(version)
        return Scan(self._table, prefix, keys.prefix_end(prefix), (CHECKPOINT_COLUMN,))
