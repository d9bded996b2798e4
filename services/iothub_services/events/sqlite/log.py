"""The default driver of the event-log port: one `events.db`, a table per topic.

Knows events as bytes with a key, all in one partition.
`append` and `trim` belong to one thread, `read` to another one (or the same): it sees what is committed.

Invariant: offsets never restart, also when everything was trimmed: events with used offsets would look folded, and be lost. Therefore the
tables have AUTOINCREMENT.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from itertools import chain, groupby
from operator import itemgetter

from iothub.base.errors import CorruptRecordError
from iothub.records.events import Event, Topic, encode_event, read_event
from iothub.records.layout import EVENT_TABLES as _TABLES
from iothub.records.layout import EVENTS_FILE_VERSION
from iothub_services.events.port import DamagedEvent, LoggedEvent, Offsets, reached
from iothub_services.sqlite.database import Schema
from iothub_services.sqlite.store import SqliteStore

_SESSIONS = _TABLES[Topic.SESSIONS]
_AT_ONCE = 64  # rows of one INSERT: each statement gives the interpreter's lock away, which the reactor holds

SCHEMA = Schema(
    name="events",
    version=EVENTS_FILE_VERSION,
    cache_bytes=256 << 10,  # written at the end only, and read at a start
    tables={_SESSIONS: "session events", _TABLES[Topic.ANALYTICS]: "other events"},
    statements=tuple(
        f"CREATE TABLE {name} (offset INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, value BLOB NOT NULL)"
        for name in _TABLES.values()
    ),
    # A salvage cuts off the newest events. The session log then ends with its last event: states that have seen more show that it lost its end.
    repairs=(
        f"""UPDATE sqlite_sequence SET seq = (SELECT max(offset) FROM {_SESSIONS})
            WHERE name = '{_SESSIONS}' AND EXISTS (SELECT 1 FROM {_SESSIONS})""",  # noqa: S608
    ),
)


Row = tuple[Topic, str, bytes]
"""An event that is not appended yet: where it goes, its key, its value."""


class SqliteEvents(SqliteStore):
    """Fulfils `EventLog`."""

    is_shared = False

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        offsets = self.append_rows([(event.type.topic, event.key, encode_event(event)) for event in events])
        return [LoggedEvent(0, offset, event) for offset, event in zip(offsets, events, strict=True)]

    def append_rows(self, rows: Sequence[Row]) -> list[int]:
        """Append events that are encoded already; return their offsets."""
        offsets: list[int] = []
        with self._database.transaction() as connection:
            for topic, some in groupby(rows, itemgetter(0)):
                offsets += _append(connection, topic, [row[1:] for row in some])
        return offsets

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> Sequence[LoggedEvent | DamagedEvent]:
        return [entry_of(topic, *row) for row in self.read_rows(reached(after, 0), count, topic)]

    def read_rows(self, after: int, count: int, topic: Topic) -> list[tuple[int, bytes, bytes]]:
        """Return (offset, key, value) as they are stored, of at most `count` events."""
        statement = f"""SELECT offset, CAST(key AS BLOB), CAST(value AS BLOB) FROM {_TABLES[topic]}
            WHERE offset > ? ORDER BY offset LIMIT ?"""  # noqa: S608
        with self._database.reading() as connection:
            rows: list[tuple[int, bytes, bytes]] = connection.execute(statement, (after, count)).fetchall()
        return rows

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with self._database.reading() as connection:
            first = connection.execute(f"SELECT min(offset) FROM {_TABLES[topic]}").fetchone()[0]  # noqa: S608
            return (int(first) if first is not None else _end(connection, topic) + 1,)

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        with self._database.reading() as connection:
            return (_end(connection, topic),)

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        with self._database.transaction() as connection:
            statement = f"DELETE FROM {_TABLES[topic]} WHERE offset <= ?"  # noqa: S608
            return connection.execute(statement, (reached(upto, 0),)).rowcount

    def after_loss(self, seen: Offsets) -> Offsets:
        return (max(seen, default=0),)

    def skip_to(self, offsets: Offsets) -> None:
        name, offset = _SESSIONS, reached(offsets, 0)
        with self._database.transaction() as connection:
            if _end(connection, Topic.SESSIONS) < offset:
                connection.execute(f"DELETE FROM {name}")  # noqa: S608  they end below the loss: no fold may cross it
                connection.execute("DELETE FROM sqlite_sequence WHERE name = ?", (name,))
                connection.execute("INSERT INTO sqlite_sequence VALUES (?, ?)", (name, offset))


def entry_of(topic: Topic, offset: int, key: bytes, value: bytes) -> LoggedEvent | DamagedEvent:
    """Read a row."""
    try:
        return LoggedEvent(0, offset, read_event(value, key, 0, 1, topic))
    except CorruptRecordError as error:
        return DamagedEvent(0, offset, f"event log, offset {offset}: {error}")


def _append(connection: sqlite3.Connection, topic: Topic, rows: list[tuple[str, bytes]]) -> Iterable[int]:
    """Insert the events of one topic; one transaction writes at a time, so their offsets follow one another."""
    insert = f"INSERT INTO {_TABLES[topic]} (key, value) VALUES (?, ?)"  # noqa: S608
    rest = len(rows) % _AT_ONCE
    for at in range(0, len(rows) - rest, _AT_ONCE):
        connection.execute(insert + ", (?, ?)" * (_AT_ONCE - 1), [*chain.from_iterable(rows[at : at + _AT_ONCE])])
    connection.executemany(insert, rows[len(rows) - rest :])
    last = int(connection.execute("SELECT last_insert_rowid()").fetchone()[0])
    return range(last - len(rows) + 1, last + 1)


def _end(connection: sqlite3.Connection, topic: Topic) -> int:
    found = connection.execute("SELECT seq FROM sqlite_sequence WHERE name = ?", (_TABLES[topic],)).fetchone()
    return int(found[0]) if found else 0
