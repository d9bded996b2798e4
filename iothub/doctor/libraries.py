"""Imports the client libraries of the servers before the checks run.

Several checks need one library, and some libraries have circular imports: if two threads import them at the same time, Python reports a deadlock.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub_tenants.accounts.database import accounts_url, open_engine

KAFKA = ("iothub_services.events.kafka.log", "iothub_services.streams.kafka.topics")
REDIS = ("iothub_services.redis.from_settings", "iothub_services.queues.redis.store")


def load(data_dir: DataDir, settings: Config) -> None:
    """Import what these settings need and is installed; a check reports what is not."""
    modules = (KAFKA if settings.kafka.brokers else ()) + (REDIS if settings.redis.addresses else ())
    for name in modules:
        with suppress(ImportError):
            import_module(name)
    with suppress(IotHubError):
        open_engine(accounts_url(settings.sql.url_file, data_dir.accounts)).dispose()
