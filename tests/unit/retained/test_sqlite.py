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


@pytest.mark.parametrize(
    ("change", "numbers", "body"),
    [
        ("body = CAST(x'ff' AS TEXT)", (1, 0, 1), b"\xff"),
        ("size = 'x'", (1, 0, 0), b"x"),
        ("version = 'abc'", (0, 0, 1), b"x"),
        ("expires_at_ms = 'soon'", (1, 0, 1), b"x"),
    ],
)
def test_value_of_another_type_is_no_obstacle(
    tmp_path: Path, change: str, numbers: tuple[int, int, int], body: bytes
) -> None:
    """Another tool may leave one in any column: a number is 0 then, and the body's checksum says what that one is."""
    path = tmp_path / "retained.db"
    with closing(SqliteRetained(open_database(path, SCHEMA, ManualClock(), pytest.fail))) as store:
        store.put([RetainedWrite(1, topic, b"x") for topic in (b"a", b"b")])
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(f"UPDATE retained SET {change} WHERE topic = CAST('a' AS BLOB)")

    with closing(SqliteRetained(open_database(path, SCHEMA, ManualClock(), pytest.fail))) as store:
        assert list(store.load(1)) == [RetainedTopic(b"a", *numbers), RetainedTopic(b"b", 2, 0, 1)]
        assert store.fetch(1, [b"a", b"b"]) == [
            RetainedBody(b"a", *numbers[:2], body),
            RetainedBody(b"b", 2, 0, b"x"),
        ]
        assert store.usage(1).messages == 2
        assert store.delete(1, [b"a"]) == 1
