"""`iothub.jobs.specs`: from the settings to what a job's process is told."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.loader import load
from iothub.config.sections import Config, Spark
from iothub.jobs import specs
from iothub.records.job_catalogue import CATALOGUE
from iothub.records.job_spec import HBaseTables, KafkaLog, Spec, SqliteFile, read_spec
from iothub.records.kafka_security import KafkaSecurity

ENTRY = CATALOGUE["compact_events"]


def made(tmp_path: Path, text: str = "", options: dict[str, bool | int | float | str] | None = None) -> Spec:
    file = tmp_path / "iothub.toml"
    file.write_text(f"config_version = 1\n{text}\n")
    return specs.make_spec(load(file=file).config, DataDir(tmp_path / "hub"), ENTRY, options or {}, 7, tmp_path)


def test_embedded_default_is_files_of_the_data_directory(tmp_path: Path) -> None:
    spec = made(tmp_path)

    assert spec.events == SqliteFile(tmp_path / "hub/events.db")
    assert spec.checkpoints == SqliteFile(tmp_path / "hub/checkpoints.db")
    assert spec.state == SqliteFile(tmp_path / "hub/state.db")
    assert spec.archive == tmp_path / "hub/archive"
    assert (spec.job, spec.run_id) == ("compact_events", 7)


def test_url_of_the_accounts_is_not_copied(tmp_path: Path) -> None:
    """It may hold a password, and a run that is killed leaves its folder."""
    (tmp_path / "url").write_text("mysql+pymysql://hub:secret@db/iothub\n")

    spec = made(tmp_path, '[sql]\nurl_file = "url"')

    assert spec.sql_url_file == tmp_path / "url"
    assert not (tmp_path / "accounts-url").exists()
    assert made(tmp_path).sql_url_file == tmp_path / "accounts-url"
    assert (tmp_path / "accounts-url").read_text() == f"sqlite:///{tmp_path}/hub/accounts.db"


def test_servers_are_told_with_their_security(tmp_path: Path) -> None:
    """Secrets by the names of their files."""
    spec = made(
        tmp_path,
        '[events]\ndriver = "kafka"\n[state]\ndriver = "hbase"\n'
        '[kafka]\nbrokers = ["k:9092"]\ntopic_prefix = "hubs"\nsecurity_protocol = "SASL_SSL"\n'
        'sasl_username = "hub"\nsasl_password_file = "password"\nca_file = "ca.pem"\n'
        '[hbase]\nthrift = ["h:9090"]\nnamespace = "hubs"\n',
    )

    assert spec.events == KafkaLog(
        (Endpoint("k", 9092),),
        "hubs",
        3.0,
        KafkaSecurity("SASL_SSL", tmp_path / "ca.pem", sasl_username="hub", sasl_password_file=tmp_path / "password"),
    )
    assert spec.state == spec.checkpoints == HBaseTables((Endpoint("h", 9090),), "hubs", 10.0)


def test_command_line_has_names_of_files_alone(tmp_path: Path) -> None:
    """What the process is told does not stand in the list of processes."""
    spec = made(tmp_path, options={"full": True})

    command = specs.command_of(Config(), spec, tmp_path)

    assert command == [
        sys.executable,
        "-m",
        "iothub_spark",
        "--lifeline",
        "compact_events",
        "--spec",
        str(tmp_path / "spec.json"),
    ]
    assert read_spec(tmp_path / "spec.json") == spec
    assert (tmp_path / "spec.json").stat().st_mode & 0o077 == 0
    assert spec.spark.local_dir is not None
    assert spec.spark.local_dir.is_dir()


def test_workers_have_the_same_python(tmp_path: Path) -> None:
    """Spark would take the first `python3` in PATH, which lacks what is needed."""
    environment = specs.environment_of(Config(), tmp_path, {"PATH": "/bin", "PYSPARK_PYTHON": "other"})

    assert environment == {
        "PATH": "/bin",
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "TMPDIR": str(tmp_path / "spark"),
    }


@pytest.fixture
def java_home(tmp_path: Path) -> str:
    java = tmp_path / "java/bin/java"
    java.parent.mkdir(parents=True)
    java.write_text("")
    java.chmod(0o700)
    return str(tmp_path / "java")


def test_python_of_the_settings_is_found_from_everywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A job's process begins elsewhere: what is relative is so to where the command was given."""
    monkeypatch.chdir(tmp_path)

    assert specs.python_of(Config(spark=Spark(python=Path("venv/bin/python")))) == tmp_path / "venv/bin/python"


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (
            f'exec "{sys.executable}" -S -I "$@"',
            r"lacks iothub, iothub_spark, pyspark, pyarrow: .*/python -m pip install 'iothub\[spark\]'",
        ),
        ("exit 3", "is not a working Python: exit code 3"),
    ],
    ids=["bare", "none"],
)
def test_python_without_what_a_job_needs_is_refused(tmp_path: Path, java_home: str, line: str, text: str) -> None:
    """Before a run begins."""
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\n{line}\n")
    python.chmod(0o700)

    with pytest.raises(ConfigError, match=text):
        specs.require_spark(load(flags=[f"spark.python={python}"]).config, {**os.environ, "JAVA_HOME": java_home})


def test_empty_master_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"spark\.master is empty"):
        specs.require_spark(load(flags=["spark.master="]).config, {})


def test_java_home_counts_before_the_path(java_home: str) -> None:
    """As Spark looks for it."""
    settings = Config()
    environment = {**os.environ, "PATH": ""}
    environment.pop("JAVA_HOME", None)

    specs.require_spark(settings, {**environment, "JAVA_HOME": java_home})
    with pytest.raises(ConfigError, match="there is no java in PATH"):
        specs.require_spark(settings, environment)
