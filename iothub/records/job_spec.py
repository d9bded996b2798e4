"""What one run of a job is to do, and where: the file that the runner writes and the job's process reads.

Knows no Spark and opens nothing. The file holds no secret: those are named by the files that they are in. Strict: an unknown, a missing or a wrong
key is refused by name, so that runner and job never understand it differently.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass
from math import inf
from pathlib import Path
from types import NoneType
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint, parse_endpoint
from iothub.records.kafka_security import KafkaSecurity

Option = bool | int | float | str
Kind = TypeVar("Kind")
_LIMIT_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class SqliteFile:
    """A store of the embedded default: `events.db`, `checkpoints.db` or `state.db`. A hub may be working in it."""

    path: Path


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
    content = _object(value, where)
    archive = content.get("archive")
    if archive is not None:
        content["archive"] = str(_record(_Folder, archive, f"{where}: archive").path)
    return _record(Spec, content, where)


def write_spec(spec: Spec) -> str:
    """Return the file's text."""
    content = _written(spec)
    if spec.archive is not None:
        content["archive"] = _written(_Folder(spec.archive))
    return json.dumps(content, indent=2) + "\n"


@dataclass(frozen=True, slots=True)
class _Folder:
    """How the file has the archive."""

    path: Path


_DRIVERS = {SqliteFile: "sqlite", KafkaLog: "kafka", HBaseTables: "hbase"}  # key `driver` of a store
_PLAIN: dict[type, tuple[str, Callable[[Any], bool]]] = {
    str: ("a text", lambda value: isinstance(value, str) and value != ""),
    Path: ("the path of a file", lambda value: isinstance(value, str) and value != ""),
    int: ("a whole number from 0 on", lambda value: type(value) is int and value >= 0),
    float: ("a number of seconds", lambda value: type(value) in (int, float) and 0 < value < inf),
}


def _written(value: Any) -> Any:
    if is_dataclass(value):
        driver = {"driver": _DRIVERS[type(value)]} if type(value) in _DRIVERS else {}
        return driver | {each.name: _written(getattr(value, each.name)) for each in fields(value)}
    if isinstance(value, Endpoint | Path):
        return str(value)
    if isinstance(value, tuple):
        return list(map(_written, value))
    return dict(value) if isinstance(value, Mapping) else value


def _object(value: object, where: str) -> dict[str, object]:
    if not isinstance(value, dict):
        raise _wrong(where, "a JSON object", value)
    return dict(value)


def _record(kind: type[Kind], value: object, where: str) -> Kind:
    """Read an object into a dataclass: null is as good as missing, and takes the default."""
    left, kinds, found = _object(value, where), get_type_hints(kind), {}
    for each in fields(cast("Any", kind)):
        given = left.pop(each.name, None)
        if given is not None and given != each.default:
            found[each.name] = _value(kinds[each.name], given, f"{where}: {each.name}")
        elif each.default is MISSING and each.default_factory is MISSING:
            raise ConfigError(f"{where}: {each.name!r} is missing")
    if left:
        raise ConfigError(f"{where}: unknown key {min(left)!r}: runner and job are of different versions")
    return kind(**found)


def _value(kind: Any, value: object, where: str) -> Any:
    """Read the value of one field by its type."""
    choices = [each for each in get_args(kind) if each is not NoneType]
    if get_origin(kind) is tuple:
        return _endpoints(value, where)
    if get_origin(kind) is Mapping:
        return _options(value, where)
    if len(choices) > 1:
        return _store({_DRIVERS[each]: each for each in choices}, value, where)
    (kind,) = choices or [kind]
    if kind not in _PLAIN:
        return _record(kind, value, where)
    words, is_right = _PLAIN[kind]
    if not is_right(value):
        raise _wrong(where, words, value)
    return kind(value)


def _store(kinds: Mapping[str, type[Any]], value: object, where: str) -> Any:
    content = _object(value, where)
    driver = content.pop("driver", None)
    if driver not in list(kinds):
        raise _wrong(f"{where}: driver", f"one of {', '.join(kinds)}", driver)
    return _record(kinds[str(driver)], content, where)


def _endpoints(value: object, where: str) -> tuple[Endpoint, ...]:
    if not isinstance(value, list) or not value or not all(isinstance(each, str) for each in value):
        raise _wrong(where, 'a list such as ["host:port"]', value)
    try:
        return tuple(map(parse_endpoint, value))
    except ValueError as error:
        raise ConfigError(f"{where}: {error}") from None


def _options(value: object, where: str) -> dict[str, Option]:
    options = _object(value, where)
    for name, each in options.items():
        if not isinstance(each, Option):
            raise _wrong(f"{where}.{name}", "a plain value", each)
    return cast("dict[str, Option]", options)


def _wrong(where: str, expected: str, value: object) -> ConfigError:
    """Say what is there instead: short, and never a whole object."""
    found = type(value).__name__ if isinstance(value, dict | list) else repr(value)[:60]
    return ConfigError(f"{where}: expected {expected}, got {found}")
