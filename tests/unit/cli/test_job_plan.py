"""`iothub job plan` (`iothub.cli.job_plan`): from where each nightly job would go on, and how much there is."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from sqlalchemy import insert

from iothub.base.clock import SystemClock
from iothub.config.datadir import DataDir
from iothub.records import events
from iothub.records.analytics import Metered, Period, usage_counted
from iothub.records.events import Subject
from iothub.testing.checkpoint_contract import pointer_to
from iothub_services.sqlite.database import open_database
from iothub_services.state.sqlite.checkpoints import SCHEMA, SqliteCheckpoints
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark
from tests.support.hubs.left_behind import left_behind
from tests.support.in_process.command import Cli


def set_up(cli: Cli, text: str) -> None:
    with (cli.data_dir / "iothub.toml").open("a") as file:
        file.write(f"\n{text}\n")


def test_plan_says_from_where_each_job_would_go_on(acme: Cli) -> None:
    """Compaction from the checkpoint that counts; others from their marks."""
    set_up(acme, '[jobs]\nat = "02:30"\nnightly = ["compact_events", "usage", "verify", "insights"]')
    with left_behind(DataDir(acme.data_dir)) as written:
        subject = Subject(7, "a", 1, 100)
        made = events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)
        written.log.append([made, events.session_discarded(subject, reason="x"), made])
    before = {row["name"]: row for row in acme.rows("job", "plan")}
    checkpoints = SqliteCheckpoints(
        open_database(DataDir(acme.data_dir).checkpoints, SCHEMA, SystemClock(), lambda *_: None)
    )
    assert checkpoints.move(None, pointer_to(5, [], (2,)))
    checkpoints.close()

    after = {row["name"]: row for row in acme.rows("job", "plan")}

    assert (before["compact_events"]["from"], before["compact_events"]["events"]) == ("the beginning of the log", 3)
    assert (after["compact_events"]["from"], after["compact_events"]["events"]) == ("where the last run ended", 1)
    assert (after["compact_events"]["after"], after["compact_events"]["to"]) == ([2], [3])
    assert after["usage"]["events"] == 0
    assert (after["verify"]["from"], after["verify"]["events"]) == ("the beginning of the log", 3)
    assert (after["insights"]["log"], after["insights"]["events"]) == (None, None)
    assert after["verify"]["at"].endswith("02:30 UTC")


def test_plan_of_a_new_hub_has_nothing_to_read(cli: Cli) -> None:
    result = cli("job", "plan", "-o", "json")

    assert {row["from"] for row in result.json if row["log"]} == {"there is no log yet"}
    assert "jobs.at is off" in result.err


def test_plan_warns_of_a_damaged_pointer(acme: Cli) -> None:
    checkpoints = open_database(DataDir(acme.data_dir).checkpoints, SCHEMA, SystemClock(), lambda *_: None)
    checkpoints.close()
    with sqlite3.connect(DataDir(acme.data_dir).checkpoints) as connection:
        connection.execute("INSERT INTO pointer VALUES (0, x'7b7d')")

    assert "damaged checkpoint pointer" in acme("job", "plan").err


def test_plan_of_the_archive_has_both_logs(acme: Cli) -> None:
    """Each from its own mark."""
    set_up(acme, '[jobs]\nnightly = ["archive"]')
    with left_behind(DataDir(acme.data_dir)) as written:
        subject = Subject(7, "a", 1, 100)
        written.log.append([events.session_discarded(subject, reason="x") for _ in range(5)])
    with closing(AccountStore(sqlite_url(acme.data_dir / "accounts.db"))) as store, store.write() as writer:
        row = {"job": "archive", "log": "sessions", "part": 0, "upto": 4, "at_ms": 0}
        writer.connection.execute(insert(job_mark).values(row))

    sessions, analytics = acme.rows("job", "plan")

    assert (sessions["log"], sessions["from"], sessions["events"]) == ("sessions", "where the last run ended", 1)
    assert (analytics["log"], analytics["from"], analytics["events"]) == ("analytics", "the beginning of the log", 0)


@pytest.mark.parametrize(("seen", "events"), [(0, 3), (2, 2), (3, 0)])
def test_usage_goes_on_from_its_mark_and_does_nothing_where_nothing_is_new(cli: Cli, seen: int, events: int) -> None:
    """What is behind the mark is read again, as long as its hours may grow; but only when something has come."""
    held = {0: 0, 2: 1, 3: 1}[seen]
    with left_behind(DataDir(cli.data_dir)) as written:
        written.log.append(
            [usage_counted(1, Period("hub-1/1/1", number, 0, 60_000), Metered()) for number in range(1, 4)]
        )
    with closing(AccountStore(sqlite_url(DataDir(cli.data_dir).accounts))) as store, store.write() as writer:
        for log, upto in (("analytics", held), ("analytics seen", seen)):
            row = {"job": "usage", "log": log, "part": 0, "upto": upto, "at_ms": 0}
            writer.connection.execute(insert(job_mark).values(row))

    found = {row["name"]: row["events"] for row in cli.rows("job", "plan") if row["log"] == "analytics"}

    assert found["usage"] == events
