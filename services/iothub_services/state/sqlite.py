"""The default driver of the session-state port: one `state.db`, a row per persistent session, guarded by the log's offset.

Knows records as bytes. `apply` belongs to one thread, `get` and `load` to another one (or the same): they see what is committed.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.salvage import Table
from iothub_services.sqlite.store import SqliteStore
from iothub_services.state.port import StateWrite, StoredState

_PAGE = 500  # rows per query of a load

SCHEMA = Schema(
    name="state",
    version=1,
    tables=(
        Table("applied", ("id", "offset"), ("id",)),
        Table("session", ("tenant", "client_id", "offset", "record"), ("tenant", "client_id")),
    ),
    statements=(
        "CREATE TABLE applied (id INTEGER PRIMARY KEY CHECK (id = 1), offset INTEGER NOT NULL)",
        "INSERT INTO applied VALUES (1, 0)",
        """CREATE TABLE session (
            tenant INTEGER NOT NULL, client_id TEXT NOT NULL, offset INTEGER NOT NULL, record BLOB NOT NULL,
            PRIMARY KEY (tenant, client_id)) WITHOUT ROWID""",
    ),
    repairs=(
        # rows were lost: only the whole log can tell which
        "UPDATE applied SET offset = 0",
    ),
)


class SqliteStates(SqliteStore):
    """Fulfils `StateStore`."""

    def apply(self, offset: int, writes: list[StateWrite]) -> bool:
        with self._database.transaction() as connection:
            if offset <= int(connection.execute("SELECT offset FROM applied").fetchone()[0]):
                return False
            connection.execute("UPDATE applied SET offset = ?", (offset,))
            for tenant_id, client_id, record in writes:
                if record is None:
                    statement = "DELETE FROM session WHERE tenant = ? AND client_id = ?"
                    connection.execute(statement, (tenant_id, client_id))
                else:
                    row = (tenant_id, client_id, offset, record)
                    connection.execute("INSERT OR REPLACE INTO session VALUES (?, ?, ?, ?)", row)
            return True

    def applied_offset(self) -> int:
        with self._database.reading() as connection:
            return int(connection.execute("SELECT offset FROM applied").fetchone()[0])

    def get(self, tenant_id: int, client_id: str) -> StoredState | None:
        statement = "SELECT tenant, client_id, offset, record FROM session WHERE tenant = ? AND client_id = ?"
        with self._database.reading() as connection:
            row = connection.execute(statement, (tenant_id, client_id)).fetchone()
        return None if row is None else StoredState._make(row)

    def load(self, tenant_id: int | None = None) -> Iterator[StoredState]:
        statement = """SELECT tenant, client_id, offset, record FROM session
            WHERE (tenant, client_id) > (?, ?) AND tenant <= ? ORDER BY tenant, client_id LIMIT ?"""
        after = (-1, "") if tenant_id is None else (tenant_id, "")
        last = (1 << 62) if tenant_id is None else tenant_id
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(statement, (*after, last, _PAGE)).fetchall()
            yield from (StoredState._make(row) for row in rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][:2]

    def forget(self, keys: list[tuple[int, str]]) -> None:
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM session WHERE tenant = ? AND client_id = ?", keys)

    def drop_tenant(self, tenant_id: int) -> int:
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM session WHERE tenant = ?", (tenant_id,)).rowcount
