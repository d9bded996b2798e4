"""Whether the stores belong to these accounts or to another installation.

Knows no store: `iothub.hub.stores.installation` asks them. Claims nothing; only the hub does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace

from iothub.base.errors import ConflictError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor import streams
from iothub.doctor.findings import Check, Finding, State, timed, unless_down
from iothub.hub.stores.choices import queue_drivers
from iothub.hub.stores.drivers import needed_tables, owned_tables, redis_queues, require_extra
from iothub.hub.stores.installation import Owned, installation_of
from iothub.hub.stores.stream_drivers import owned_topics
from iothub_services.hbase import calls, from_settings

_SILENT_S = 5.0  # an operator waits, no message does
_NAME = "installation"


def checks(data_dir: DataDir, settings: Config) -> list[Check]:
    chosen = [Check(_NAME, lambda: _directory(data_dir, settings))]
    if needed_tables(settings, data_dir):
        chosen.append(Check(f"{_NAME}, HBase", lambda: _tables(data_dir, settings)))
    if "redis" in queue_drivers(settings, data_dir):
        chosen.append(Check(f"{_NAME}, Redis", lambda: _queues(data_dir, settings)))
    if settings.kafka.brokers:
        chosen.append(Check(f"{_NAME}, Kafka", lambda: _topics(data_dir, settings)))
    return list(map(unless_down, chosen))


def _directory(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    installation = installation_of(settings, data_dir)
    installation.check_directory(data_dir)
    yield Finding(_NAME, State.OK, f"{installation.id}: accounts and files match")


def _tables(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    patient = replace(settings.hbase, timeout_s=min(settings.hbase.timeout_s, _SILENT_S))
    with from_settings.direct_caller(patient) as caller:
        there = set(caller.call(calls.table_names()))  # another check reports missing tables
        wanted = [layout for layout in needed_tables(settings, data_dir) if layout.name.encode() in there]
        owned = owned_tables(installation_of(settings, data_dir), caller, wanted, settings)
        yield _seen(f"{_NAME}, HBase", owned)


def _queues(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    with closing(redis_queues(settings)) as queues:
        yield _seen(f"{_NAME}, Redis", installation_of(settings, data_dir).redis_queues(queues))


def _topics(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    """Topics of another installation matter only to a hub that has something in Kafka, or when a stream is created."""
    name = f"{_NAME}, Kafka"
    require_extra("kafka.brokers", "kafka", "kafka", "crc32c")
    try:
        yield _seen(name, owned_topics(settings, installation_of(settings, data_dir)))
    except ConflictError as error:
        if streams.need_kafka(data_dir, settings):
            raise
        yield Finding(name, State.WARN, str(error), "until then no stream can be created")


def _seen(name: str, owned: Owned) -> Finding:
    _, seconds = timed(owned.check)
    return Finding(name, State.OK, "its stores belong to these accounts or to nobody yet", seconds=seconds)
