"""Which driver the settings choose, which servers it needs, and what is said when its packages are not there."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar, cast

import pytest

from iothub.base.errors import BackendError, ConfigError, ConflictError, NotFoundError, UnavailableError
from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Events, HBase, Kafka, Queues, Redis, Retained, State
from iothub.hub.stores import drivers
from iothub.hub.stores.choices import queue_drivers, unused_files
from iothub.hub.stores.drivers import Drivers, needed_tables, require_extra
from iothub.hub.stores.installation import Installation
from iothub.records import keys
from iothub.records.owner import Owner
from iothub.testing.clock import ManualClock
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call
from iothub_services.hbase.tables import layouts
from iothub_services.queues.port import QueueLimits
from iothub_services.queues.redis.store import RedisQueues
from iothub_services.queues.routing import RoutingStore
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.redis import from_settings
from iothub_services.retained.sqlite.store import SqliteRetained
from iothub_services.sqlite.database import Database, Schema, open_database
from iothub_services.state.sqlite.store import SqliteStates
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.timed_gateway import TimedGateway
from tests.support.servers.fake_kafka import FakeCluster
from tests.support.servers.redis_queues import PREFIX, RedisHarness

T = TypeVar("T")
ON_KAFKA = Config(events=Events(driver="kafka"), kafka=Kafka(brokers=(Endpoint("127.0.0.1", 1),)))


class SilentCaller(Caller):
    """An HBase without any table."""

    def call_many(self, calls: Sequence[Call[T]]) -> list[T | BackendError]:
        assert [call.verb.name for call in calls] == ["getTableNames"]
        return [cast("T", [])]


def open_file(path: Path, schema: Schema) -> Database:
    return open_database(path, schema, ManualClock(), pytest.fail)


def nobody() -> Caller:
    pytest.fail("HBase is not chosen")


def ours() -> Installation:
    return Installation(Config(), "a" * 32, ManualClock())


def test_everything_is_in_files_without_any_setting(tmp_path: Path) -> None:
    """And needs nobody."""
    chosen = Drivers(Config(), DataDir(tmp_path), open_file, nobody, ours)
    log, queues, states, retained = chosen.event_log(), chosen.queues(), chosen.states(), chosen.retained()

    assert isinstance(log, SqliteEvents)
    assert isinstance(queues, SqliteQueues)
    assert isinstance(states, SqliteStates)
    assert isinstance(retained, SqliteRetained)
    assert (chosen.needed, chosen.owned) == ({}, {})
    assert unused_files(Config(), DataDir(tmp_path)) == ()
    for store in (log, queues, states, retained):
        store.close()


def test_stores_on_hbase_share_one_way_to_it(tmp_path: Path) -> None:
    """It is asked for the tables that these drivers use, and nothing else is asked before; no file is made."""
    settings = Config(
        queues=Queues(driver="hbase"),
        state=State(driver="hbase"),
        retained=Retained(driver="hbase"),
        hbase=HBase(thrift=(Endpoint("127.0.0.1", 1),)),
    )
    directory, callers = DataDir(tmp_path), [SilentCaller()]
    chosen = Drivers(settings, directory, open_file, callers.pop, ours)
    chosen.queues(), chosen.states(), chosen.retained()

    assert list(chosen.needed) == ["HBase"]
    assert callers == []
    tables = ["queues", "queue_index", "bodies", "state", "checkpoints", "retained"]
    assert [layout.name for layout in needed_tables(settings, directory)] == [f"iothub:{table}" for table in tables]
    assert set(unused_files(settings, directory)) == {directory.queues, directory.state, directory.retained}
    assert [file.name for file in tmp_path.iterdir()] == ["queue-drivers"]
    assert list(chosen.owned) == ["HBase"]
    with pytest.raises(NotFoundError, match="create them: iothub hbase create-tables"):
        chosen.needed["HBase"]()


def test_log_on_kafka_needs_kafka_and_no_file(tmp_path: Path) -> None:
    """Nothing is asked of it before the start waits for it."""
    chosen = Drivers(ON_KAFKA, DataDir(tmp_path), open_file, nobody, ours)
    log = chosen.event_log()

    assert isinstance(log, KafkaEvents)
    assert list(chosen.needed) == list(chosen.owned) == ["Kafka"]
    assert unused_files(ON_KAFKA, DataDir(tmp_path)) == (DataDir(tmp_path).events,)
    assert not DataDir(tmp_path).events.exists()
    log.close()


def test_server_whose_stores_are_somebody_elses_is_refused_before_it_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No topic is made, no row is read; it is not waited for."""
    cluster, theirs = FakeCluster(), Owner("b" * 32, "two", 1)
    monkeypatch.setattr(drivers, "kafka_log", lambda _settings, **_: KafkaEvents(ON_KAFKA.kafka, cluster=cluster))
    chosen = Drivers(ON_KAFKA, DataDir(tmp_path), open_file, nobody, ours)
    chosen.event_log()
    KafkaEvents(ON_KAFKA.kafka, cluster=cluster).claim(theirs)

    with pytest.raises(ConflictError, match=r"^Kafka's topics iothub\.\*: belongs to installation b{32} "):
        chosen.needed["Kafka"]()

    assert list(cluster.topics) == ["iothub.installation"]


def test_only_tables_that_are_used_are_looked_at() -> None:
    """A namespace without the others' tables is none to stumble over."""
    settings = Config(state=State(driver="hbase"))
    wanted = [layout for layout in layouts("iothub", 2) if layout.name in ("iothub:state", "iothub:checkpoints")]
    gateway = TimedGateway(b"iothub:state", b"iothub:checkpoints")

    drivers.owned_tables(ours(), FakeCaller(gateway), wanted, settings).claim()

    assert list(gateway.tables[b"iothub:state"]) == [keys.META]
    assert gateway.tables[b"iothub:checkpoints"] == {}


def test_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """With what to type."""
    monkeypatch.setattr(drivers, "find_spec", lambda package: None if package == "crc32c" else object())

    with pytest.raises(ConfigError) as caught:
        Drivers(ON_KAFKA, DataDir(tmp_path), open_file, nobody, ours).event_log()

    assert caught.value.exit_code == 2
    assert str(caught.value) == (
        "events.driver = \"kafka\" needs packages that are not installed: pip install 'iothub[kafka]'"
    )
    require_extra("x", "y", "json")


def test_driver_that_the_settings_name_no_longer_stays_open(tmp_path: Path) -> None:
    """From the file to HBase and back: tenants that have queues stay with their driver."""
    directory, gateways = DataDir(tmp_path), HBase(thrift=(Endpoint("127.0.0.1", 1),))
    on_hbase = Config(queues=Queues(driver="hbase"), hbase=gateways)
    Drivers(Config(), directory, open_file, nobody, ours).queues().close()

    assert queue_drivers(Config(), directory) == ("sqlite",)
    assert queue_drivers(on_hbase, directory) == ("hbase", "sqlite")
    both = Drivers(on_hbase, directory, open_file, SilentCaller, ours).queues()
    assert isinstance(both, RoutingStore)
    both.close()
    assert queue_drivers(Config(hbase=gateways), directory) == ("hbase", "sqlite")


def test_queues_on_hbase_are_not_left_behind_in_silence(tmp_path: Path) -> None:
    """A start without them would end their sessions."""
    directory = DataDir(tmp_path)
    Drivers(
        Config(queues=Queues(driver="hbase"), hbase=HBase(thrift=(Endpoint("127.0.0.1", 1),))),
        directory,
        open_file,
        SilentCaller,
        ours,
    ).queues()

    with pytest.raises(ConfigError, match=r"driver hbase\).*use the hub's --config, or set hbase\.thrift"):
        queue_drivers(Config(), directory)


ON_REDIS = Config(queues=Queues(driver="redis"), redis=Redis(addresses=(Endpoint("127.0.0.1", 1),)))


def redis_harness(monkeypatch: pytest.MonkeyPatch) -> RedisHarness:
    """A Redis that every connection leads to."""
    harness = RedisHarness()
    monkeypatch.setattr(from_settings, "blocking", lambda *_: harness)
    return harness


def test_queues_on_redis_need_it_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is asked what it keeps before a start, and belongs to the first installation; a file that is left over is used as well."""
    harness, alarms = redis_harness(monkeypatch), []
    chosen = Drivers(ON_REDIS, DataDir(tmp_path), open_file, nobody, ours, lambda *alarm: alarms.append(alarm))
    queues = chosen.queues()
    assert harness.calls == []

    chosen.needed["Redis"]()
    chosen.owned["Redis"].claim()
    harness.settings["appendonly"] = "no"
    with pytest.raises(UnavailableError, match='Redis does not keep queues safely: appendonly is "no"'):
        chosen.needed["Redis"]()

    assert unused_files(ON_REDIS, DataDir(tmp_path)) == (DataDir(tmp_path).queues,)
    assert alarms == []
    queues.close()
    assert harness.closed == 4  # two of the queues, one of each probe
    with pytest.raises(ConfigError, match=r"queues on Redis \(driver redis\).*or set redis\.addresses"):
        queue_drivers(Config(), DataDir(tmp_path))


def test_what_queues_on_redis_remember_has_the_age_that_the_hub_s_clock_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Several hubs remember message ids in one queue, and forget them by their age."""
    harness, clock = redis_harness(monkeypatch), ManualClock(wall=5_000.25)
    ours = Installation(ON_REDIS, "a" * 32, clock)
    queues = Drivers(ON_REDIS, DataDir(tmp_path), open_file, nobody, lambda: ours).queues()

    queues.create(7, 1, QueueLimits())
    queues.claim(1, b"1.1")

    assert [call for call in harness.calls if 5_000_250 in call.arguments]


def test_queues_on_redis_of_others_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything of them is read."""
    redis_harness(monkeypatch)
    theirs = Installation(ON_REDIS, "b" * 32, ManualClock())
    first = Drivers(ON_REDIS, DataDir(tmp_path / "b"), open_file, nobody, lambda: theirs)
    second = Drivers(ON_REDIS, DataDir(tmp_path / "a"), open_file, nobody, ours)
    for each in (first, second):
        (tmp_path / "ab"[each is first]).mkdir()
        each.queues()
    first.owned["Redis"].claim()

    with pytest.raises(
        ConflictError, match=r"Redis's queues iothub:queue:\*: belongs to .*choose another redis\.prefix"
    ):
        second.needed["Redis"]()


def test_emptied_redis_is_told_and_kept_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the hub runs, and at the next start; nobody else gets its place meanwhile."""
    harness, directory, alarms = redis_harness(monkeypatch), DataDir(tmp_path), []
    first = Drivers(ON_REDIS, directory, open_file, nobody, ours, lambda *alarm: alarms.append(alarm))
    queues = first.queues()
    first.owned["Redis"].claim()
    queues.create(7, 1, QueueLimits())
    directory.write_installation("a" * 32)
    harness.redis.execute_command("FLUSHALL")
    cast("RedisQueues", queues).probe()

    assert [
        (word, why.endswith("1 queues are gone, with all messages that waited in them")) for word, why in alarms
    ] == [("queues_gone", True)]
    assert harness.redis.execute_command("GET", "iothub:queues:owner") is not None

    harness.redis.execute_command("FLUSHALL")
    second = Drivers(ON_REDIS, directory, open_file, nobody, ours, lambda *alarm: alarms.append(alarm))
    second.queues()
    second.needed["Redis"]()
    assert alarms[1:] == [
        ("queues_gone", "Redis has none of the queues that a hub has used: it was emptied, or is another one")
    ]


def test_emptied_redis_that_somebody_else_has_taken_gets_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its queues would have the same ids."""
    harness = redis_harness(monkeypatch)
    chosen = Drivers(ON_REDIS, DataDir(tmp_path), open_file, nobody, ours)
    queues = cast("RedisQueues", chosen.queues())
    chosen.owned["Redis"].claim()
    queues.create(7, 1, QueueLimits())
    harness.redis.execute_command("FLUSHALL")
    harness.store().claim_store(Owner("b" * 32, "two", 1))
    harness.redis.execute_command("RENAME", f"{PREFIX}:queues:owner", "iothub:queues:owner")

    for _ in range(2):
        with pytest.raises(UnavailableError, match=r"belongs to installation b{32}"):
            queues.probe()


def test_log_that_is_followed_is_read_alone_and_answers_quickly(tmp_path: Path) -> None:
    """It makes no topic, and nobody waits behind a fetch that finds nothing."""
    log = cast("KafkaEvents", Drivers(ON_KAFKA, DataDir(tmp_path), open_file, nobody, ours).followed_log())

    assert log.is_shared
    assert log._is_read_only
    assert log._reader._wait_ms < 50
    log.close()
