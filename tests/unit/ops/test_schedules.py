"""`ops/schedules`: the files for Airflow and Kubernetes say the same as the settings; those for systemd and cron are `iothub job schedule`'s."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from iothub.cli.main import run
from iothub.config.sections import Jobs
from iothub.jobs.timetable import USUAL_AT
from tests.support.in_process.command import Cli, Result

SCHEDULES = Path(__file__).parents[3] / "ops/schedules"
WHEN = f"{USUAL_AT % 60} {USUAL_AT // 60} * * *"


class Task:
    """What the DAG makes of a job."""

    made: list[Task] = []

    def __init__(self, **options: Any) -> None:
        self.options = options
        self.after: list[Task] = []
        Task.made.append(self)

    def __rshift__(self, other: Task) -> Task:
        other.after.append(self)
        return other

    def __rrshift__(self, others: list[Task]) -> Task:
        self.after.extend(others)
        return self

    @property
    def name(self) -> str:
        return str(self.options["task_id"])


class Dag:
    """What the DAG itself says."""

    made: list[Dag] = []

    def __init__(self, **options: Any) -> None:
        self.options = options
        Dag.made.append(self)

    def __enter__(self) -> Dag:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""


@pytest.fixture
def airflow(monkeypatch: pytest.MonkeyPatch) -> tuple[Dag, list[Task]]:
    """The DAG, run with doubles of Airflow's classes."""
    operators = "airflow.providers.standard.operators"
    for name in ("airflow", "airflow.sdk", f"{operators}.bash", f"{operators}.empty"):
        module = ModuleType(name)
        vars(module).update(DAG=Dag, BashOperator=Task, EmptyOperator=Task)
        monkeypatch.setitem(sys.modules, name, module)
    Task.made, Dag.made = [], []
    runpy.run_path(str(SCHEDULES / "airflow_dag.py"))
    return Dag.made[0], Task.made


def test_airflow_runs_the_jobs_of_the_night_in_their_order(airflow: tuple[Dag, list[Task]]) -> None:
    """Each whatever became of the one before, none twice at a time, nothing made up for."""
    dag, made = airflow
    tasks = made[: len(Jobs().nightly)]

    assert [task.name for task in tasks] == list(Jobs().nightly)
    assert [task.after for task in tasks] == [[], *[[task] for task in tasks[:-1]]]
    assert {task.options["trigger_rule"] for task in tasks} == {"all_done"}
    assert (dag.options["schedule"], dag.options["max_active_runs"], dag.options["catchup"]) == (WHEN, 1, False)


def ended(tasks: list[Task], failing: str) -> dict[str, str]:
    """Return the state of each task as Airflow gives it when one fails."""
    states: dict[str, str] = {}
    for task in tasks:
        is_to_run = task.options.get("trigger_rule", "all_success") == "all_done" or all(
            states[before.name] == "success" for before in task.after
        )
        states[task.name] = ("failed" if task.name == failing else "success") if is_to_run else "upstream_failed"
    return states


@pytest.mark.parametrize("failing", ["", *Jobs().nightly])
def test_airflow_counts_a_night_as_failed_when_any_job_has(airflow: tuple[Dag, list[Task]], failing: str) -> None:
    """A run is what its last tasks are; the jobs after the one that failed run all the same."""
    states = ended(airflow[1], failing)
    leaves = {task.name for task in airflow[1]} - {before.name for task in airflow[1] for before in task.after}

    assert all(states[job] == ("failed" if job == failing else "success") for job in Jobs().nightly)
    assert all(states[leaf] == "success" for leaf in leaves) is not bool(failing)


def is_understood(words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> bool:
    """The command line knows every word: what it complains of is the directory that is not there."""
    given = [word.replace("/var/lib/iothub", str(tmp_path)).replace("/data", str(tmp_path)) for word in words]
    return run(given) == 3 and "not initialised yet" in capsys.readouterr().err


def test_commands_of_airflow_are_understood(
    airflow: tuple[Dag, list[Task]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for task in airflow[1][: len(Jobs().nightly)]:
        program, *words = task.options["bash_command"].removeprefix("exec ").split()

        assert program == "/opt/iothub/bin/iothub"
        assert is_understood(words, tmp_path / "none", capsys)


def test_kubernetes_runs_the_night_once_at_a_time(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """What the API server would refuse is not looked at here; that the parts fit together is."""
    job = yaml.safe_load((SCHEDULES / "kubernetes-cronjob.yaml").read_text())
    pod = job["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]

    assert (job["apiVersion"], job["kind"]) == ("batch/v1", "CronJob")
    assert (job["spec"]["schedule"], job["spec"]["timeZone"]) == (WHEN, "Etc/UTC")
    assert (job["spec"]["concurrencyPolicy"], pod["restartPolicy"]) == ("Forbid", "Never")
    assert is_understood(container["command"][1:], tmp_path / "none", capsys)
    mounted = {mount["name"] for each in (container, *pod["initContainers"]) for mount in each["volumeMounts"]}
    assert mounted == {volume["name"] for volume in pod["volumes"]}


@pytest.fixture
def cli_in(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Cli:
    def call(*words: str, stdin: bytes = b"") -> Result:
        capsys.readouterr()
        code = run(words)
        said = capsys.readouterr()
        return Result(code, said.out, said.err)

    cli = Cli(tmp_path / "hub", call)
    cli("init")
    return cli


def test_data_directory_of_the_pod_is_one(tmp_path: Path, cli_in: Cli) -> None:
    """Pepper and configuration are enough where the accounts are on a server: nothing asks for `init`."""
    (cli_in.data_dir / "accounts.db").rename(tmp_path / "accounts.db")
    (tmp_path / "accounts-url").write_text(f"sqlite:///{tmp_path}/accounts.db")
    with (cli_in.data_dir / "iothub.toml").open("a") as file:
        file.write(f'\n[sql]\nurl_file = "{tmp_path}/accounts-url"\n')

    assert cli_in.rows("job", "history") == []
