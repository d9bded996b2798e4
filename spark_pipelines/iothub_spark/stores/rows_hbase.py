"""Session rows in HBase, through its Thrift gateways by happybase: `state` to read, `checkpoints` to read and to write.

Knows rows as bytes; keys and cells are those of `iothub.records`. A part is what one region has of the rows that are wanted.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from itertools import islice
from typing import Any

import happybase
from Hbase_thrift import AlreadyExists, IllegalArgument, Mutation
from Hbase_thrift import IOError as HBaseIOError
from thriftpy2.thrift import TException

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.records import keys as row_keys
from iothub.records.checkpoint import Pointer, decode_pointer, decode_row, encode_pointer, encode_row
from iothub.records.job_spec import HBaseTables
from iothub.records.layout import (
    APPLIED_COLUMN,
    CHECKPOINT_COLUMN,
    CHECKPOINTS_TABLE,
    POINTER_COLUMN,
    STATE_COLUMN,
    STATES_TABLE,
    decode_applied,
    decode_state_row,
    hbase_table,
    missing_tables,
)
from iothub_spark.stores.rows import Offsets, Part, StateRow

_NO_TABLE = "org.apache.hadoop.hbase.TableNotFoundException"
_PAGE = 500  # rows per call of a scan, and per batch of changes
_ERRORS = (TException, HBaseIOError, IllegalArgument, AlreadyExists, OSError)


class _Table:
    """One table over one connection, to the first gateway that answers. What it does raises BackendError; NotFoundError: it is missing."""

    def __init__(self, settings: HBaseTables, name: str) -> None:
        self._settings = settings
        self.name = hbase_table(settings.namespace, name)
        self._connection = self._connected()
        self.rows = self._connection.table(self.name)

    def cell(self, key: bytes, column: bytes) -> bytes | None:
        with self.errors_translated():
            found: bytes | None = self.rows.row(key, columns=[column]).get(column)
        return found

    def scan(self, part: Part, column: bytes) -> Iterator[tuple[bytes, bytes]]:
        with self.errors_translated():
            found = self.rows.scan(row_start=part.start, row_stop=part.stop or None, columns=[column], batch_size=_PAGE)
            for key, cells in found:
                if column in cells:
                    yield key, cells[column]

    def put(self, cells: Iterable[tuple[bytes, bytes, bytes]]) -> None:
        """Write cells (row, column, value), many together."""
        with self.errors_translated(), self.rows.batch(batch_size=_PAGE) as batch:
            for key, column, value in cells:
                batch.put(key, {column: value})

    def delete(self, found: Iterable[bytes], column: bytes) -> int:
        count, coming = 0, iter(found)
        while some := list(islice(coming, _PAGE)):
            with self.errors_translated(), self.rows.batch(batch_size=_PAGE) as batch:
                for key in some:
                    batch.delete(key, columns=[column])
            count += len(some)
        return count

    def swap(self, key: bytes, column: bytes, before: bytes | None, after: bytes) -> bool:
        """Write a cell if it is now as expected."""
        put = Mutation(column=column, value=after)
        with self.errors_translated():
            done = self._connection.client.checkAndPut(self.name.encode(), key, column, before, put, {})
        return bool(done)

    def parts(self, whole: Part) -> list[Part]:
        """Return the regions' shares of a range of keys."""
        with self.errors_translated():
            regions = self.rows.regions()
        shares = [Part(max(whole.start, each["start_key"]), _lower(whole.stop, each["end_key"])) for each in regions]
        return [part for part in shares if not part.stop or part.start < part.stop]

    def close(self) -> None:
        with suppress(*_ERRORS):
            self._connection.close()

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        try:
            yield
        except _ERRORS as error:
            text = getattr(error, "message", None) or str(error) or type(error).__name__
            said = text.decode(errors="replace") if isinstance(text, bytes) else str(text)
            first = said.splitlines()[0][:300] if said else type(error).__name__
            if first.startswith(_NO_TABLE):
                raise NotFoundError(missing_tables(self.name)) from error
            raise BackendError(f"HBase table {self.name}: {first}", retryable=True, is_written=True) from error

    def _connected(self) -> Any:
        gateways = list(self._settings.thrift)
        for at, gateway in enumerate(gateways, 1):
            try:
                return happybase.Connection(
                    gateway.host,
                    gateway.port,
                    timeout=int(self._settings.timeout_s * 1000),
                    transport="framed",
                    protocol="binary",
                )
            except _ERRORS as error:
                if at == len(gateways):
                    tried = ", ".join(map(str, gateways))
                    raise BackendError(f"no HBase gateway answers at {tried}: {error}", retryable=True) from error
        raise BackendError("no HBase gateway is configured: set hbase.thrift", retryable=False)


class HBaseStates:
    """Fulfils `States`."""

    def __init__(self, settings: HBaseTables) -> None:
        self._table = _Table(settings, STATES_TABLE)

    def applied(self) -> Offsets:
        value = self._table.cell(row_keys.APPLIED_KEY, APPLIED_COLUMN)
        return () if value is None else decode_applied(value, f"table {self._table.name}, the applied offsets")

    def parts(self, pieces: int) -> list[Part]:
        del pieces
        return self._table.parts(Part(row_keys.tenant_key(row_keys.NO_TENANT)))

    def rows(self, part: Part) -> Iterator[StateRow]:
        for key, value in self._table.scan(part, STATE_COLUMN):
            row = StateRow(*decode_state_row(key, value))
            if row.record:
                yield row

    def close(self) -> None:
        self._table.close()


class HBaseCheckpoints:
    """Fulfils `Checkpoints`."""

    def __init__(self, settings: HBaseTables) -> None:
        self._table = _Table(settings, CHECKPOINTS_TABLE)

    def pointer(self) -> Pointer | None:
        value = self._table.cell(row_keys.POINTER_KEY, POINTER_COLUMN)
        return None if value is None else decode_pointer(value)

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        before = None if expected is None else encode_pointer(expected)
        try:
            return self._table.swap(row_keys.POINTER_KEY, POINTER_COLUMN, before, encode_pointer(to))
        except BackendError:
            if self._is_at(to):
                return True
            raise

    def _is_at(self, wanted: Pointer) -> bool:
        """Say whether the pointer is this one: an answer was lost, and no two runs want the same pointer."""
        try:
            return self.pointer() == wanted
        except BackendError:
            return False

    def write(self, version: int, rows: Iterable[StateRow]) -> None:
        self._table.put(
            (
                row_keys.checkpoint_key(version, row.tenant_id, row.client_id),
                CHECKPOINT_COLUMN,
                encode_row(row.offset, row.record),
            )
            for row in rows
        )

    def parts(self, version: int, pieces: int) -> list[Part]:
        del pieces
        prefix = row_keys.checkpoint_prefix(version)
        return self._table.parts(Part(prefix, row_keys.prefix_end(prefix)))

    def rows(self, version: int, part: Part) -> Iterator[StateRow]:
        del version
        for key, value in self._table.scan(part, CHECKPOINT_COLUMN):
            _, tenant_id, client_id = row_keys.session_of_checkpoint(key)
            yield StateRow(tenant_id, client_id, *decode_row(value))

    def get(self, version: int, keys: list[tuple[int, str]]) -> list[StateRow]:
        found = [(key, self._table.cell(row_keys.checkpoint_key(version, *key), CHECKPOINT_COLUMN)) for key in keys]
        return [StateRow(*key, *decode_row(value)) for key, value in found if value is not None]

    def versions(self) -> list[int]:
        found: list[int] = []
        start = row_keys.RECORD
        while (first := next(self._table.scan(Part(start), CHECKPOINT_COLUMN), None)) is not None:
            version, _, _ = row_keys.session_of_checkpoint(first[0])
            found.append(version)
            start = row_keys.prefix_end(row_keys.checkpoint_prefix(version))
        return found

    def drop(self, version: int) -> int:
        pointer = self.pointer()
        if pointer is not None and pointer.version == version:
            raise ConflictError(f"checkpoint {version} is in use and cannot be deleted")
        prefix = row_keys.checkpoint_prefix(version)
        whole = Part(prefix, row_keys.prefix_end(prefix))
        return self._table.delete((key for key, _ in self._table.scan(whole, CHECKPOINT_COLUMN)), CHECKPOINT_COLUMN)

    def marks(self) -> dict[str, bytes]:
        whole = Part(row_keys.MARKS, row_keys.prefix_end(row_keys.MARKS))
        found = self._table.scan(whole, POINTER_COLUMN)
        return {key.removeprefix(row_keys.MARKS).decode(): value for key, value in found}

    def set_mark(self, name: str, value: bytes | None) -> None:
        key = row_keys.MARKS + name.encode()
        if value is None:
            self._table.delete([key], POINTER_COLUMN)
        else:
            self._table.put([(key, POINTER_COLUMN, value)])

    def close(self) -> None:
        self._table.close()


def _lower(one: bytes, other: bytes) -> bytes:
    """Return the lower end of two; an empty one is none."""
    return min(one, other) if one and other else one or other
