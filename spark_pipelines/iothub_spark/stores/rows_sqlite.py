"""Session rows in the files of the embedded default: `state.db` to read, `checkpoints.db` to read and to write.

Knows rows as bytes. Several tasks write `checkpoints.db` by turns; rows need no sync of their own, for the pointer's commit syncs all before it.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable, Iterator
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

from iothub.base.errors import ConflictError, NotFoundError
from iothub.records import keys
from iothub.records.checkpoint import Pointer, decode_pointer, decode_row, encode_pointer, encode_row
from iothub.records.layout import (
    APPLIED_TABLE,
    CHECKPOINT_TABLE,
    CHECKPOINTS_FILE,
    CHECKPOINTS_FILE_VERSION,
    MARK_TABLE,
    POINTER_TABLE,
    STATE_FILE_VERSION,
    STATE_TABLE,
)
from iothub_spark.stores.log_sqlite import connect, errors_translated, require_version
from iothub_spark.stores.rows import Offsets, Part, StateRow

_PAGE = 5_000  # rows per statement, and per commit
_DROPPED = 2_000  # in one transaction
_LAST = (1 << 62, "")  # behind every session


class SqliteStates:
    """Fulfils `States`."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"{path}: there are no session states yet: the first `iothub serve` creates them")
        self._path = path
        self._connection = connect(path, is_read_only=True)
        require_version(self._connection, path, STATE_FILE_VERSION)

    def applied(self) -> Offsets:
        with errors_translated(self._path):
            found = self._connection.execute(f"SELECT offset FROM {APPLIED_TABLE} ORDER BY partition").fetchall()  # noqa: S608
        return tuple(int(offset) for (offset,) in found)

    def parts(self, pieces: int) -> list[Part]:
        with errors_translated(self._path):
            return _parts(self._connection, STATE_TABLE, "1", (), pieces)

    def rows(self, part: Part) -> Iterator[StateRow]:
        statement = f"SELECT tenant, client_id, offset, record FROM {STATE_TABLE} WHERE 1 AND {_PART}"  # noqa: S608
        for tenant_id, client_id, (offset, record) in _pages(self._connection, self._path, statement, (), part):
            yield StateRow(tenant_id, client_id, offset, record)

    def close(self) -> None:
        self._connection.close()


class SqliteCheckpoints:
    """Fulfils `Checkpoints`. The first job makes the file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        if not path.is_file() and path.parent.is_dir():
            os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        self._connection = connect(path)
        with errors_translated(path):
            self._connection.execute("PRAGMA journal_mode=WAL")
            self._prepare()

    def pointer(self) -> Pointer | None:
        with errors_translated(self._path):
            value = _pointer(self._connection)
        return None if value is None else decode_pointer(value)

    def move(self, expected: Pointer | None, to: Pointer) -> bool:
        with errors_translated(self._path):
            self._connection.execute("PRAGMA synchronous=FULL")
            self._connection.execute("BEGIN IMMEDIATE")
            is_expected = _pointer(self._connection) == (None if expected is None else encode_pointer(expected))
            if is_expected:
                statement = f"INSERT OR REPLACE INTO {POINTER_TABLE} VALUES (0, ?)"  # noqa: S608
                self._connection.execute(statement, (encode_pointer(to),))
            self._connection.execute("COMMIT")
        return is_expected

    def write(self, version: int, rows: Iterable[StateRow]) -> None:
        coming = iter(rows)
        statement = f"INSERT OR REPLACE INTO {CHECKPOINT_TABLE} VALUES (?, ?, ?, ?)"  # noqa: S608
        with errors_translated(self._path):
            self._connection.execute("PRAGMA synchronous=NORMAL")
        while some := list(islice(coming, _PAGE)):
            made = [(version, row.tenant_id, row.client_id, encode_row(row.offset, row.record)) for row in some]
            with errors_translated(self._path):
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.executemany(statement, made)
                self._connection.execute("COMMIT")

    def parts(self, version: int, pieces: int) -> list[Part]:
        with errors_translated(self._path):
            return _parts(self._connection, CHECKPOINT_TABLE, "version = ?", (version,), pieces)

    def rows(self, version: int, part: Part) -> Iterator[StateRow]:
        statement = f"SELECT tenant, client_id, value FROM {CHECKPOINT_TABLE} WHERE version = ? AND {_PART}"  # noqa: S608
        for tenant_id, client_id, (value,) in _pages(self._connection, self._path, statement, (version,), part):
            yield StateRow(tenant_id, client_id, *decode_row(value))

    def get(self, version: int, keys: list[tuple[int, str]]) -> list[StateRow]:
        statement = f"SELECT value FROM {CHECKPOINT_TABLE} WHERE version = ? AND tenant = ? AND client_id = ?"  # noqa: S608
        with errors_translated(self._path):
            found = [(key, self._connection.execute(statement, (version, *key)).fetchone()) for key in keys]
        return [StateRow(*key, *decode_row(row[0])) for key, row in found if row is not None]

    def versions(self) -> list[int]:
        statement = f"SELECT min(version) FROM {CHECKPOINT_TABLE} WHERE version > ?"  # noqa: S608
        found = [-1]
        with errors_translated(self._path):
            while (version := self._connection.execute(statement, (found[-1],)).fetchone()[0]) is not None:
                found.append(version)
        return found[1:]

    def drop(self, version: int) -> int:
        statement = f"""DELETE FROM {CHECKPOINT_TABLE} WHERE version = ?1 AND (tenant, client_id) IN
            (SELECT tenant, client_id FROM {CHECKPOINT_TABLE} WHERE version = ?1 LIMIT ?2)"""  # noqa: S608
        pointer = self.pointer()
        if pointer is not None and pointer.version == version:
            raise ConflictError(f"checkpoint {version} is in use and cannot be deleted")
        removed = 0
        with errors_translated(self._path):
            while count := self._connection.execute(statement, (version, _DROPPED)).rowcount:
                removed += count
        return removed

    def marks(self) -> dict[str, bytes]:
        with errors_translated(self._path):
            found = self._connection.execute(f"SELECT name, value FROM {MARK_TABLE} ORDER BY name").fetchall()  # noqa: S608
        return {name.decode(): value for name, value in found}

    def set_mark(self, name: str, value: bytes | None) -> None:
        with errors_translated(self._path):
            self._connection.execute("PRAGMA synchronous=FULL")
            if value is None:
                self._connection.execute(f"DELETE FROM {MARK_TABLE} WHERE name = ?", (name,))  # noqa: S608
            else:
                statement = f"INSERT OR REPLACE INTO {MARK_TABLE} VALUES (?, ?)"  # noqa: S608
                self._connection.execute(statement, (name, value))

    def close(self) -> None:
        self._connection.close()

    def _prepare(self) -> None:
        """Make the tables of a new file."""
        self._connection.execute("BEGIN IMMEDIATE")
        version = require_version(self._connection, self._path, CHECKPOINTS_FILE_VERSION)
        for statement in CHECKPOINTS_FILE if version == 0 else ():
            self._connection.execute(statement)
        self._connection.execute(f"PRAGMA user_version={CHECKPOINTS_FILE_VERSION}")
        self._connection.execute("COMMIT")


_PART = "(tenant, client_id) {} (?, ?) AND (tenant, client_id) < (?, ?) ORDER BY tenant, client_id LIMIT ?"


def _pages(
    connection: sqlite3.Connection, path: Path, statement: str, fixed: tuple[int, ...], part: Part
) -> Iterator[tuple[int, str, Any]]:
    """Yield rows page by page, each page a statement of its own; text becomes `str`."""
    comparison, after = ">=", _session(part.start) if part.start else (-1, "")
    stop = _session(part.stop) if part.stop else _LAST
    while True:
        with errors_translated(path):
            rows = connection.execute(statement.format(comparison), (*fixed, *after, *stop, _PAGE)).fetchall()
        for tenant_id, client_id, *rest in rows:
            yield tenant_id, client_id.decode(), rest
        if len(rows) < _PAGE:
            return
        comparison, after = ">", (rows[-1][0], rows[-1][1].decode())


def _parts(connection: sqlite3.Connection, table: str, which: str, fixed: tuple[int, ...], pieces: int) -> list[Part]:
    """Cut the keys into even pieces; the cuts are rows."""
    count = connection.execute(f"SELECT count(*) FROM {table} WHERE {which}", fixed).fetchone()[0]  # noqa: S608
    size = max(_PAGE, -(-count // max(1, pieces)))
    statement = f"SELECT tenant, client_id FROM {table} WHERE {which} ORDER BY tenant, client_id LIMIT 1 OFFSET ?"  # noqa: S608
    cuts = [connection.execute(statement, (*fixed, place)).fetchone() for place in range(size, count, size)]
    bounds = [b"", *(keys.state_key(tenant_id, client_id.decode()) for tenant_id, client_id in cuts), b""]
    return [Part(start, stop) for start, stop in pairwise(bounds)]


def _session(key: bytes) -> tuple[int, str]:
    return keys.session_of_state(key)


def _pointer(connection: sqlite3.Connection) -> bytes | None:
    found = connection.execute(f"SELECT value FROM {POINTER_TABLE}").fetchone()  # noqa: S608
    return None if found is None else bytes(found[0])
