"""Which driver serves each port, as the settings choose: opened here for hub and command alike.

Knows settings and drivers, and no room that uses them. A driver whose packages are an extra is imported when it is chosen.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from iothub.datadir import DataDir
from iothub.errors import ConfigError
from iothub.settings import Config
from iothub_services.events.port import EventLog
from iothub_services.events.sqlite import SCHEMA as EVENTS
from iothub_services.events.sqlite import SqliteEvents
from iothub_services.sqlite.database import Database, Schema

if TYPE_CHECKING:
    from iothub_services.events.kafka import KafkaEvents

OpenFile = Callable[[Path, Schema], Database]


class Drivers:
    """Opens stores. `needed`: for each server that must answer before a hub starts, what asks it; it blocks, and raises UnavailableError."""

    def __init__(self, settings: Config, data_dir: DataDir, open_file: OpenFile) -> None:
        self._settings = settings
        self._data_dir = data_dir
        self._open_file = open_file
        self.needed: dict[str, Callable[[], None]] = {}

    def event_log(self) -> EventLog:
        """Open the session-event log. Raises ConfigError: the extra is not installed."""
        if self._settings.events.driver == "sqlite":
            return SqliteEvents(self._open_file(self._data_dir.events, EVENTS))
        log = kafka_log(self._settings)
        self.needed["Kafka"] = log.open
        return log


def kafka_log(settings: Config, *, is_read_only: bool = False) -> KafkaEvents:
    """Return the log on Kafka; nothing is asked of the cluster yet. Raises ConfigError: the extra is not installed."""
    require_extra('events.driver = "kafka"', "kafka", "kafka", "crc32c")
    from iothub_services.events.kafka import KafkaEvents

    return KafkaEvents(settings.kafka, is_read_only=is_read_only)


def unused_files(settings: Config, data_dir: DataDir) -> tuple[Path, ...]:
    """Return the files of the data directory that these settings have no use for: nobody misses them."""
    return () if settings.events.driver == "sqlite" else (data_dir.events,)


def require_extra(chosen: str, extra: str, *packages: str) -> None:
    """Raise ConfigError when a package of an extra is not installed."""
    if any(find_spec(package) is None for package in packages):
        raise ConfigError(f"{chosen} needs packages that are not installed: pip install 'iothub[{extra}]'")
