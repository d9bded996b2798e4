"""A Spark session for all tests of a process, small and quiet; and the spec of a run over the stores of one folder."""

from __future__ import annotations

import base64
import io
import json
import os
import sqlite3
import sys
import warnings
from collections.abc import Iterator
from contextlib import closing
from dataclasses import astuple
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from iothub.records.job_spec import Option, SparkSettings, Spec, SqliteFile
from iothub.records.state import SessionState, decode_state
from iothub.testing.clock import ManualClock
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.sqlite.database import open_database
from iothub_services.state.checkpoints import CheckpointStore, verified
from iothub_services.state.service import StateService
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from iothub_services.state.sqlite.store import SCHEMA as STATES
from iothub_services.state.sqlite.store import SqliteStates
from iothub_spark.report import Report
from iothub_spark.session import start_session
from iothub_spark.stores.log import Offsets
from tests.support.jobs.event_log import Facts, Replay

SETTINGS = SparkSettings(master="local[2]", driver_memory="768m", shuffle_partitions=3)


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Spark itself warns of what it uses: that is not ours to mend."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = start_session(SETTINGS, "tests")
        yield session
        session.stop()


def sqlite_spec(folder: Path, job: str = "compact_events", **options: Option) -> Spec:
    """Return the spec of a run over `events.db`, `checkpoints.db` and `state.db` in a folder, where no job has a mark but by `hold`."""
    return Spec(
        job=job,
        run_id=1,
        events=SqliteFile(folder / "events.db"),
        checkpoints=SqliteFile(folder / "checkpoints.db"),
        state=SqliteFile(folder / "state.db"),
        options=options,
        archive=folder / "archive",
        sql_url_file=_marks_alone(folder),
        spark=SETTINGS,
    )


def hold(folder: Path, offsets: Offsets | None, job: str = "archive", log: str = "sessions") -> None:
    """Put a job's mark into the accounts of `sqlite_spec`; None removes it."""
    with closing(sqlite3.connect(folder / "marks.db")) as file, file:
        file.execute("DELETE FROM job_mark WHERE job = ? AND log = ?", (job, log))
        rows = [(job, log, part, upto, 1) for part, upto in enumerate(offsets or ())]
        file.executemany("INSERT INTO job_mark VALUES (?, ?, ?, ?, ?)", rows)


def _marks_alone(folder: Path) -> Path:
    """Make accounts that have marks of jobs and nothing else, where the folder is there; returns the file with their URL."""
    url_file = folder / "marks.url"
    if folder.exists():
        with closing(sqlite3.connect(folder / "marks.db")) as file, file:
            columns = "job TEXT, log TEXT, part INTEGER, upto INTEGER, at_ms INTEGER"
            file.execute(f"CREATE TABLE IF NOT EXISTS job_mark ({columns})")
        url_file.write_text(f"sqlite:///{folder}/marks.db", encoding="utf-8")
    return url_file


def _alarmed(name: str, text: str) -> None:
    raise AssertionError(f"{name}: {text}")


class Quiet(Report):
    """Keeps what a run says."""

    def __init__(self) -> None:
        self.lines = io.StringIO()
        super().__init__(self.lines)

    @property
    def notes(self) -> list[str]:
        said = [json.loads(line) for line in self.lines.getvalue().splitlines()]
        return [line["text"] for line in said if line["event"] == "note"]


def states_of_checkpoint(folder: Path) -> dict[tuple[int, str], SessionState]:
    """Return the sessions of the checkpoint that counts, read as a hub's start reads it."""
    store = SqliteCheckpoints(open_database(folder / "checkpoints.db", SCHEMA, ManualClock(), _alarmed))
    try:
        return states_from(store)
    finally:
        store.close()


def states_from(store: CheckpointStore) -> dict[tuple[int, str], SessionState]:
    """The same, of any driver."""
    pointer = store.pointer()
    assert pointer is not None
    rows = list(verified(pointer, store.rows(pointer.version)))
    return {(row.tenant_id, row.client_id): decode_state(row.record) for row in rows}


def facts_of(state: SessionState) -> Facts:
    """Return a state in the words of `tests.support.jobs.event_log.Replay`."""
    facts: Facts = {name: getattr(state, name) for name in ("tenant_id", "client_id", "epoch", "offset", "is_ended")}
    if state.is_ended:
        return facts
    names = (
        "device",
        "queue_id",
        "protocol_version",
        "session_expiry_s",
        "created_at_ms",
        "is_connected",
        "connected_at_ms",
        "disconnected_at_ms",
        "disconnect_reason",
        "device_id",
    )
    facts |= {name: getattr(state, name) for name in names}
    facts["subscriptions"] = {key: astuple(options)[:5] for key, options in state.subscriptions.items()}
    will = state.will
    facts["will"] = will and {
        "topic": will.topic,
        "payload": base64.b64encode(will.payload).decode(),
        "qos": will.qos,
        "retain": will.retain,
        "properties": base64.b64encode(will.properties).decode(),
        "delay_s": will.delay_s,
        "expiry_s": will.expiry_s,
    }
    return facts


def require_same(found: dict[tuple[int, str], SessionState], expected: Replay) -> None:
    """Compare session by session; the first that differs is shown."""
    assert found.keys() == expected.sessions.keys()
    for key, state in found.items():
        facts, wanted = facts_of(state), expected.sessions[key]
        unlike = {name: (facts.get(name), wanted.get(name)) for name in facts.keys() | wanted.keys()}
        assert facts == wanted, (key, {name: pair for name, pair in unlike.items() if pair[0] != pair[1]})


def live_states(folder: Path) -> None:
    """Let the session states include the whole log, as a hub that starts does."""
    clock = ManualClock()
    log = SqliteEvents(open_database(folder / "events.db", EVENTS, clock, _alarmed))
    states = SqliteStates(open_database(folder / "state.db", STATES, clock, _alarmed))
    service = StateService(log, states, lambda name, text: None)
    service.load()
    service.close()
