"""`iothub job`: what a person asks, is told and gets as exit code; the job's process is a fake."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import insert

from iothub.config.datadir import DataDir
from iothub.config.sections import NIGHTLY_JOBS, Config
from iothub.jobs import specs
from iothub.records.job_catalogue import CATALOGUE
from iothub.records.job_spec import Spec, SqliteFile, read_spec
from iothub_tenants.accounts import job_runs, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.job_runs import Owner
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark
from tests.support.in_process.command import Cli
from tests.support.jobs.job_leases import let_expire

FAKE = Path(__file__).parents[2] / "support" / "jobs" / "fake_job.py"
COMMAND_OF = specs.command_of
OWNER = Owner("hub-2", 5, "hub")


class Fake:
    """What the job's process does, by job; the specs that it was given."""

    def __init__(self) -> None:
        self.steps: dict[str, tuple[str, ...]] = {}
        self.specs: list[Spec] = []

    def command_of(self, settings: Config, spec: Spec, folder: Path) -> list[str]:
        command = COMMAND_OF(settings, spec, folder)
        self.specs.append(read_spec(Path(command[-1])))
        return [sys.executable, str(FAKE), *self.steps.get(spec.job, ("done:{}",))]


@pytest.fixture
def fake(monkeypatch: pytest.MonkeyPatch) -> Fake:
    made = Fake()
    monkeypatch.setattr(specs, "command_of", made.command_of)
    monkeypatch.setattr(specs, "require_spark", lambda *_: None)
    return made


@contextmanager
def accounts(cli: Cli) -> Iterator[AccountStore]:
    with closing(AccountStore(sqlite_url(cli.data_dir / "accounts.db"))) as store:
        yield store


def set_up(cli: Cli, text: str) -> None:
    with (cli.data_dir / "iothub.toml").open("a") as file:
        file.write(f"\n{text}\n")


def test_run_says_what_came_of_it(cli: Cli, fake: Fake) -> None:
    """The answer on standard output, how far it is in JSON lines on standard error."""
    fake.steps["compact_events"] = ("stage:read:5:10", "note:two are damaged", 'done:{"rows": 7}')

    result = cli("job", "run", "compact_events", "--full", "-o", "json")

    assert (result.json["result"], result.json["figures"], result.json["options"]) == (
        "done",
        {"rows": 7},
        {"full": True},
    )
    lines = [json.loads(line) for line in result.err.splitlines()]
    assert [line["event"] for line in lines] == ["stage", "stage", "note", "done"]
    assert lines[0] == {
        "job": "compact_events",
        "event": "stage",
        "name": "read",
        "done": 5,
        "of": 10,
        "unit": "records",
    }
    assert fake.specs[0].is_full


def test_process_is_told_where_everything_is(cli: Cli, fake: Fake) -> None:
    """Whole paths, and no secret but by the name of its file."""
    set_up(cli, '[spark]\nmaster = "local[2]"\ndriver_memory = "2GiB"\nshuffle_partitions = 4')

    with accounts(cli) as store:
        tenants.create(store, "purged")  # and gone: what is given out is known, not who is there
        tenants.finish_deletion(store, tenants.delete(store, "purged").tenant_id)

    cli("job", "run", "erase", "--option", "tenant_id=1", "--dry-run")

    (spec,) = fake.specs
    assert (spec.job, spec.options) == ("erase", {"tenant_id": 1, "dry_run": True})
    assert [spec.events, spec.checkpoints, spec.state] == [
        SqliteFile(cli.data_dir / name) for name in ("events.db", "checkpoints.db", "state.db")
    ]
    assert spec.archive == cli.data_dir / "archive"
    assert (spec.spark.master, spec.spark.driver_memory, spec.spark.shuffle_partitions) == ("local[2]", "2048m", 4)


def test_settings_can_be_given_for_one_run(cli: Cli, fake: Fake) -> None:
    """As for `serve`: they come before those of the file."""
    set_up(cli, '[spark]\nmaster = "local[2]"\ndriver_memory = "2GiB"')

    cli("job", "run", "usage", "--set", "spark.driver_memory=3GiB", "--set", "spark.shuffle_partitions=5")

    (spec,) = fake.specs
    assert (spec.spark.master, spec.spark.driver_memory, spec.spark.shuffle_partitions) == ("local[2]", "3072m", 5)


def test_setting_for_one_run_must_exist(cli: Cli, fake: Fake) -> None:
    assert "--set spark.nonsense" in cli("job", "run", "usage", "--set", "spark.nonsense=1", code=2).err
    assert fake.specs == []


@pytest.mark.parametrize(
    ("steps", "code", "text"),
    [
        (("failed:conflict:the log has a gap", "exit:4"), 4, "compact_events failed: the log has a gap"),
        (("failed:unavailable:no broker answers", "exit:7"), 7, "no broker answers"),
        (("failed:config:pip install 'iothub[spark]'", "exit:2"), 2, "pip install"),
        (("failed:corrupt:row 5", "exit:1"), 1, "row 5"),
        (("error:OutOfMemoryError", "exit:1"), 1, "exit code 1; last line of its log: OutOfMemoryError"),
        (("kill",), 1, "killed by SIGKILL"),
    ],
)
def test_failed_run_has_the_exit_code_of_its_kind(
    cli: Cli, fake: Fake, steps: tuple[str, ...], code: int, text: str
) -> None:
    fake.steps["compact_events"] = steps

    result = cli("job", "run", "compact_events", "-o", "json", code=code)

    assert text in result.err
    assert "job logs 1" in result.err
    assert result.json["result"] == "failed"


def test_run_on_stores_of_other_accounts_begins_nothing(cli: Cli, fake: Fake) -> None:
    """Exit code 4; the history has it, as it has every failure of the night."""
    DataDir(cli.data_dir).write_installation("b" * 32)

    result = cli("job", "run", "compact_events", code=4)

    assert "belong to installation bbbb" in result.err
    assert fake.specs == []
    (run,) = cli.rows("job", "history")
    assert (run["result"], "belong to installation bbbb" in run["text"]) == ("failed", True)


def test_run_beside_another_one_is_refused(cli: Cli, fake: Fake) -> None:
    with accounts(cli) as store:
        job_runs.begin(store, "usage", {}, OWNER)

    result = cli("job", "run", "compact_events", code=4)

    assert "usage is running since" in result.err
    assert "two runs never overlap" in result.err


def test_jobs_of_the_night_run_one_after_another_whatever_becomes_of_them(cli: Cli, fake: Fake) -> None:
    """The exit code is that of the first that failed; each has its row."""
    set_up(cli, '[jobs]\nnightly = ["compact_events", "usage", "verify"]')
    fake.steps["usage"] = ("failed:unavailable:no broker answers", "exit:7")

    result = cli("job", "run", "--nightly", "-o", "json", code=7)

    assert [(row["job"], row["result"]) for row in result.json] == [
        ("compact_events", "done"),
        ("usage", "failed"),
        ("verify", "done"),
    ]
    assert "at least one nightly job failed; the first one: usage failed: no broker answers" in result.err


def test_night_beside_another_run_says_so_for_each_job(cli: Cli, fake: Fake) -> None:
    """Nothing was run; the exit code is that of a single refused one."""
    with accounts(cli) as store:
        job_runs.begin(store, "usage", {}, OWNER)

    result = cli("job", "run", "--nightly", "-o", "json", code=4)

    assert result.json == []
    assert result.err.count("usage is running since") == 5
    assert fake.specs == []


def test_night_that_is_interrupted_goes_on_with_nothing(cli: Cli, fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.steps["compact_events"] = ("note:x", "forever")

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("iothub.cli.job_progress.JobProgress.__call__", interrupt)
    cli("job", "run", "--nightly", code=130)

    assert [row["job"] for row in cli.rows("job", "history")] == ["compact_events"]


@pytest.mark.parametrize(
    ("words", "code", "text"),
    [
        ((), 2, "expected the name of one job, or --nightly"),
        (("usage", "--nightly"), 2, "expected the name of one job, or --nightly"),
        (("--nightly", "--full"), 2, "--nightly does not allow --full"),
        (("compakt",), 3, "there is no job 'compakt'"),
        (("insights", "--dry-run"), 2, "job insights has no option 'dry_run'; it has"),
        (("compact_events", "--option", "leave_out_damaged=true"), 2, "was removed: damaged events are passed over"),
        (("archive", "--option", "full"), 2, "expected NAME=VALUE"),
        (("archive", "--option", "full=1"), 2, "expected true or false"),
        (("erase", "--option", "tenant_id=x"), 2, "expected a whole number"),
        (("erase", "--option", "tenant_id=0"), 2, "no tenant ever had the number 0: there was no tenant yet"),
        (("erase", "--option", "tenant_id=7"), 2, "no tenant ever had the number 7: there was no tenant yet"),
        (("erase",), 2, "job erase needs --option tenant_id=VALUE: Number of the deleted tenant."),
        (("usage", "--wait", "long"), 2, "--wait 'long': expected a duration"),
    ],
)
def test_what_cannot_be_run_is_refused_before_anything_begins(
    cli: Cli, fake: Fake, words: tuple[str, ...], code: int, text: str
) -> None:
    assert text in cli("job", "run", *words, code=code).err
    assert cli.rows("job", "history") == []


def test_dry_run_is_told_apart_in_the_history(cli: Cli, fake: Fake) -> None:
    fake.steps["usage"] = ("done:{}",)
    cli("job", "run", "usage", "--dry-run")
    cli("job", "run", "usage")

    _, real, dry = cli("job", "history").out.splitlines()

    assert "dry_run=yes" in dry
    assert "dry_run" not in real


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("JAVA_HOME", "/nonexistent", "JAVA_HOME (/nonexistent) has no bin/java"),
        ("PATH", "/nonexistent", "there is no java in PATH"),
    ],
)
def test_missing_java_is_said(cli: Cli, monkeypatch: pytest.MonkeyPatch, name: str, value: str, text: str) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv(name, value)

    assert text in cli("job", "run", "compact_events", code=2).err


def test_wrong_python_for_jobs_is_said(cli: Cli) -> None:
    set_up(cli, '[spark]\npython = "/nonexistent/python"')

    assert (
        "spark.python: /nonexistent/python: cannot be started: No such file or directory"
        in cli("job", "run", "usage", code=2).err
    )


def test_job_needs_an_initialised_directory(cli: Cli, fake: Fake, tmp_path: Path) -> None:
    result = cli.call("--data-dir", str(tmp_path / "none"), "job", "run", "compact_events")

    assert result.code == 3


def test_history_has_every_run_and_show_the_whole_of_one(cli: Cli, fake: Fake) -> None:
    fake.steps["usage"] = ('done:{"hours": 3}',)
    for name in ("compact_events", "usage", "usage"):
        cli("job", "run", name)

    assert [row["run"] for row in cli.rows("job", "history")] == [3, 2, 1]
    assert [row["run"] for row in cli.rows("job", "history", "usage", "--limit", "1")] == [3]
    assert cli("job", "show", "2", "-o", "json").json["figures"] == {"hours": 3}
    assert "RESULT" in cli("job", "history").out
    assert "there is no run 9" in cli("job", "show", "9", code=3).err
    assert "there is no job 'x'" in cli("job", "history", "x", code=3).err


def test_logs_of_a_run_can_be_read(cli: Cli, fake: Fake) -> None:
    fake.steps["usage"] = ("error:WARN something", "done:{}")
    cli("job", "run", "usage")

    assert cli("job", "logs", "1").out == "WARN something\n"
    assert "there is no run 2" in cli("job", "logs", "2", code=3).err


def test_list_has_every_job(cli: Cli) -> None:
    rows = {row["name"]: row for row in cli.rows("job", "list")}

    assert list(rows) == list(CATALOGUE)
    assert rows["compact_events"]["nightly"] is True
    assert rows["compact_events"]["options"][:2] == ["full", "dry_run"]


def test_every_job_of_the_night_exists() -> None:
    """The settings know names alone."""
    assert set(NIGHTLY_JOBS) <= set(CATALOGUE)


def test_status_tells_what_runs_what_was_and_what_is_due(cli: Cli, fake: Fake) -> None:
    set_up(cli, '[jobs]\nat = "02:30"')
    cli("job", "run", "compact_events")
    fake.steps["usage"] = ("kill",)
    cli("job", "run", "usage", code=1)
    with accounts(cli) as store:
        job_runs.begin(store, "archive", {}, OWNER)

    rows = {row["name"]: row for row in cli.rows("job", "status")}

    states = {name: row["state"] for name, row in rows.items()}
    assert states == {
        "compact_events": "done",
        "verify": "never run",
        "usage": "failed",
        "insights": "never run",
        "archive": "running",
        "erase": "never run",
    }
    assert rows["compact_events"]["last_success"] is not None
    assert rows["usage"]["last_success"] is None
    assert (rows["archive"]["host"], rows["archive"]["pid"]) == ("hub-2", 5)
    assert rows["compact_events"]["next"].endswith(" 02:30:00 UTC")
    assert rows["verify"]["next"] is None


def test_run_without_heartbeats_is_shown_as_died(cli: Cli, fake: Fake) -> None:
    """It was killed and could note nothing; the row says enough, and stands in nobody's way."""
    with accounts(cli) as store:
        run = job_runs.begin(store, "usage", {}, OWNER)
        let_expire(store, run.id)

    row = next(row for row in cli.rows("job", "status") if row["name"] == "usage")
    (died,) = cli.rows("job", "history")
    cli("job", "run", "usage")

    assert (row["state"], row["pid"], row["run"]) == ("died", None, 1)
    assert (died["result"], died["kind"]) == ("died", "died")
    assert "process 5 on hub-2 was killed, or the machine stopped" in died["text"]
    assert [run["result"] for run in cli.rows("job", "history")] == ["done", "died"]


def test_schedule_is_for_a_directory_that_is_there(cli: Cli, tmp_path: Path) -> None:
    """Its timer would fail every night, unseen."""
    result = cli.call("--data-dir", str(tmp_path / "none"), "job", "schedule", "--print", "cron")

    assert (result.code, result.out) == (3, "")


def test_command_in_a_failure_works_when_pasted(cli: Cli, fake: Fake) -> None:
    """With the data directory of this run, in the job's own words too."""
    fake.steps["compact_events"] = ("failed:corrupt:go on with `iothub job run compact_events --full`", "exit:1")

    said = cli("job", "run", "compact_events", code=1).err

    assert f"`iothub --data-dir {cli.data_dir} job run compact_events --full`" in said
    assert f"`iothub --data-dir {cli.data_dir} job logs 1`" in said


@pytest.mark.parametrize("form", ["systemd", "cron"])
def test_schedule_names_this_installation(cli: Cli, form: str) -> None:
    """What is printed works as it is: whole paths, the setting's time."""
    set_up(cli, '[jobs]\nat = "04:05"')

    text = cli("job", "schedule", "--print", form, "--user", "hub").out

    assert f"--data-dir {cli.data_dir} --no-input job run --nightly --wait 2h" in text
    assert ("04:05:00 UTC" in text) if form == "systemd" else ("\n5 4 * * * hub " in text)


def test_schedule_is_an_object_for_scripts(cli: Cli) -> None:
    """With what the text has, each file by its name."""
    cron = cli("job", "schedule", "--print", "cron", "-o", "json").json
    systemd = cli("job", "schedule", "--print", "systemd", "-o", "json").json

    assert (cron["name"], cron["crontab"]) == ("cron", cli("job", "schedule", "--print", "cron").out)
    assert set(systemd) == {"name", "service", "timer"}
    assert f"{systemd['service']}\n{systemd['timer']}" == cli("job", "schedule", "--print", "systemd").out


def test_forget_lets_go_of_what_a_job_holds(acme: Cli) -> None:
    """What the alarm `job_mark_stale` advises."""
    with accounts(acme) as store, store.write() as writer:
        row = {"job": "usage", "part": 0, "upto": 4, "at_ms": 0}
        writer.connection.execute(insert(job_mark), [{**row, "log": log} for log in ("analytics", "analytics seen")])

    assert acme("job", "forget", "usage", "-o", "json").json == {"name": "usage", "held": ["analytics"]}

    assert acme("job", "forget", "usage", "-o", "json").json["held"] == []
    assert "there is no job 'usages'" in acme("job", "forget", "usages", code=3).err
