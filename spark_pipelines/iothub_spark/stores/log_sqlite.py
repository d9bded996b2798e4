"""The embedded event log, `events.db`, read beside the hub that writes it; and trimmed, a little at a time.

Knows rows as bytes. Reading is done page by page, each a statement of its own: a long one would keep the hub's WAL from being folded in.
"""

from __future__ import annotations

import os
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

from iothub.base.errors import BackendError, ConflictError, CorruptRecordError, NotFoundError
from iothub.records.events import Topic
from iothub.records.layout import EVENT_TABLES, EVENTS_FILE_VERSION
from iothub_spark.stores.log import Offsets, Page, StoredEvent, Stretch

BUSY_S = 30.0
_PAGE = 20_000  # events
_KEYS = 500  # asked for in one statement
_TRIMMED = 2_000  # in one transaction: a hub that wants to commit waits for milliseconds
_PAUSE_S = 0.005  # between them, so that it comes first
_DAMAGED = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_SCARCE_BYTES = 1 << 20  # a disk with less is full: SQLite calls that an I/O error, too


class SqliteLog:
    """Fulfils `Log`. For one thread."""

    def __init__(self, path: Path) -> None:
        if not path.is_file():
            raise NotFoundError(f"{path}: there is no event log yet: the first `iothub serve` creates it")
        self._path = path
        self._connection = connect(path, is_read_only=True)
        require_version(self._connection, path, EVENTS_FILE_VERSION)

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with errors_translated(self._path):
            first = self._connection.execute(f"SELECT min(offset) FROM {EVENT_TABLES[topic]}").fetchone()[0]  # noqa: S608
        return (int(first) if first is not None else self.end(topic)[0] + 1,)

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with errors_translated(self._path):
            statement = "SELECT seq FROM sqlite_sequence WHERE name = ?"
            found = self._connection.execute(statement, (EVENT_TABLES[topic],)).fetchone()
        return (int(found[0]) if found else 0,)

    def read(self, stretch: Stretch, topic: Topic = Topic.SESSIONS, keys: tuple[bytes, ...] = ()) -> Iterator[Page]:
        if len(keys) > _KEYS:
            raise ValueError(f"at most {_KEYS} keys can be asked for at once, not {len(keys)}")
        among = f"AND key IN ({','.join('?' * len(keys))})" if keys else ""
        statement = f"""SELECT offset, key, CAST(value AS BLOB) FROM {EVENT_TABLES[topic]}
            WHERE offset > ? AND offset <= ? {among} ORDER BY offset LIMIT ?"""  # noqa: S608
        names, after = [key.decode() for key in keys], stretch.after
        while True:
            with errors_translated(self._path):
                rows = self._connection.execute(statement, (after, stretch.upto, *names, _PAGE)).fetchall()
            if rows:
                yield list(map(StoredEvent._make, rows))
            if len(rows) < _PAGE:
                return
            after = rows[-1][0]

    def where(self, partition: int, offset: int, topic: Topic = Topic.SESSIONS) -> str:
        del partition, topic
        return f"event log, offset {offset}"

    def close(self) -> None:
        self._connection.close()


def trim(path: Path, upto: int) -> int:
    """Remove the session events up to and including an offset, in small transactions; returns how many."""
    table = EVENT_TABLES[Topic.SESSIONS]
    statement = f"""DELETE FROM {table} WHERE offset IN
        (SELECT offset FROM {table} WHERE offset <= ? ORDER BY offset LIMIT ?)"""  # noqa: S608
    removed = 0
    with closing(connect(path)) as connection, errors_translated(path):
        while count := connection.execute(statement, (upto, _TRIMMED)).rowcount:
            removed += count
            time.sleep(_PAUSE_S)
    return removed


def require_version(connection: sqlite3.Connection, path: Path, known: int) -> int:
    """Return the schema version of a file. Raises ConflictError: a newer program has written it."""
    with errors_translated(path):
        version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > known:
        raise ConflictError(
            f"{path.name} has schema version {version}, this program knows up to {known}: use the program that the hub runs"
        )
    return version


def connect(path: Path, *, is_read_only: bool = False) -> sqlite3.Connection:
    """Open a file of a hub, in autocommit mode; text comes as bytes. Raises BackendError, CorruptRecordError."""
    uri = path.absolute().as_uri() + ("?mode=ro" if is_read_only else "?mode=rw")
    with errors_translated(path):
        connection = sqlite3.connect(uri, uri=True, timeout=BUSY_S, isolation_level=None)
    connection.text_factory = bytes
    return connection


@contextmanager
def errors_translated(path: Path) -> Iterator[None]:
    """Raise the errors of SQLite as ours. Raises BackendError; CorruptRecordError: the file itself is damaged."""
    try:
        yield
    except sqlite3.Error as error:
        code = (getattr(error, "sqlite_errorcode", None) or 0) & 0xFF
        if code in _DAMAGED:
            raise CorruptRecordError(
                f"{path}: {error}: restart the hub, whose start saves what can be read of the file, then run the job again"
            ) from error
        if code == sqlite3.SQLITE_FULL or (code == sqlite3.SQLITE_IOERR and _is_full(path)):
            text = f"{path}: its disk is full ({error}): free some space, then run the job again"
            raise BackendError(text, retryable=True, is_written=True) from error
        raise BackendError(f"{path.name}: {error}", retryable=True, is_written=True) from error


def _is_full(path: Path) -> bool:
    try:
        found = os.statvfs(path.parent)
    except OSError:
        return False
    return found.f_bavail * found.f_frsize < _SCARCE_BYTES
