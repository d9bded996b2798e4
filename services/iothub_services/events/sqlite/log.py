"""The default driver of the event-log port: one `events.db`, a table per topic.

Knows events as bytes with a key, all in one partition.
`append` and `trim` belong to one thread, `read` to another one (or the same): it sees what is committed.
AUTOINCREMENT, because offsets must not begin again after everything was trimmed (!).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Container
from itertools import groupby

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import Event, Topic, decode_event, encode_event
from iothub.records.layout import EVENT_TABLES as _TABLES
from iothub.records.left_out import decode_at
from iothub_services.events.port import DamagedEventError, FutureEventError, LoggedEvent, Offsets, reached
from iothub_services.sqlite.database import Database, Schema
from iothub_services.sqlite.store import SqliteStore

SCHEMA = Schema(
    name="events",
    version=1,
    cache_bytes=256 << 10,  # written at the end only, and read at a start
    tables={_TABLES[Topic.SESSIONS]: "session events", _TABLES[Topic.ANALYTICS]: "other events"},
    statements=tuple(
        f"CREATE TABLE {name} (offset INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL)"
        for name in _TABLES.values()
    ),
)


class SqliteEvents(SqliteStore):
    """Fulfils `EventLog`."""

    is_shared = False

    def __init__(self, database: Database, left_out: Container[str] = ()) -> None:
        super().__init__(database)
        self._left_out = left_out

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        logged: list[LoggedEvent] = []
        with self._database.transaction() as connection:
            for topic, some in groupby(events, lambda event: event.type.topic):
                logged += _append(connection, topic, list(some))
        return logged

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        statement = f"SELECT offset, value FROM {_TABLES[topic]} WHERE offset > ? ORDER BY offset LIMIT ?"  # noqa: S608
        with self._database.reading() as connection:
            rows = connection.execute(statement, (reached(after, 0), count)).fetchall()
        page: list[LoggedEvent] = []
        for offset, value in rows:
            try:
                page.append(LoggedEvent(0, offset, self._decode(topic, offset, value)))
            except CorruptRecordError:
                if not page:
                    raise
                break  # it is the first of the next page
        return page

    def _decode(self, topic: Topic, offset: int, value: bytes) -> Event:
        try:
            return decode_at(value, 0, offset, self._left_out) if topic is Topic.SESSIONS else decode_event(value)
        except FutureRecordError as error:
            raise FutureEventError(f"event log, offset {offset}: {error}", partition=0, offset=offset) from error
        except CorruptRecordError as error:
            raise DamagedEventError(f"event log, offset {offset}: {error}", partition=0, offset=offset) from error

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with self._database.reading() as connection:
            first = connection.execute(f"SELECT min(offset) FROM {_TABLES[topic]}").fetchone()[0]  # noqa: S608
            return (int(first) if first is not None else _end(connection, topic) + 1,)

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with self._database.reading() as connection:
            return (_end(connection, topic),)

    def lacks(self, after: Offsets, upto: Offsets) -> int:
        """AUTOINCREMENT gives every offset, and a rollback gives it back: one without a row was lost."""
        first, last = max(reached(after, 0) + 1, reached(self.begin(), 0)), reached(upto, 0)
        statement = f"SELECT count(*) FROM {_TABLES[Topic.SESSIONS]} WHERE offset BETWEEN ? AND ?"  # noqa: S608
        with self._database.reading() as connection:
            found = int(connection.execute(statement, (first, last)).fetchone()[0])
        return max(last - first + 1, 0) - found

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        with self._database.transaction() as connection:
            statement = f"DELETE FROM {_TABLES[topic]} WHERE offset <= ?"  # noqa: S608
            return connection.execute(statement, (reached(upto, 0),)).rowcount

    def after_loss(self, seen: Offsets) -> Offsets:
        return (max(seen, default=0),)

    def skip_to(self, offsets: Offsets) -> None:
        name, offset = _TABLES[Topic.SESSIONS], reached(offsets, 0)
        with self._database.transaction() as connection:
            if _end(connection, Topic.SESSIONS) < offset:
                connection.execute(f"DELETE FROM {name}")  # noqa: S608  below is a hole now: nobody may fold across it (!)
                connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, offset))


def _append(connection: sqlite3.Connection, topic: Topic, events: list[Event]) -> list[LoggedEvent]:
    """Insert the events of one topic; one transaction writes at a time, so their offsets follow one another."""
    statement = f"INSERT INTO {_TABLES[topic]} (key, value) VALUES (?, ?)"  # noqa: S608
    connection.executemany(statement, [(event.key, encode_event(event)) for event in events])
    last = int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])
    return [LoggedEvent(0, offset, event) for offset, event in enumerate(events, last - len(events) + 1)]


def _end(connection: sqlite3.Connection, topic: Topic) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (_TABLES[topic],)).fetchone()
    return int(found[0]) if found else 0
