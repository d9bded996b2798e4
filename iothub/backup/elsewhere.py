"""What a hub needs and no copy of its data directory has: stores on servers, and files that its settings name elsewhere.

Knows settings, and asks no server.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from iothub.config.datadir import DataDir
from iothub.config.loader import Loaded, settings_of, value_of
from iothub.config.sections import Config
from iothub.hub.stores.choices import queue_drivers
from iothub.hub.stores.drivers import needed_tables

_ARCHIVE = "spark.archive"


def elsewhere(loaded: Loaded, data_dir: DataDir) -> tuple[str, ...]:
    """Return a line for each: what it is, and where. Raises ConfigError: queues are on a server that the settings do not name."""
    return (*_on_servers(loaded.config, data_dir), *_in_files(loaded, data_dir))


def _on_servers(settings: Config, data_dir: DataDir) -> Iterator[str]:
    if settings.sql.url_file is not None:
        yield f"the accounts, on the SQL server that {settings.sql.url_file} names: dump that database (mysqldump --single-transaction, pg_dump)"
    if settings.events.driver == "kafka":
        yield f"the session-event log, in Kafka's topics {settings.kafka.topic_prefix}.*: mirror these topics"
    if tables := sorted(layout.name for layout in needed_tables(settings, data_dir)):
        yield f"tables in HBase: take a snapshot of each of {', '.join(tables)}"
    if "redis" in queue_drivers(settings, data_dir):
        yield f"the queues {settings.redis.prefix}:queue:* in Redis: copy its append-only files"


def _in_files(loaded: Loaded, data_dir: DataDir) -> Iterator[str]:
    named = {
        setting.name: value_of(loaded.config, setting.name)
        for setting in settings_of(loaded.config)
        if setting.name.endswith("_file") or setting.name == _ARCHIVE
    }
    named["the configuration (--config)"] = loaded.file
    inside = data_dir.path.resolve()
    for name, path in named.items():
        if isinstance(path, Path) and not path.resolve().is_relative_to(inside):
            yield f"{name}: {path}"
