"""The client libraries of the servers that are looked at, imported before the looks are taken.

Several looks need one library. Some of these consist of modules that import each other in circles; where two threads begin at different ends, one of
them is refused with a deadlock.
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
    """Import what these settings need and is installed; what is not, a look tells."""
    modules = (KAFKA if settings.kafka.brokers else ()) + (REDIS if settings.redis.addresses else ())
    for name in modules:
        with suppress(ImportError):
            import_module(name)
    with suppress(IotHubError):
        open_engine(accounts_url(settings.sql.url_file, data_dir.accounts)).dispose()
