"""What a run is told before Spark is started: nothing there, or nothing that can be read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from iothub.errors import CorruptRecordError, IotHubError, NotFoundError
from iothub_spark import before, main
from iothub_spark.catalogue import CATALOGUE
from iothub_spark.spec import write_spec
from tests.support.event_log import EventMill, append, make_log
from tests.support.spark import sqlite_spec


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
        before.look(sqlite_spec(folder))


def test_job_that_reads_states_wants_them(folder: Path) -> None:
    before.look(sqlite_spec(folder))
    for spec in (sqlite_spec(folder, "verify"), sqlite_spec(folder, from_state=True)):
        with pytest.raises(NotFoundError, match="there are no session states yet"):
            before.look(spec)


def test_job_that_reads_no_log_needs_none(tmp_path: Path) -> None:
    """A tenant can be erased where nothing else is."""
    before.look(sqlite_spec(tmp_path, "erase", tenant_id=7))


def test_options_that_do_not_go_together_are_refused(folder: Path) -> None:
    with pytest.raises(IotHubError, match="wants from_state=true, too"):
        before.look(sqlite_spec(folder, leave_out_damaged=True))
