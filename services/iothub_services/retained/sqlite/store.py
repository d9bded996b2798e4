"""The default driver of the retained port: one `retained.db`.

Knows no wildcard. Writing verbs belong to one thread, `load`, `fetch` and `usage` to another one (or the same): they see what is committed.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator

from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedUsage, RetainedWrite
from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.store import SqliteStore

_PAGE = 500  # topics of an index per query

SCHEMA = Schema(
    name="retained",
    version=1,
    tables={"version": "counters of tenants", "retained": "Retained Messages"},
    statements=(
        "CREATE TABLE version (tenant INTEGER PRIMARY KEY, last INTEGER NOT NULL)",
        """CREATE TABLE retained (
            tenant INTEGER NOT NULL, topic BLOB NOT NULL, version INTEGER NOT NULL, expires_at_ms INTEGER NOT NULL,
            size INTEGER NOT NULL, body BLOB NOT NULL, PRIMARY KEY (tenant, topic)) WITHOUT ROWID""",
        "CREATE INDEX retained_expiry ON retained (expires_at_ms) WHERE expires_at_ms > 0",
    ),
    repairs=(
        """INSERT INTO version SELECT tenant, max(version) FROM retained WHERE true GROUP BY tenant
            ON CONFLICT (tenant) DO UPDATE SET last = max(last, excluded.last)""",
    ),
)


# SQLite keeps a value of any type in any column, as another tool may have left it
_NUMBERS = "CAST(version AS INTEGER), CAST(expires_at_ms AS INTEGER)"
_SIZE = "CAST(size AS INTEGER)"
_BODY = "CAST(body AS BLOB)"


class SqliteRetained(SqliteStore):
    """Fulfils `RetainedStore`."""

    def put(self, writes: list[RetainedWrite]) -> list[int]:
        with self._database.transaction() as connection:
            return [_put(connection, write) for write in writes]

    def load(self, tenant_id: int, after: bytes = b"") -> Iterator[RetainedTopic]:
        statement = (
            f"SELECT topic, {_NUMBERS}, {_SIZE} FROM retained WHERE tenant = ? AND topic > ? ORDER BY topic LIMIT ?"  # noqa: S608
        )
        while True:
            with self._database.reading() as connection:
                rows = connection.execute(statement, (tenant_id, after, _PAGE)).fetchall()
            yield from map(RetainedTopic._make, rows)
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        statement = f"SELECT topic, {_NUMBERS}, {_BODY} FROM retained WHERE tenant = ? AND topic = ?"  # noqa: S608
        with self._database.reading() as connection:
            found = (connection.execute(statement, (tenant_id, topic)).fetchone() for topic in topics)
            rows = [row for row in found if row is not None]
        return list(map(RetainedBody._make, rows))

    def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        with self._database.transaction() as connection:
            return sum(_delete(connection, tenant_id, topic) for topic in topics)

    def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        statement = "SELECT tenant, topic FROM retained WHERE expires_at_ms > 0 AND expires_at_ms <= ? LIMIT ?"
        with self._database.transaction() as connection:
            gone: list[tuple[int, bytes]] = connection.execute(statement, (now_ms, count)).fetchall()
            for tenant_id, topic in gone:
                _delete(connection, tenant_id, topic)
        return gone

    def usage(self, tenant_id: int) -> RetainedUsage:
        with self._database.reading() as connection:
            statement = "SELECT count(*), coalesce(sum(size), 0) FROM retained WHERE tenant = ?"
            return RetainedUsage._make(connection.execute(statement, (tenant_id,)).fetchone())

    def drop_tenant(self, tenant_id: int) -> int:
        with self._database.transaction() as connection:
            connection.execute("DELETE FROM version WHERE tenant = ?", (tenant_id,))
            return connection.execute("DELETE FROM retained WHERE tenant = ?", (tenant_id,)).rowcount


def _put(connection: sqlite3.Connection, write: RetainedWrite) -> int:
    version = _next_version(connection, write.tenant_id)
    if write.body is None:
        connection.execute("DELETE FROM retained WHERE tenant = ? AND topic = ?", (write.tenant_id, write.topic))
    else:
        row = (write.tenant_id, write.topic, version, write.expires_at_ms, len(write.body), write.body)
        connection.execute("INSERT OR REPLACE INTO retained VALUES (?, ?, ?, ?, ?, ?)", row)
    return version


def _delete(connection: sqlite3.Connection, tenant_id: int, topic: bytes) -> int:
    statement = "DELETE FROM retained WHERE tenant = ? AND topic = ?"
    count = connection.execute(statement, (tenant_id, topic)).rowcount
    if count:
        _next_version(connection, tenant_id)
    return count


def _next_version(connection: sqlite3.Connection, tenant_id: int) -> int:
    statement = """INSERT INTO version VALUES (?, 1)
        ON CONFLICT (tenant) DO UPDATE SET last = last + 1 RETURNING last"""
    return int(connection.execute(statement, (tenant_id,)).fetchone()[0])
