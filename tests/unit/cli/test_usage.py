"""`iothub usage show`: sums of the hours that the job has written."""

from __future__ import annotations

import json

import pytest
from sqlalchemy import insert

from iothub.records.events import GENERATION_BITS
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.job_runs import Owner, Result
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark, usage_hour
from iothub_tenants.accounts.usage_hours import HOUR_MS
from tests.support.in_process.command import Cli

NOON_MS = 1_793_534_400_000  # 2026-11-01T12:00:00Z


@pytest.fixture
def used(acme: Cli) -> Cli:
    """Three hours of two days."""
    figures = {
        "tenant_id": 1,
        "messages_in": 10,
        "messages_out": 20,
        "blocks_in": 11,
        "blocks_out": 22,
        "bytes_in": 1_000,
        "bytes_out": 2_000,
        "connection_ms": 90_000,
        "fanout": 30,
        "stored_byte_s": 7_200,
        "written_ms": 0,
    }
    store = AccountStore(sqlite_url(acme.data_dir / "accounts.db"))
    with store.write() as writer:
        rows = [{**figures, "hour_ms": NOON_MS + hour * HOUR_MS} for hour in (0, 1, 24)]
        writer.connection.execute(insert(usage_hour), rows)
    store.close()
    return acme


@pytest.mark.parametrize(
    ("by", "expected"),
    [
        ("hour", [("2026-11-01T12:00:00Z", 10), ("2026-11-01T13:00:00Z", 10), ("2026-11-02T12:00:00Z", 10)]),
        ("day", [("2026-11-01", 20), ("2026-11-02", 10)]),
        ("total", [("total", 30)]),
    ],
)
def test_usage_is_added_up(used: Cli, by: str, expected: list[tuple[str, int]]) -> None:
    rows = used.rows("usage", "show", "acme", "--from", "2026-11-01", "--to", "2026-12-01", "--by", by)

    assert [(row["name"], row["messages_in"]) for row in rows] == expected


def test_figures_are_in_the_units_that_people_pay_for(used: Cli) -> None:
    """Minutes, byte-hours, blocks of both directions."""
    words = ("usage", "show", "acme", "--from", "2026-11-01T12:00", "--to", "2026-11-01T13:00", "-o", "json")
    (row,) = json.loads(used(*words).out)

    assert (row["equivalents"], row["connection_minutes"], row["stored_byte_hours"], row["hours"]) == (33, 1.5, 2.0, 1)


def ran(cli: Cli, result: Result, *seen: int) -> None:
    """The job has run, and left its mark."""
    store = AccountStore(sqlite_url(cli.data_dir / "accounts.db"))
    run = job_runs.begin(store, "usage", {}, Owner("hub-1", 5, "hub"))
    job_runs.end(store, run.id, result, figures={})
    with store.write() as writer:
        rows = [
            {"job": "usage", "log": "analytics seen", "part": part, "upto": upto, "at_ms": 0}
            for part, upto in enumerate(seen)
        ]
        if rows:
            writer.connection.execute(insert(job_mark), rows)
    store.close()


def output(cli: Cli) -> str:
    """What a person gets; a script gets an empty list."""
    shown = cli("usage", "show", "acme")

    assert (shown.out, cli.rows("usage", "show", "acme")) == ("", [])
    return shown.err


def test_no_sums_before_the_job_has_run_name_it(acme: Cli) -> None:
    assert "the job has never run: `iothub --data-dir" in output(acme)


def test_no_sums_of_a_job_that_failed_name_its_run(acme: Cli) -> None:
    ran(acme, Result.FAILED)

    said = output(acme)

    assert "the last run: failed, see `iothub --data-dir" in said
    assert said.endswith("job show 1`\n")


@pytest.mark.parametrize("seen", [(), (0,), (3 << GENERATION_BITS, 4 << GENERATION_BITS)])
def test_no_sums_of_a_job_that_ran_before_the_first_period_say_when_one_ends(acme: Cli, seen: tuple[int, ...]) -> None:
    """The job had nothing to add up; offsets of a log made anew begin above 0."""
    ran(acme, Result.DONE, *seen)

    said = output(acme)

    assert "no period had ended when the job ran (20" in said
    assert "a hub writes one every 1m (events.usage_interval): run `iothub --data-dir" in said


def test_no_sums_of_a_tenant_in_which_nothing_happened_say_so(acme: Cli) -> None:
    """The log has periods, of others."""
    ran(acme, Result.DONE, 7)

    assert "; a hub writes one every 1m (events.usage_interval) for tenants with traffic" in output(acme)


def test_no_sums_of_this_week_name_the_hours_that_there_are(used: Cli) -> None:
    words = ("usage", "show", "acme", "--from", "2026-12-01", "--to", "2026-12-02")

    assert "acme has usage from 2026-11-01T12:00:00Z to 2026-11-02T12:00:00Z: set --from and --to" in used(*words).err


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        (("acme", "--from", "yesterday"), 2, "--from 'yesterday': expected a day such as 2026-11-01"),
        (("acme", "--from", "2026-11-02", "--to", "2026-11-01"), 2, "--from must be before --to"),
        (("umbrella",), 3, "there is no tenant"),
    ],
)
def test_usage_of_nothing_is_refused_by_name(acme: Cli, words: tuple[str, ...], code: int, text: str) -> None:
    assert text in acme("usage", "show", *words, code=code).err
