"""Makes the spec of a job's process from the configuration, and the command that starts it.

Knows no job and opens no store.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from iothub.base.errors import ConfigError, NotFoundError
from iothub.config.datadir import DataDir, write_atomically
from iothub.config.sections import Config
from iothub.records.job_catalogue import CATALOGUE, JobEntry
from iothub.records.job_spec import (
    HBaseTables,
    KafkaLog,
    Option,
    SparkSettings,
    Spec,
    SqliteFile,
    write_spec,
)
from iothub.records.kafka_security import KafkaSecurity
from iothub_tenants.accounts.database import accounts_url

_NEEDED = ("iothub", "iothub_spark", "pyspark", "pyarrow")
_ASK = "import sys; from importlib.util import find_spec; print(*[name for name in sys.argv[1:] if find_spec(name) is None])"
_MOST_DIGITS = 18  # of a number; 64 bits hold it
_ASK_S = 60.0  # a Python may start slowly where much else runs


def entry_of(job: str) -> JobEntry:
    """Return the catalogue entry of a job. Raises NotFoundError."""
    if job not in CATALOGUE:
        raise NotFoundError(f"there is no job {job!r}: expected one of {', '.join(CATALOGUE)}")
    return CATALOGUE[job]


def read_options(entry: JobEntry, given: Sequence[str], *, is_full: bool, is_dry_run: bool) -> dict[str, Option]:
    """Return the options of one run: the two flags, and `NAME=VALUE` texts.

    Raises:
        ConfigError: The job has no such option, its value is invalid, or a required option is missing.
    """
    options: dict[str, Option] = {}
    for name, is_asked in (("full", is_full), ("dry_run", is_dry_run)):
        if is_asked:
            options[name] = _value(entry, name, "true")
    for text in given:
        name, equals, value = text.partition("=")
        if not equals:
            raise ConfigError(f"--option {text}: expected NAME=VALUE")
        options[name] = _value(entry, name, value)
    for option in entry.options:
        if option.is_required and option.name not in options:
            raise ConfigError(f"job {entry.name} needs --option {option.name}=VALUE: {option.sentence}")
    return options


def _value(entry: JobEntry, name: str, text: str) -> Option:
    option = entry.option(name)
    if option is None and name in entry.removed_options:
        raise ConfigError(f"option {name!r} of job {entry.name} was removed: {entry.removed_options[name]}")
    if option is None:
        known = ", ".join(option.name for option in entry.options) or "none"
        raise ConfigError(f"job {entry.name} has no option {name!r}; it has {known}")
    if option.kind == "flag":
        if text not in ("true", "false"):
            raise ConfigError(f"--option {name}: expected true or false, got {text!r}")
        return text == "true"
    if option.kind == "number":
        if not text.isascii() or not text.isdecimal():
            raise ConfigError(f"--option {name}: expected a whole number, got {text!r}")
        if len(text) > _MOST_DIGITS:
            raise ConfigError(f"--option {name}: {text} is too large, expected at most {_MOST_DIGITS} digits")
        return int(text)
    return text


def make_spec(
    settings: Config, data_dir: DataDir, entry: JobEntry, options: Mapping[str, Option], run_id: int, folder: Path
) -> Spec:
    """Return the spec of one run. `folder`: the run's temporary folder."""
    path = data_dir.path.absolute()
    url_file = _url_file(settings, path / data_dir.accounts.name, folder)
    on_hbase = _on_hbase(settings)
    is_embedded = settings.state.driver == "sqlite"
    return Spec(
        job=entry.name,
        run_id=run_id,
        events=SqliteFile(path / data_dir.events.name) if settings.events.driver == "sqlite" else _kafka(settings),
        checkpoints=checkpoints_of(settings, data_dir),
        state=SqliteFile(path / data_dir.state.name) if is_embedded else on_hbase,
        options=options,
        archive=archive_of(settings, data_dir),
        sql_url_file=url_file,
        spark=SparkSettings(
            master=settings.spark.master,
            driver_memory=f"{settings.spark.driver_memory >> 20}m",
            shuffle_partitions=settings.spark.shuffle_partitions,
            local_dir=folder / "spark",
        ),
    )


def checkpoints_of(settings: Config, data_dir: DataDir) -> SqliteFile | HBaseTables:
    """Return where checkpoints and marks of jobs are; a file need not exist yet."""
    file = data_dir.path.absolute() / data_dir.checkpoints.name
    return SqliteFile(file) if settings.state.driver == "sqlite" else _on_hbase(settings)


def _on_hbase(settings: Config) -> HBaseTables:
    return HBaseTables(settings.hbase.thrift, settings.hbase.namespace, settings.hbase.timeout_s)


def _url_file(settings: Config, accounts: Path, folder: Path) -> Path:
    """Return the file with the URL of the accounts; a configured one may contain a password and is not copied."""
    url = accounts_url(
        settings.sql.url_file, accounts
    )  # read in any case, to report an error before anything is started
    if settings.sql.url_file is not None:
        return settings.sql.url_file.absolute()
    file = folder / "accounts-url"
    write_atomically(file, url.encode())
    return file


def archive_of(settings: Config, data_dir: DataDir) -> Path:
    """Return the folder of the archive, which need not exist yet."""
    return (settings.spark.archive or data_dir.path / "archive").absolute()


def _kafka(settings: Config) -> KafkaLog:
    kafka = settings.kafka
    security = KafkaSecurity(
        protocol=kafka.security_protocol,
        ca_file=_absolute(kafka.ca_file),
        cert_file=_absolute(kafka.cert_file),
        key_file=_absolute(kafka.key_file),
        sasl_mechanism=kafka.sasl_mechanism,
        sasl_username=kafka.sasl_username,
        sasl_password_file=_absolute(kafka.sasl_password_file),
    )
    return KafkaLog(kafka.brokers, kafka.topic_prefix, kafka.timeout_s, security)


def _absolute(file: Path | None) -> Path | None:
    return None if file is None else file.absolute()


def command_of(settings: Config, spec: Spec, folder: Path) -> list[str]:
    """Write the spec into the run's folder and return the command line of its process: no secret, no size that grows."""
    assert spec.spark.local_dir is not None  # noqa: S101  `make_spec` gives one
    spec.spark.local_dir.mkdir(mode=0o700)
    file = folder / "spec.json"
    write_atomically(file, write_spec(spec).encode())
    return [str(python_of(settings)), "-m", "iothub_spark", "--lifeline", spec.job, "--spec", str(file)]


def environment_of(settings: Config, folder: Path, environment: Mapping[str, str]) -> dict[str, str]:
    """Return the environment of a job's process: ours, with Spark's workers on the same Python and all temporary files in the run's folder."""
    python = str(python_of(settings))
    return {
        **environment,
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "TMPDIR": str(folder / "spark"),
    }


def python_of(settings: Config) -> Path:
    return Path(sys.executable) if settings.spark.python is None else settings.spark.python.absolute()


def require_spark(settings: Config, environment: Mapping[str, str]) -> None:
    """Check what a run needs.

    Raises ConfigError: no master, no Java, or no Python with the packages of a job.
    """
    if not settings.spark.master:
        raise ConfigError('spark.master is empty: expected "local[*]" or the URL of a cluster')
    _require_packages(python_of(settings), environment)
    _require_java(environment)


def _require_packages(python: Path, environment: Mapping[str, str]) -> None:
    """Ask the Python that runs the jobs, which need not be this one."""
    command = [str(python), "-c", _ASK, *_NEEDED]
    try:
        asked = subprocess.run(  # noqa: S603  as the job itself
            command, env=dict(environment), cwd="/", capture_output=True, text=True, check=True, timeout=_ASK_S
        )
    except OSError as error:
        raise ConfigError(f"spark.python: {python}: cannot be started: {error.strerror}") from None
    except subprocess.SubprocessError as error:
        how = f"exit code {error.returncode}" if isinstance(error, subprocess.CalledProcessError) else "no answer"
        raise ConfigError(f"spark.python: {python}: is not a working Python: {how}") from None
    if missing := asked.stdout.split():
        raise ConfigError(f"spark.python: {python} lacks {', '.join(missing)}: {python} -m pip install 'iothub[spark]'")


def _require_java(environment: Mapping[str, str]) -> None:
    home = environment.get("JAVA_HOME", "")
    program = str(Path(home) / "bin/java") if home else "java"
    if shutil.which(program, path=environment.get("PATH", os.defpath)) is None:
        where = f"JAVA_HOME ({home}) has no bin/java" if home else "there is no java in PATH"
        raise ConfigError(f"jobs need Java 17 or later, but {where}: install it, such as openjdk-17-jre-headless")
