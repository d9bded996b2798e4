"""`iothub.jobs.marks` and `iothub_tenants.accounts.marks`: what a job holds is found in both places, and let go."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import insert

from iothub.base.errors import NotFoundError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.jobs import marks as held
from iothub.records.events import Topic
from iothub_spark.stores import marks as beside
from iothub_spark.stores.rows_sqlite import SqliteCheckpoints
from iothub_tenants.accounts import marks
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark


def put(store: AccountStore, job: str, log: str, at_ms: int, parts: int = 1) -> None:
    rows = [{"job": job, "log": log, "part": part, "upto": 5, "at_ms": at_ms} for part in range(parts)]
    with store.write() as writer:
        writer.connection.execute(insert(job_mark), rows)


def test_marks_are_as_old_as_their_oldest_part(store: AccountStore) -> None:
    put(store, "archive", "sessions", 7, parts=3)
    put(store, "archive", "analytics", 8)
    put(store, "usage", "analytics", 9)

    assert marks.moved(store) == {("archive", "sessions"): 7, ("archive", "analytics"): 8, ("usage", "analytics"): 9}
    assert marks.forget(store, "archive") == 4
    assert marks.moved(store) == {("usage", "analytics"): 9}


def test_job_that_is_forgotten_holds_no_log(store: AccountStore, tmp_path: Path) -> None:
    """Neither that with the accounts nor that beside the checkpoints; what other jobs hold stays."""
    data_dir = DataDir(tmp_path)
    with closing(SqliteCheckpoints(data_dir.checkpoints)) as checkpoints:
        for job in ("archive", "own_job"):
            beside.set_job_mark(checkpoints, job, (4,))
        beside.set_job_mark(checkpoints, "archive", (4,), Topic.ANALYTICS)
        put(store, "archive", "analytics", 8)
        put(store, "usage", "analytics", 9)

        assert held.forget(Config(), data_dir, store, "archive") == ["analytics", "sessions"]

        assert beside.job_marks(checkpoints) == {"own_job": (4,)}
        assert beside.job_marks(checkpoints, Topic.ANALYTICS) == {}
        assert marks.moved(store) == {("usage", "analytics"): 9}
        assert held.forget(Config(), data_dir, store, "own_job") == ["sessions"]


def test_mark_that_holds_nothing_goes_too_and_is_not_told(store: AccountStore, tmp_path: Path) -> None:
    """How far `usage` has read: whoever forgets the job has it read everything."""
    put(store, "usage", "analytics", 9)
    put(store, "usage", "analytics seen", 20)

    assert held.forget(Config(), DataDir(tmp_path), store, "usage") == ["analytics"]
    assert marks.moved(store) == {}


def test_job_that_holds_nothing_is_let_go_again(store: AccountStore, tmp_path: Path) -> None:
    """Also without any checkpoint, of which none is made by looking; a name that nobody knows is refused."""
    assert held.forget(Config(), DataDir(tmp_path), store, "archive") == []
    with pytest.raises(NotFoundError, match="there is no job 'archiv': expected one of compact_events"):
        held.forget(Config(), DataDir(tmp_path), store, "archiv")

    assert list(tmp_path.glob("checkpoints*")) == []
