"""Which stores the settings choose: drivers of queues, files of the data directory, and the versions of them that this program knows.

Opens nothing but a note of its own, and loads no driver: a supervisor of several workers asks here, and has none.
"""

from __future__ import annotations

from pathlib import Path

from iothub.base.errors import ConfigError, UnavailableError
from iothub.config.datadir import DataDir, write_atomically
from iothub.config.sections import QUEUE_DRIVERS, Config
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.quota.usage import SCHEMA as USAGE
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED
from iothub_services.state.sqlite.store import SCHEMA as STATES

_NOTE = (
    "queue-drivers"  # in the data directory: drivers on servers that queues may be with, whatever the settings say now
)


def queue_drivers(settings: Config, data_dir: DataDir) -> tuple[str, ...]:
    """Return the drivers that have queues or may get some, the one that commits in groups last: chosen now, or by a hub before.

    Raises ConfigError: Queues are on a server, and the settings say no longer where that is.
    """
    used = {settings.queues.driver, *(choice.driver for choice in settings.queues.choices)}
    before = noted_drivers(data_dir)
    for driver in before:
        server, setting, is_set = (
            ("Redis", "redis.addresses", bool(settings.redis.addresses))
            if driver == "redis"
            else ("HBase", "hbase.thrift", bool(settings.hbase.thrift))
        )
        if not is_set:
            raise ConfigError(
                f"a hub of this data directory has queues on {server} (driver {driver}), but the settings do not say how to reach it: "
                f"use the hub's --config, or set {setting}; to give up the messages there, remove {data_dir.path / _NOTE}"
            )
    used.update(before)
    if data_dir.queues.exists():
        used.add("sqlite")
    return tuple(name for name in reversed(QUEUE_DRIVERS) if name in used)


def noted_drivers(data_dir: DataDir) -> list[str]:
    """Return the drivers on servers with which a hub worked here before."""
    try:
        words = (data_dir.path / _NOTE).read_text(encoding="utf-8").split()
    except OSError:
        return []
    return [word for word in words if word in QUEUE_DRIVERS]


def note_drivers(data_dir: DataDir, names: list[str]) -> None:
    """Note them before the first queue is made. Raises UnavailableError."""
    if not set(names).difference(noted_drivers(data_dir)):
        return
    try:
        write_atomically(data_dir.path / _NOTE, " ".join(names).encode() + b"\n")
    except OSError as error:
        raise UnavailableError(f"{data_dir.path / _NOTE}: cannot be written: {error.strerror}") from None


def unused_files(settings: Config, data_dir: DataDir) -> tuple[Path, ...]:
    """Return the files of the data directory that these settings have no use for: nobody misses them."""
    queue_files = {settings.queues.driver, *(choice.driver for choice in settings.queues.choices)}
    choices = (
        ({settings.events.driver}, data_dir.events),
        (queue_files, data_dir.queues),
        ({settings.state.driver}, data_dir.state),
        ({settings.retained.driver}, data_dir.retained),
    )
    return tuple(file for drivers, file in choices if "sqlite" not in drivers)


def file_versions(settings: Config, data_dir: DataDir) -> dict[Path, int]:
    """Return the SQLite files that these settings use, each with the schema version that this program knows."""
    unused = unused_files(settings, data_dir)
    files = {
        data_dir.queues: QUEUES.version,
        data_dir.retained: RETAINED.version,
        data_dir.events: EVENTS.version,
        data_dir.state: STATES.version,
        **dict.fromkeys(_usage_files(settings, data_dir), USAGE.version),
    }
    return {file: version for file, version in files.items() if file not in unused}


def _usage_files(settings: Config, data_dir: DataDir) -> list[Path]:
    """Return the file of each worker, if there are several and `data_dir` is that of the whole."""
    if settings.node.workers == 1 or data_dir.worker:
        return [data_dir.usage]
    return [DataDir.of_worker(data_dir.path, number).usage for number in range(1, settings.node.workers + 1)]


def needs_store_process(settings: Config, data_dir: DataDir) -> bool:
    """Tell whether workers need one process for their stores: some are in files, or no server keeps the quota ledger."""
    stores = {data_dir.events, data_dir.queues, data_dir.state, data_dir.retained}
    has_files = bool(stores.difference(unused_files(settings, data_dir))) or "sqlite" in queue_drivers(
        settings, data_dir
    )
    return has_files or settings.quota.ledger != "redis"
