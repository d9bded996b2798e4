"""Whose the stores of a namespace are: a cell in each store, put by compare-and-swap by the first installation that uses it.

Knows tables and cells; what follows from another owner is `iothub.hub.installation`'s. The cell is in the row before all others of a table.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from iothub.base.errors import NotFoundError
from iothub.records import keys
from iothub.records.layout import missing_tables
from iothub.records.owner import Owner, decode_owner, encode_owner
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.refusals import NO_TABLE, HBaseError
from iothub_services.hbase.tables import Tables

T = TypeVar("T")


def owner_columns(tables: Tables) -> dict[bytes, bytes]:
    """Return in which tables, and there in which column, an owner is: a table for each store, whatever others that store has."""
    return {tables.state: b"s:i", tables.queue_index: b"i:i", tables.retained: b"r:i"}


def owners(caller: Caller, columns: Mapping[bytes, bytes]) -> dict[bytes, Owner | None]:
    """Return whose these tables are; None: nobody's yet. Raises BackendError, ConflictError, CorruptRecordError, NotFoundError."""
    asked = [calls.get_row(table, keys.META, (column,)) for table, column in columns.items()]
    found: dict[bytes, Owner | None] = {}
    for (table, column), row in zip(columns.items(), _answers(caller, asked), strict=True):
        cell = None if row is None else row.cells.get(column)
        found[table] = None if cell is None else decode_owner(cell.value, f"table {table.decode()}")
    return found


def claim(caller: Caller, columns: Mapping[bytes, bytes], owner: Owner) -> dict[bytes, Owner | None]:
    """Take those of these tables that are nobody's, and return whose they are then. May be repeated after it has failed. Raises as `owners`."""
    free = [table for table, has in owners(caller, columns).items() if has is None]
    value = encode_owner(owner)
    caller.call_all(
        [calls.check_and_put(table, keys.META, columns[table], None, (columns[table], value)) for table in free]
    )
    return owners(caller, columns)


def _answers(caller: Caller, asked: Sequence[Call[T]]) -> list[T]:
    try:
        return caller.call_all(asked)
    except HBaseError as error:
        if error.java_class == NO_TABLE:
            raise NotFoundError(missing_tables(error.text)) from error
        raise
