"""The checks for a configuration: of the parts that it uses, and no others.

Knows the parts by name.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.config.sections.stores import chosen_tenants
from iothub.doctor import (
    accounts,
    hbase,
    installation,
    kafka,
    libraries,
    listeners,
    machine,
    queue_choices,
    quota_ledger,
    redis,
    redis_queues,
    streams,
)
from iothub.doctor.findings import Check
from iothub.hub.stores.choices import file_versions, queue_drivers
from iothub.hub.stores.drivers import needed_tables


def checks(data_dir: DataDir, settings: Config) -> list[Check]:
    """Return the checks; before `init` there are no files and no accounts, only servers."""
    settings = _as_running(data_dir, settings)
    libraries.load(data_dir, settings)
    chosen = listeners.checks(data_dir, settings)
    chosen.append(accounts.check(data_dir, settings))
    if data_dir.is_initialised:
        chosen += machine.checks(data_dir, settings, file_versions(settings, data_dir))
        chosen += installation.checks(data_dir, settings)
        if settings.kafka.brokers:
            chosen.append(streams.check(data_dir, settings))
        if chosen_tenants(settings.queues):
            chosen.append(queue_choices.check(data_dir, settings))
        if settings.quota.ledger == "redis":
            chosen.append(quota_ledger.check(data_dir, settings))
    else:
        chosen += machine.checks_before(data_dir)
    return chosen + _servers(data_dir, settings)


def _as_running(data_dir: DataDir, settings: Config) -> Config:
    """Take the number of workers from the hub that runs: it may be of its command line."""
    workers = (data_dir.read_hub() or {}).get("workers", 1)
    if data_dir.holder() is None or not isinstance(workers, int):
        return settings
    return replace(settings, node=replace(settings.node, workers=workers))


def _servers(data_dir: DataDir, settings: Config) -> list[Check]:
    chosen: list[Check] = []
    if settings.kafka.brokers:
        needed = partial(streams.need_kafka, data_dir, settings)
        chosen += kafka.checks(settings.kafka, has_log=settings.events.driver == "kafka", is_needed=needed)
    if settings.redis.addresses:
        chosen += redis.checks(settings.redis, has_ledger=settings.quota.ledger == "redis")
        if "redis" in queue_drivers(settings, data_dir):
            chosen.append(redis_queues.check(settings))
    if tables := needed_tables(settings, data_dir):
        chosen += hbase.checks(settings.hbase, tables)
    return chosen
