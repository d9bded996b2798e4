"""What one run of a job is to do, and where: the file that the runner writes and the job's process reads.

Knows no Spark and opens nothing. The file holds no secret: those are named by the files that they are in. Strict: an unknown, a missing or a wrong
key is refused by name, so that runner and job never understand it differently.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.records.job_spec_fields import Fields

Option = bool | int | float | str
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A store of the embedded default: `events.db`, `checkpoints.db` or `state.db`. A hub may be working in it."""

    path: Path


@dataclass(frozen=True, slots=True)
class KafkaSecurity:
    """As section `kafka` of the configuration has it."""

    protocol: str = "PLAINTEXT"
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    sasl_mechanism: str = "SCRAM-SHA-512"
    sasl_username: str = ""
    sasl_password_file: Path | None = None


@dataclass(frozen=True, slots=True)
class KafkaLog:
    """The session-event log on Kafka. `timeout_s`: how long a broker may take to answer."""

    brokers: tuple[Endpoint, ...]
    topic_prefix: str = "iothub"
    timeout_s: float = 3.0
    security: KafkaSecurity = field(default_factory=KafkaSecurity)


@dataclass(frozen=True, slots=True)
class HBaseTables:
    """Our tables in HBase. `timeout_s`: how long a gateway may be silent."""

    thrift: tuple[Endpoint, ...]
    namespace: str = "iothub"
    timeout_s: float = 10.0


@dataclass(frozen=True, slots=True)
class SparkSettings:
    """How Spark is started. `local_dir`: where it may put what does not fit into memory; the runner removes it afterwards."""

    master: str = "local[*]"
    driver_memory: str = "1g"
    shuffle_partitions: int = 8
    local_dir: Path | None = None


@dataclass(frozen=True, slots=True)
class Spec:
    """One run.

    `run_id`: the number of its row in the run history, never issued twice. `archive`: the folder of Parquet files, if there is one.
    `sql_url_file`: the file with the SQLAlchemy URL of the accounts database.
    """

    job: str
    run_id: int
    events: SqliteFile | KafkaLog
    checkpoints: SqliteFile | HBaseTables
    state: SqliteFile | HBaseTables
    options: Mapping[str, Option] = field(default_factory=dict)
    archive: Path | None = None
    sql_url_file: Path | None = None
    spark: SparkSettings = field(default_factory=SparkSettings)

    @property
    def is_full(self) -> bool:
        return self.options.get("full") is True

    @property
    def is_dry_run(self) -> bool:
        return self.options.get("dry_run") is True


def read_spec(file: Path) -> Spec:
    """Read the file of a run. Raises ConfigError, with the key."""
    try:
        with file.open("rb") as source:
            octets = source.read(_LIMIT_BYTES + 1)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from None
    if len(octets) > _LIMIT_BYTES:
        raise ConfigError(f"{file}: larger than 1 MiB, which no run needs; is this the right file?")
    try:
        value = json.loads(octets)
    except (ValueError, RecursionError):
        raise ConfigError(
            f"{file}: not JSON, expected what one run is to do: take `iothub job run {{job}}`, which needs no file, "
            "or for spark-submit write one as the guide shows (docs/guide/spark.md, A cluster)"
        ) from None
    return parse_spec(value, str(file))


def parse_spec(value: object, where: str = "spec") -> Spec:
    """Read what `write_spec` returns. Raises ConfigError, with the key."""
    fields = Fields(value, where)
    spec = Spec(
        job=fields.text("job"),
        run_id=fields.number("run_id"),
        events=_events(fields.inner("events")),
        checkpoints=_store(fields.inner("checkpoints")),
        state=_store(fields.inner("state")),
        options=fields.options("options"),
        archive=_archive(fields),
        sql_url_file=fields.path("sql_url_file", None),
        spark=_spark(fields),
    )
    fields.refuse_others()
    return spec


def write_spec(spec: Spec) -> str:
    """Return the file's text."""
    content: dict[str, object] = {
        "job": spec.job,
        "run_id": spec.run_id,
        "options": dict(spec.options),
        "events": _written(spec.events),
        "checkpoints": _written(spec.checkpoints),
        "state": _written(spec.state),
        "archive": None if spec.archive is None else {"path": str(spec.archive)},
        "sql_url_file": None if spec.sql_url_file is None else str(spec.sql_url_file),
        "spark": {
            "master": spec.spark.master,
            "driver_memory": spec.spark.driver_memory,
            "shuffle_partitions": spec.spark.shuffle_partitions,
            "local_dir": None if spec.spark.local_dir is None else str(spec.spark.local_dir),
        },
    }
    return json.dumps(content, indent=2) + "\n"


# --- reading


def _events(fields: Fields) -> SqliteFile | KafkaLog:
    if fields.choice("driver", "sqlite", "kafka") == "sqlite":
        return _file(fields)
    log = KafkaLog(
        brokers=fields.endpoints("brokers"),
        topic_prefix=fields.text("topic_prefix", "iothub"),
        timeout_s=fields.seconds("timeout_s", 3.0),
        security=_security(fields.inner("security")) if fields.has("security") else KafkaSecurity(),
    )
    fields.refuse_others()
    return log


def _security(fields: Fields) -> KafkaSecurity:
    security = KafkaSecurity(
        protocol=fields.text("protocol", "PLAINTEXT"),
        ca_file=fields.path("ca_file", None),
        cert_file=fields.path("cert_file", None),
        key_file=fields.path("key_file", None),
        sasl_mechanism=fields.text("sasl_mechanism", "SCRAM-SHA-512"),
        sasl_username=fields.text("sasl_username", ""),
        sasl_password_file=fields.path("sasl_password_file", None),
    )
    fields.refuse_others()
    return security


def _store(fields: Fields) -> SqliteFile | HBaseTables:
    if fields.choice("driver", "sqlite", "hbase") == "sqlite":
        return _file(fields)
    tables = HBaseTables(
        thrift=fields.endpoints("thrift"),
        namespace=fields.text("namespace", "iothub"),
        timeout_s=fields.seconds("timeout_s", 10.0),
    )
    fields.refuse_others()
    return tables


def _file(fields: Fields) -> SqliteFile:
    file = SqliteFile(Path(fields.text("path")))
    fields.refuse_others()
    return file


def _archive(fields: Fields) -> Path | None:
    if not fields.has("archive"):
        return None
    inner = fields.inner("archive")
    path = Path(inner.text("path"))
    inner.refuse_others()
    return path


def _spark(fields: Fields) -> SparkSettings:
    if not fields.has("spark"):
        return SparkSettings()
    inner, usual = fields.inner("spark"), SparkSettings()
    settings = SparkSettings(
        master=inner.text("master", usual.master),
        driver_memory=inner.text("driver_memory", usual.driver_memory),
        shuffle_partitions=inner.number("shuffle_partitions", usual.shuffle_partitions),
        local_dir=inner.path("local_dir", None),
    )
    inner.refuse_others()
    return settings


# --- writing


def _written(store: SqliteFile | KafkaLog | HBaseTables) -> dict[str, object]:
    if isinstance(store, SqliteFile):
        return {"driver": "sqlite", "path": str(store.path)}
    if isinstance(store, HBaseTables):
        thrift = [str(gateway) for gateway in store.thrift]
        return {"driver": "hbase", "thrift": thrift, "namespace": store.namespace, "timeout_s": store.timeout_s}
    security = store.security
    return {
        "driver": "kafka",
        "brokers": [str(broker) for broker in store.brokers],
        "topic_prefix": store.topic_prefix,
        "timeout_s": store.timeout_s,
        "security": {
            "protocol": security.protocol,
            "ca_file": _name(security.ca_file),
            "cert_file": _name(security.cert_file),
            "key_file": _name(security.key_file),
            "sasl_mechanism": security.sasl_mechanism,
            "sasl_username": security.sasl_username,
            "sasl_password_file": _name(security.sasl_password_file),
        },
    }


def _name(file: Path | None) -> str | None:
    return None if file is None else str(file)
