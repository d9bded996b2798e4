"""Names and cells that hub and jobs share: rows of session states, topics, and the file of checkpoints."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import CorruptRecordError
from iothub.records.events import Topic
from iothub.records.keys import state_key
from iothub.records.layout import (
    CHECKPOINTS_FILE,
    CHECKPOINTS_FILE_VERSION,
    decode_applied,
    decode_state_row,
    encode_applied,
    encode_state_cell,
    kafka_base,
    kafka_topic,
    newest_generation,
)
from iothub.records.state import decode_state
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.database import open_database
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints


def test_newest_generation_of_the_log_is_found_among_other_topics() -> None:
    """Names of others that look alike count for nothing."""
    names = ["iothub.session-events", "iothub.session-events.2", "iothub.session-events.11", "iothub.session-events.x"]

    assert newest_generation("iothub", names) == 11
    assert newest_generation("other", names) == 0
    assert kafka_topic("iothub", Topic.SESSIONS, 11) == names[2]
    assert kafka_base(2) == (2 << 40) + 1


def test_state_row_survives_the_round_trip() -> None:
    """A cell without a record is a session that is gone."""
    assert decode_state_row(state_key(7, "c"), encode_state_cell(5, b"record")) == (7, "c", 5, b"record")
    assert decode_state_row(state_key(7, "c"), encode_state_cell(5, b"")) == (7, "c", 5, b"")


@pytest.mark.parametrize(
    ("key", "value", "session"),
    [
        (state_key(7, "c"), b"", (7, "c")),
        (state_key(7, "c"), b"\1short", (7, "c")),
        (state_key(7, "c"), b"\2" + encode_state_cell(5, b"record")[1:], (7, "c")),
        (state_key(7, "")[:4] + b"\xff", encode_state_cell(5, b"record"), (7, "\ufffd")),
        (b"x", encode_state_cell(5, b"record"), (ord("x"), "")),
    ],
    ids=["empty", "short", "another version", "no text", "no key"],
)
def test_damaged_state_row_has_a_record_that_is_refused(key: bytes, value: bytes, session: tuple[int, str]) -> None:
    """So whoever reads the record counts it, and no other row is held up."""
    tenant_id, client_id, offset, record = decode_state_row(key, value)

    assert ((tenant_id, client_id), offset) == (session, 0)
    with pytest.raises(CorruptRecordError, match="damaged session state"):
        decode_state(record)


@pytest.mark.parametrize("value", [b"", b"\2" + encode_applied((1,))[1:], encode_applied((1,))[:-1], b"\1\0"])
def test_damaged_applied_offsets_are_refused_by_name(value: bytes) -> None:
    with pytest.raises(CorruptRecordError, match="here: damaged"):
        decode_applied(value, "here")


def test_checkpoint_file_is_the_one_that_the_hub_makes(tmp_path: Path) -> None:
    """A job may make the file before any hub does: the driver takes it as its own."""
    with closing(sqlite3.connect(tmp_path / "checkpoints.db")) as connection:
        for statement in CHECKPOINTS_FILE:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={CHECKPOINTS_FILE_VERSION}")
    store = SqliteCheckpoints(open_database(tmp_path / "checkpoints.db", SCHEMA, ManualClock(), pytest.fail))

    assert (store.pointer(), store.versions()) == (None, [])
    store.close()
