"""What a run is told before Spark is started: nothing there, or nothing that can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, ConflictError, CorruptRecordError, NotFoundError
from iothub.records.job_catalogue import CATALOGUE
from iothub.records.job_spec import write_spec
from iothub_spark import main, preflight
from iothub_spark.stores.accounts import opened_accounts
from iothub_spark.stores.log_sqlite import trim
from tests.support.jobs.event_log import EventMill, append, make_log
from tests.support.jobs.spark import live_states, sqlite_spec
from tests.support.jobs.statistics import harness, spec_of


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make_log(tmp_path / "events.db")
    append(tmp_path / "events.db", EventMill(10, 2).events(50))
    return tmp_path


@pytest.mark.parametrize("job", sorted(CATALOGUE.keys() - {"erase"}))
def test_run_without_a_log_starts_no_spark(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, job: str
) -> None:
    """No hub was here yet: exit code 2, at once."""
    monkeypatch.setattr(main, "start_session", lambda *_: pytest.fail("Spark was started"))
    spec = sqlite_spec(tmp_path, job)
    (tmp_path / "spec.json").write_text(write_spec(spec), encoding="utf-8")

    assert main.main([job, "--spec", str(tmp_path / "spec.json")]) == 2
    assert "there is no event log yet" in json.loads(capsys.readouterr().out)["text"]


@pytest.mark.parametrize("name", ["events.db", "checkpoints.db"])
def test_malformed_file_is_named_with_what_saves_it(folder: Path, name: str) -> None:
    """It is damage, not a store that does not answer: waiting mends nothing."""
    (folder / name).write_bytes(b"no database at all, but long enough to look at" * 20)

    with pytest.raises(
        CorruptRecordError, match=rf"{name}: file is not a database: restart the hub, whose start saves"
    ):
        preflight.check(sqlite_spec(folder))


def test_job_that_reads_states_wants_them(folder: Path) -> None:
    preflight.check(sqlite_spec(folder))
    for spec in (sqlite_spec(folder, "verify"), sqlite_spec(folder, from_state=True)):
        with pytest.raises(NotFoundError, match="there are no session states yet"):
            preflight.check(spec)


def test_job_that_reads_no_log_needs_none(tmp_path: Path) -> None:
    """A tenant can be erased where nothing else is."""
    harness(tmp_path)
    (tmp_path / "events.db").unlink()

    preflight.check(spec_of(tmp_path, "erase", tenant_id=7))


def test_tenant_that_is_there_is_not_erased_nor_one_without_a_number(tmp_path: Path) -> None:
    acme = harness(tmp_path, "acme")["acme"]

    with pytest.raises(ConflictError, match=r"tenant acme \(number 1\) still exists: delete it first"):
        preflight.check(spec_of(tmp_path, "erase", tenant_id=acme))
    with pytest.raises(ConfigError, match=r"options\.tenant_id is missing"):
        preflight.check(spec_of(tmp_path, "erase"))


@pytest.mark.parametrize(
    ("job", "options", "text"),
    [
        ("compact_events", {}, r"begins at offset 21, not at its first event.*from_state=true"),
        ("compact_events", {"full": True}, "begins at offset 21, not at its first event"),
        (
            "archive",
            {},
            r"the archive of sessions: events are missing: the log begins at offset 21, but is needed from 6.*--full",
        ),
        (
            "insights",
            {},
            r"the archive of sessions: events are missing: the log begins at offset 21, but is needed from 6",
        ),
    ],
)
def test_trimmed_log_is_refused(tmp_path: Path, job: str, options: dict[str, bool], text: str) -> None:
    harness(tmp_path)
    append(tmp_path / "events.db", EventMill(10, 2).events(50))
    trim(tmp_path / "events.db", 20)
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        accounts.set_mark("archive", "sessions", (5,), 1)

    with pytest.raises(ConflictError, match=text):
        preflight.check(spec_of(tmp_path, job, **options))


def test_copy_may_begin_anew_behind_what_is_gone(tmp_path: Path) -> None:
    """`--full` is how a person says so."""
    harness(tmp_path)
    append(tmp_path / "events.db", EventMill(10, 2).events(50))
    trim(tmp_path / "events.db", 20)
    with opened_accounts(tmp_path / "accounts.url") as accounts:
        accounts.set_mark("archive", "sessions", (5,), 1)

    preflight.check(spec_of(tmp_path, "archive", full=True))


def test_nothing_to_compare_with_is_said(folder: Path) -> None:
    live_states(folder)
    trim(folder / "events.db", 20)

    with pytest.raises(ConflictError, match="there is no checkpoint, so there is nothing to compare"):
        preflight.check(sqlite_spec(folder, "verify"))
