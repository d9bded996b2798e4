"""Which driver the settings choose, which servers it needs, and what is said when its packages are not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub import drivers
from iothub.datadir import DataDir
from iothub.drivers import Drivers, require_extra, unused_files
from iothub.errors import ConfigError
from iothub.settings import Config, Events, Kafka
from iothub.testing.clock import ManualClock
from iothub.units import Endpoint
from iothub_services.events.kafka import KafkaEvents
from iothub_services.events.sqlite import SqliteEvents
from iothub_services.sqlite.database import Database, Schema, open_database

ON_KAFKA = Config(events=Events(driver="kafka"), kafka=Kafka(brokers=(Endpoint("127.0.0.1", 1),)))


def open_file(path: Path, schema: Schema) -> Database:
    return open_database(path, schema, ManualClock(), pytest.fail)


def test_log_is_a_file_without_any_setting(tmp_path: Path) -> None:
    """And needs nobody."""
    chosen = Drivers(Config(), DataDir(tmp_path), open_file)
    log = chosen.event_log()

    assert isinstance(log, SqliteEvents)
    assert chosen.needed == {}
    assert unused_files(Config(), DataDir(tmp_path)) == ()
    log.close()


def test_log_on_kafka_needs_kafka_and_no_file(tmp_path: Path) -> None:
    """Nothing is asked of it before the start waits for it."""
    chosen = Drivers(ON_KAFKA, DataDir(tmp_path), open_file)
    log = chosen.event_log()

    assert isinstance(log, KafkaEvents)
    assert list(chosen.needed) == ["Kafka"]
    assert unused_files(ON_KAFKA, DataDir(tmp_path)) == (DataDir(tmp_path).events,)
    assert not DataDir(tmp_path).events.exists()
    log.close()


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to type."""
    monkeypatch.setattr(drivers, "find_spec", lambda package: None if package == "crc32c" else object())

    with pytest.raises(ConfigError) as caught:
        Drivers(ON_KAFKA, DataDir(tmp_path), open_file).event_log()

    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "events.driver = \"kafka\" needs packages that are not installed: pip install 'iothub[kafka]'"
    )
    require_extra("x", "y", "json")
