"""The default driver of the session-state port: one `state.db`, a row per persistent session, guarded by its offset in the log.

Knows records as bytes. `apply` belongs to one thread, `get` and `load` to another one (or the same): they see what is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Iterator

from iothub.records.layout import STATE_FILE_VERSION
from iothub_services.events.port import Offsets
from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.store import SqliteStore
from iothub_services.state.port import StateWrite, StoredState, applied_with

_PAGE = 500  # rows per query of a load

SCHEMA = Schema(
    name="state",
    version=STATE_FILE_VERSION,
    tables={"session": "session states"},
    statements=(
        "CREATE TABLE applied (partition INTEGER PRIMARY KEY, offset INTEGER NOT NULL)",
        """CREATE TABLE session (
            tenant INTEGER NOT NULL, client_id TEXT NOT NULL, offset INTEGER NOT NULL, record BLOB NOT NULL,
            PRIMARY KEY (tenant, client_id)) WITHOUT ROWID""",
    ),
    # `applied` is not saved from a damaged file: rows were lost, and only a fold of the whole log shows which
)


_PUT = """INSERT INTO session VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE
    SET offset = excluded.offset, record = excluded.record WHERE excluded.offset >= session.offset"""


class SqliteStates(SqliteStore):
    """Fulfils `StateStore`."""

    def apply(self, offsets: Offsets, writes: list[StateWrite]) -> bool:
        with self._database.transaction() as connection:
            before = _applied(connection)
            applied = applied_with(before, offsets)
            if applied == before:
                return False
            connection.execute("DELETE FROM applied")
            connection.executemany("INSERT INTO applied VALUES (?, ?)", enumerate(applied))
            gone = [(write.tenant_id, write.client_id) for write in writes if write.record is None]
            connection.executemany("DELETE FROM session WHERE tenant = ? AND client_id = ?", gone)
            connection.executemany(_PUT, [write for write in writes if write.record is not None])
            return True

    def applied_offsets(self) -> Offsets:
        with self._database.reading() as connection:
            return _applied(connection)

    def get(self, tenant_id: int, client_id: str) -> StoredState | None:
        return next(iter(self.get_many([(tenant_id, client_id)])), None)

    def get_many(self, keys: Collection[tuple[int, str]]) -> list[StoredState]:
        statement = "SELECT tenant, client_id, offset, record FROM session WHERE tenant = ? AND client_id = ?"
        with self._database.reading() as connection:
            rows = [connection.execute(statement, key).fetchone() for key in keys]
        return [StoredState._make(row) for row in rows if row is not None]

    def load(self, tenant_id: int | None = None, after: tuple[int, str] | None = None) -> Iterator[StoredState]:
        """Fulfil the port; `after`: only the rows that follow the one of this session."""
        statement = """SELECT tenant, client_id, offset, record FROM session
            WHERE (tenant, client_id) > (?, ?) AND tenant <= ? ORDER BY tenant, client_id LIMIT ?"""
        after = after or ((-1, "") if tenant_id is None else (tenant_id, ""))
        last = (1 << 62) if tenant_id is None else tenant_id
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(statement, (*after, last, _PAGE)).fetchall()
            yield from (StoredState._make(row) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]

    def drop_tenant(self, tenant_id: int) -> int:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM session WHERE tenant = ?", (tenant_id,)).rowcount


def _applied(connection: sqlite3.Connection) -> Offsets:
    return tuple(int(offset) for (offset,) in connection.execute("SELECT offset FROM applied ORDER BY partition"))
