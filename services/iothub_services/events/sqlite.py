"""The default driver of the event-log port: one `events.db`, a table per topic.

Knows events as bytes with a key. `append` and `trim` belong to one thread, `read` to another one (or the same): it sees what is committed.
AUTOINCREMENT, because offsets must not begin again after everything was trimmed (!).
"""

from __future__ import annotations

import sqlite3
from itertools import groupby

from iothub.errors import CorruptRecordError
from iothub.records.events import Event, Topic, decode_event, encode_event
from iothub_services.events.port import LoggedEvent
from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.salvage import Table
from iothub_services.sqlite.store import SqliteStore

_TABLES = {Topic.SESSIONS: "session_event", Topic.ANALYTICS: "analytics_event"}
_COLUMNS = ("offset", "key", "value")

SCHEMA = Schema(
    name="events",
    version=1,
    cache_bytes=256 << 10,  # written at the end only, and read at a start
    tables=tuple(Table(name, _COLUMNS, ("offset",)) for name in _TABLES.values()),
    statements=tuple(
        f"CREATE TABLE {name} (offset INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL)"
        for name in _TABLES.values()
    ),
)


class SqliteEvents(SqliteStore):
    """Fulfils `EventLog`."""

    def append(self, events: list[Event]) -> list[int]:
        offsets: list[int] = []
        with self._database.transaction() as connection:
            for topic, some in groupby(events, lambda event: event.type.topic):
                offsets += _append(connection, topic, list(some))
        return offsets

    def read(self, after: int, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        statement = f"SELECT offset, value FROM {_TABLES[topic]} WHERE offset > ? ORDER BY offset LIMIT ?"  # noqa: S608
        with self._database.reading() as connection:
            return [
                LoggedEvent(offset, _decode(offset, value))
                for offset, value in connection.execute(statement, (after, count))
            ]

    def begin(self, topic: Topic = Topic.SESSIONS) -> int:
        with self._database.reading() as connection:
            first = connection.execute(f"SELECT min(offset) FROM {_TABLES[topic]}").fetchone()[0]  # noqa: S608
            return int(first) if first is not None else _end(connection, topic) + 1

    def end(self, topic: Topic = Topic.SESSIONS) -> int:
        with self._database.reading() as connection:
            return _end(connection, topic)

    def trim(self, upto: int, topic: Topic = Topic.SESSIONS) -> int:
        with self._database.transaction() as connection:
            statement = f"DELETE FROM {_TABLES[topic]} WHERE offset <= ?"  # noqa: S608
            return connection.execute(statement, (upto,)).rowcount

    def skip_to(self, offset: int, topic: Topic = Topic.SESSIONS) -> None:
        name = _TABLES[topic]
        with self._database.transaction() as connection:
            if _end(connection, topic) < offset:
                connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, offset))


def _append(connection: sqlite3.Connection, topic: Topic, events: list[Event]) -> range:
    """Insert the events of one topic; one transaction writes at a time, so their offsets follow one another."""
    statement = f"INSERT INTO {_TABLES[topic]} (key, value) VALUES (?, ?)"  # noqa: S608
    connection.executemany(statement, [(event.key, encode_event(event)) for event in events])
    last = int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])
    return range(last - len(events) + 1, last + 1)


def _decode(offset: int, value: bytes) -> Event:
    try:
        return decode_event(value)
    except CorruptRecordError as error:
        raise CorruptRecordError(f"event log, offset {offset}: {error}") from error


def _end(connection: sqlite3.Connection, topic: Topic) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (_TABLES[topic],)).fetchone()
    return int(found[0]) if found else 0
