"""Commands and jobs touch no store of another installation: they end with one line before they read."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext

import pytest

from iothub.base.errors import ConflictError
from iothub.base.units import Endpoint
from iothub.cli import stores
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Events, HBase, Kafka, Queues, Redis, Retained, State
from iothub.records.owner import Owner, encode_owner
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.hbase import from_settings
from iothub_services.hbase.administration import claim, owner_columns
from iothub_services.hbase.tables import Tables
from iothub_services.redis import from_settings as redis_settings
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.timed_gateway import TimedGateway
from tests.support.in_process.command import Cli
from tests.support.servers.fake_kafka import SETTINGS, FakeCluster
from tests.support.servers.redis_queues import RedisHarness

NOBODY = Endpoint("127.0.0.1", 1)
THEIRS = Owner("b" * 32, "far", 0)
COLUMNS = owner_columns(Tables("iothub"))
ON_SERVERS = Config(
    queues=Queues(driver="hbase"),
    state=State(driver="hbase"),
    retained=Retained(driver="hbase"),
    events=Events(driver="kafka"),
    hbase=HBase(thrift=(NOBODY,)),
    kafka=Kafka(brokers=(NOBODY,)),
)


class Harness:
    """A data directory, and servers whose stores may be taken."""

    def __init__(self, data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
        self.data_dir = data_dir
        self.gateway = TimedGateway(*COLUMNS)
        self.cluster = FakeCluster()
        monkeypatch.setattr(from_settings, "direct_caller", lambda _settings: Borrowed(self.gateway))
        monkeypatch.setattr("iothub.hub.stores.drivers.kafka_log", self._log)
        monkeypatch.setattr(stores, "kafka_log", self._log)

    def _log(self, _settings: Config, *, is_read_only: bool = False) -> KafkaEvents:
        return KafkaEvents(SETTINGS, cluster=self.cluster, is_read_only=is_read_only)

    def opens(self) -> dict[str, bool]:
        """Say which stores a command is let into."""
        ways = {
            "states": lambda: stores.reading_states(self.data_dir, ON_SERVERS),
            "checkpoints": lambda: stores.reading_checkpoints(self.data_dir, ON_SERVERS),
            "events": lambda: stores.reading_events(self.data_dir, ON_SERVERS),
        }
        opened = {}
        for name, way in ways.items():
            with ExitStack() as stack:
                try:
                    stack.enter_context(way())
                except ConflictError:
                    opened[name] = False
                else:
                    opened[name] = True
        return opened


@pytest.fixture
def harness(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> Harness:
    return Harness(DataDir(cli.data_dir), monkeypatch)


def test_stores_of_nobody_are_open(harness: Harness) -> None:
    """Nothing is taken by a command: that is the hub's."""
    assert set(harness.opens().values()) == {True}
    stores.require_own_stores(harness.data_dir, ON_SERVERS)

    assert harness.gateway.tables == {table: {} for table in COLUMNS}
    assert "iothub.installation" not in harness.cluster.topics


def test_tables_of_others_are_shut(harness: Harness) -> None:
    """The log on Kafka is nobody's, and is open."""
    claim(FakeCaller(harness.gateway), COLUMNS, THEIRS)

    opened = harness.opens()

    assert {name for name, is_open in opened.items() if is_open} == {"events"}
    with pytest.raises(ConflictError, match="HBase's table iothub:"):
        stores.require_own_stores(harness.data_dir, ON_SERVERS)


def test_topics_of_others_are_shut(harness: Harness) -> None:
    KafkaEvents(SETTINGS, cluster=harness.cluster).claim(THEIRS)

    opened = harness.opens()

    assert {name for name, is_open in opened.items() if not is_open} == {"events"}
    with pytest.raises(ConflictError, match="Kafka's topics iothub"):
        stores.require_own_stores(harness.data_dir, ON_SERVERS)


def test_queues_of_others_on_redis_are_shut(harness: Harness, monkeypatch: pytest.MonkeyPatch) -> None:
    """By what begins a job."""
    redis = RedisHarness()
    monkeypatch.setattr(redis_settings, "blocking", lambda *_: redis)
    on_redis = Config(queues=Queues(driver="redis"), redis=Redis(addresses=(NOBODY,)))
    for is_theirs in (False, True):
        if is_theirs:
            redis.redis.execute_command("SET", "iothub:queues:owner", encode_owner(THEIRS))
        with pytest.raises(ConflictError, match="Redis's queues") if is_theirs else nullcontext():
            stores.require_own_stores(harness.data_dir, on_redis)
    assert redis.closed > 0
    assert redis.redis.execute_command("KEYS", "*") == [b"iothub:queues:owner"]


def test_job_begins_nothing_on_files_of_others(harness: Harness) -> None:
    harness.data_dir.write_installation(THEIRS.installation)

    with pytest.raises(ConflictError, match="its stores belong to installation bbbb"):
        stores.require_own_stores(harness.data_dir, Config())


class Borrowed(FakeCaller):
    """A caller that is opened and closed like the real one."""

    def __enter__(self) -> Borrowed:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is open."""
