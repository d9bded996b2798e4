"""iothub.cli.served_machine: what the REST API shows and starts on its machine, by the functions of the commands."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.admin.runs import read_report
from iothub.base.errors import ConfigError, NotFoundError
from iothub.cli import served_machine
from iothub.cli.app import App
from iothub.cli.hints import Hints
from iothub.cli.main import run
from iothub.cli.served_machine import ServedMachine
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import Owner, Result, Run
from iothub_tenants.accounts.store import AccountStore


@pytest.fixture
def app(tmp_path: Path) -> Iterator[App]:
    assert run(["--data-dir", str(tmp_path / "hub"), "init"]) == 0
    made = App(tmp_path / "hub", None, Hints(), is_input_allowed=False)
    with closing(made.store()):
        yield made


@pytest.fixture
def machine(app: App) -> ServedMachine:
    app.load(["log.level=debug"])
    return ServedMachine(app, ["log.level=debug"])


def run_with(app: App, figures: dict[str, object]) -> Run:
    begun = job_runs.begin(app.store(), "insights", {}, Owner("here", 1, "me"))
    job_runs.end(app.store(), begun.id, Result.DONE, figures=figures)
    return job_runs.show(app.store(), begun.id)


def test_settings_have_values_and_origins(machine: ServedMachine) -> None:
    rows = {row["name"]: row for row in machine.settings()}

    assert rows["log.level"]["value"] == "debug"
    assert rows["log.level"]["origin"] != "default"
    assert rows["listeners.tcp.port"]["value"] == 1883


def test_features_name_extras_and_drivers(machine: ServedMachine) -> None:
    features = machine.features()

    assert "admin" in features["extras"]  # type: ignore[operator]
    assert features["drivers"]["queues"] == "sqlite"  # type: ignore[index]


def test_job_is_started_as_the_command_does(machine: ServedMachine, app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the data directory and the flags of the API; a wrong option is refused before."""
    started: list[list[str]] = []

    def start(store: AccountStore, command: list[str], job: str) -> Run:
        started.append(command)
        return job_runs.begin(store, job, {}, Owner("here", 1, "me"))

    monkeypatch.setattr(served_machine.control, "start_run", start)

    machine.start_run(app.store(), "erase", is_full=False, is_dry_run=True, options=["tenant_id=7"])

    words = started[0][started[0].index("--data-dir") :]
    assert words == [
        "--data-dir", str(app.data_dir.path.absolute()), "job", "run", "erase", "--dry-run",
        "--option", "tenant_id=7", "--set", "log.level=debug",
    ]  # fmt: skip
    with pytest.raises(ConfigError, match="no option"):
        machine.start_run(app.store(), "usage", is_full=False, is_dry_run=False, options=["x=1"])
    assert len(started) == 1


def test_report_is_read_from_the_archive_alone(machine: ServedMachine, app: App, tmp_path: Path) -> None:
    """Whatever path the figures say."""
    reports = app.data_dir.path / "archive" / "reports"
    reports.mkdir(parents=True)
    (reports / "insights-1.html").write_text("<p>one</p>")
    (tmp_path / "secret").write_text("x")

    assert machine.read_report(run_with(app, {"report": "/elsewhere/insights-1.html"})) == "<p>one</p>"
    with pytest.raises(NotFoundError, match="not there any more"):
        machine.read_report(run_with(app, {"report": "../../../secret"}))
    with pytest.raises(NotFoundError, match="wrote no report"):
        read_report(run_with(app, {}), reports.parent)


def test_log_that_is_not_here_is_not_found(machine: ServedMachine, app: App) -> None:
    with pytest.raises(NotFoundError, match="on the machine of the run"):
        machine.read_log(run_with(app, {}))
    with pytest.raises(NotFoundError, match="no event log"):
        machine.event_lag()


def test_findings_are_those_of_doctor(machine: ServedMachine) -> None:
    found = {str(row["name"]) for row in machine.findings()}

    assert "accounts" in found


def test_reload_of_the_hub_reaches_the_api(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """What needs a restart stays, and settings with a mistake change nothing. The log is that of the tests' process: it keeps its level."""
    levels: list[str] = []
    monkeypatch.setattr("iothub.base.log.configure", lambda *, level, form: levels.append(level))
    app.load()
    machine = ServedMachine(app, [])
    config_file = app.data_dir.config_file
    first = config_file.read_text()

    config_file.write_text(f"{first}\n[webhooks]\ntimeout = '7s'\n[node]\nnumber = 9\n[log]\nlevel = 'error'\n")
    assert machine.config().webhooks.timeout_s != 7.0  # nobody has reloaded

    app.data_dir.note_reload()
    assert (machine.config().webhooks.timeout_s, machine.config().node.number) == (7.0, 0)
    assert levels == ["error"]

    config_file.write_text("[nobody]\n")
    app.data_dir.reloaded_file.unlink()
    assert machine.config().webhooks.timeout_s == 7.0
