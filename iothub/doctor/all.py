"""The checks for a configuration: of the parts that it uses, and no others.

Knows the parts by name.
"""

from __future__ import annotations

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
from iothub.hub.drivers import needed_tables, queue_drivers, unused_files
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.quota.usage import SCHEMA as USAGE
from iothub_services.retained.sqlite.store import SCHEMA as RETAINED
from iothub_services.state.sqlite.store import SCHEMA as STATES


def checks(data_dir: DataDir, settings: Config) -> list[Check]:
    """Return the checks; before `init` there are no files and no accounts, only servers."""
    libraries.load(data_dir, settings)
    chosen = listeners.checks(data_dir, settings)
    chosen.append(accounts.check(data_dir, settings))
    if data_dir.is_initialised:
        unused = unused_files(settings, data_dir)
        files = {
            data_dir.queues: QUEUES.version,
            data_dir.retained: RETAINED.version,
            data_dir.events: EVENTS.version,
            data_dir.state: STATES.version,
            data_dir.usage: USAGE.version,
        }
        known = {file: version for file, version in files.items() if file not in unused}
        chosen += machine.checks(data_dir, settings, known)
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
