"""The checkpoint port on one SQLite file, `checkpoints.db`: a file of its own, so that a job that writes it never holds up the hub.

Knows rows as bytes. The first job makes the file; a hub that finds none starts without.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice

from iothub.base.errors import ConflictError
from iothub.records.checkpoint import Pointer, decode_pointer, decode_row, encode_pointer, encode_row
from iothub.records.layout import (
    CHECKPOINT_TABLE,
    CHECKPOINTS_FILE,
    CHECKPOINTS_FILE_VERSION,
    MARK_TABLE,
    POINTER_TABLE,
)
from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.store import SqliteStore
from iothub_services.state.checkpoints import in_use
from iothub_services.state.port import StoredState

_PAGE = 2_000  # rows per query, and per commit

SCHEMA = Schema(
    name="checkpoints",
    version=CHECKPOINTS_FILE_VERSION,
    cache_bytes=256 << 10,  # read once, from its beginning to its end
    tables={POINTER_TABLE: "pointers", MARK_TABLE: "marks of jobs", CHECKPOINT_TABLE: "states in checkpoints"},
    statements=CHECKPOINTS_FILE,
)


class SqliteCheckpoints(SqliteStore):
    """Fulfils `CheckpointStore`."""

    def pointer(self) -> Pointer | None:
        with self._database.reading() as connection:
            value = _pointer(connection)
        return None if value is None else decode_pointer(value)

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        with self._database.transaction() as connection:
            if _pointer(connection) != (None if expected is None else encode_pointer(expected)):
                return False
            connection.execute("INSERT OR REPLACE INTO pointer VALUES (0, ?)", (encode_pointer(to),))
            return True

    def rows(self, version: int, after: tuple[int, str] = (-1, "")) -> Iterator[StoredState]:
        """Fulfil the port; `after`: only the rows that follow the one of this session."""
        statement = """SELECT tenant, client_id, value FROM checkpoint
            WHERE version = ? AND (tenant, client_id) > (?, ?) ORDER BY tenant, client_id LIMIT ?"""
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(statement, (version, *after, _PAGE)).fetchall()
            for tenant_id, client_id, value in rows:
                yield StoredState(tenant_id, client_id, *decode_row(value))
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]

    def write(self, version: int, rows: Iterable[StoredState]) -> None:
        coming = iter(rows)
        while some := list(islice(coming, _PAGE)):
            with self._database.transaction() as connection:
                connection.executemany(
                    "INSERT OR REPLACE INTO checkpoint VALUES (?, ?, ?, ?)",
                    [(version, row.tenant_id, row.client_id, encode_row(row.offset, row.record)) for row in some],
                )

    def versions(self) -> list[int]:
        statement = "SELECT min(version) FROM checkpoint WHERE version > ?"
        found = [-1]
        with self._database.reading() as connection:
            while (version := connection.execute(statement, (found[-1],)).fetchone()[0]) is not None:
                found.append(version)
        return found[1:]

    def drop(self, version: int) -> int:
        with self._database.transaction() as connection:
            value = _pointer(connection)
            if value is not None and decode_pointer(value).version == version:
                raise ConflictError(in_use(version))
            return connection.execute("DELETE FROM checkpoint WHERE version = ?", (version,)).rowcount


def _pointer(connection: sqlite3.Connection) -> bytes | None:
    found = connection.execute("SELECT value FROM pointer").fetchone()
    return None if found is None else bytes(found[0])
