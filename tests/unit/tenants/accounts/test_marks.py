"""`iothub_tenants.accounts.marks`: how far jobs have the logs, and how a job lets go."""

from __future__ import annotations

from sqlalchemy import insert

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


def test_job_that_is_forgotten_holds_no_log(store: AccountStore) -> None:
    """What other jobs hold stays."""
    put(store, "archive", "sessions", 7, parts=3)
    put(store, "archive", "analytics", 8)
    put(store, "usage", "analytics", 9)

    assert marks.forget(store, "archive") == ["analytics", "sessions"]
    assert marks.forget(store, "archive") == []
    assert marks.moved(store) == {("usage", "analytics"): 9}
