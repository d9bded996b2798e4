"""Names and cells that hub and jobs share: the version in a cell's first byte, topics, and the file of checkpoints."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import Topic
from iothub.records.layout import (
    CHECKPOINTS_FILE,
    CHECKPOINTS_FILE_VERSION,
    decode_state_cell,
    encode_state_cell,
    kafka_base,
    kafka_topic,
    newest_generation,
    require_cell_version,
)
from iothub.testing.clock import ManualClock
from iothub_services.sqlite.database import open_database
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints


@pytest.mark.parametrize("value", [b"\1", b"\1x", b"\2x"])
def test_known_versions_pass(value: bytes) -> None:
    require_cell_version(value, 2, "here")


def test_newer_version_is_told_from_damage() -> None:
    """One is whole and must not be skipped, the other is refused by name."""
    with pytest.raises(FutureRecordError, match="here: format version 3, this program knows 2: upgrade it"):
        require_cell_version(b"\3", 2, "here")
    for value, shown in ((b"", "empty"), (b"\0\1", "0001")):
        with pytest.raises(CorruptRecordError, match=f"here: a damaged cell \\({shown}\\)") as caught:
            require_cell_version(value, 2, "here")
        assert not isinstance(caught.value, FutureRecordError)


def test_newest_generation_of_the_log_is_found_among_other_topics() -> None:
    """Names of others that look alike count for nothing."""
    names = ["iothub.session-events", "iothub.session-events.2", "iothub.session-events.11", "iothub.session-events.x"]

    assert newest_generation("iothub", names) == 11
    assert newest_generation("other", names) == 0
    assert kafka_topic("iothub", Topic.SESSIONS, 11) == names[2]
    assert kafka_base(2) == (2 << 40) + 1


def test_state_cell_survives_the_round_trip() -> None:
    """A cell without a record is a row that is gone; a short one is refused."""
    assert decode_state_cell(encode_state_cell(7, b"record"), "here") == (7, b"record")
    assert decode_state_cell(encode_state_cell(7, b""), "here") == (7, b"")
    with pytest.raises(CorruptRecordError, match="here: a damaged cell"):
        decode_state_cell(b"\1short", "here")


def test_checkpoint_file_is_the_one_that_the_hub_makes(tmp_path: Path) -> None:
    """A job may make the file before any hub does: the driver takes it as its own."""
    with closing(sqlite3.connect(tmp_path / "checkpoints.db")) as connection:
        for statement in CHECKPOINTS_FILE:
            connection.execute(statement)
        connection.execute(f"PRAGMA user_version={CHECKPOINTS_FILE_VERSION}")
    store = SqliteCheckpoints(open_database(tmp_path / "checkpoints.db", SCHEMA, ManualClock(), pytest.fail))

    assert (store.pointer(), store.versions()) == (None, [])
    store.close()
