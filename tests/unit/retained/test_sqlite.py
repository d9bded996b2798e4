"""Retained messages in SQLite: what only a file of SQLite can have."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedWrite
from iothub_services.retained.sqlite.store import SCHEMA, SqliteRetained
from iothub_services.sqlite.database import open_database

WHY = "damaged (a value of another type than its column's)"


@pytest.mark.parametrize(
    ("change", "is_listed", "is_read"),
    [
        ("body = CAST(x'ff' AS TEXT)", True, False),
        ("size = 'x'", False, True),
        ("version = 'abc'", False, False),
        ("expires_at_ms = 'soon'", False, False),
    ],
)
def test_value_of_another_type_is_named(tmp_path: Path, change: str, is_listed: bool, is_read: bool) -> None:
    """Another tool may leave one in any column; the other messages are read, and this one can be deleted."""
    path = tmp_path / "retained.db"
    with closing(SqliteRetained(open_database(path, SCHEMA, ManualClock(), pytest.fail))) as store:
        store.put([RetainedWrite(1, topic, b"x") for topic in (b"a", b"b")])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE retained SET {change} WHERE topic = CAST('a' AS BLOB)")

    with closing(SqliteRetained(open_database(path, SCHEMA, ManualClock(), pytest.fail))) as store:
        assert next(iter(store.load(1))) == (
            RetainedTopic(b"a", 1, 0, 1) if is_listed else RetainedTopic(b"a", 0, 0, 0, WHY)
        )
        assert [topic.topic for topic in store.load(1)] == [b"a", b"b"]
        assert store.fetch(1, [b"a", b"b"]) == [
            RetainedBody(b"a", 1, 0, b"x") if is_read else RetainedBody(b"a", 0, 0, b"", WHY),
            RetainedBody(b"b", 2, 0, b"x"),
        ]
        assert store.usage(1).messages == 2
        assert store.delete(1, [b"a"]) == 1
