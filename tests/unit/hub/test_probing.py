"""One question to each kind of server: its answer, or its own words with the setting to check and a page of the guide."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import BackendError, ConfigError, UnavailableError
from iothub.base.units import Endpoint
from iothub.config.sections import HBase, Kafka, Redis
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.events.kafka.probe import probe as probe_kafka
from iothub_services.hbase import from_settings as hbase_settings
from iothub_services.hbase.administration import probe as probe_hbase
from iothub_services.probing import Advice, Probe, probe_by, require
from iothub_services.redis import from_settings as redis_settings
from iothub_services.redis.probe import probe as probe_redis
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.timed_gateway import TimedGateway
from tests.support.servers.fake_kafka import FakeCluster
from tests.support.servers.redis_queues import RedisHarness

NOBODY = (Endpoint("127.0.0.1", 1),)
ADVICE = Advice("server.address", "docs/guide/server.md#away")


def failing(error: Exception) -> Callable[[], str]:
    def question() -> str:
        raise error

    return question


def test_answer_is_told() -> None:
    found = probe_by(lambda: "lists 3 tables", ADVICE)

    assert (found.is_reached, found.words) == (True, "lists 3 tables")
    assert found.seconds > 0
    found.require()


def test_words_are_passed_on_as_they_are() -> None:
    """Without the advice that the error may have as well."""
    refused = BackendError("HBase: no", retryable=True, remedy="said once")

    found = probe_by(failing(refused), ADVICE)

    assert (found.is_reached, found.words) == (False, "HBase: no")
    assert str(found.advice) == "check server.address; see docs/guide/server.md#away"


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (BackendError("away", retryable=True), f"away; {ADVICE}"),
        (BackendError("no right", retryable=False, remedy="its own advice"), "no right; its own advice"),
        (ConfigError("wrong password"), "wrong password"),
    ],
    ids=["away", "refused", "configuration"],
)
def test_start_hears_the_error_with_the_advice(error: Exception, message: str) -> None:
    """It waits for one that passes by itself, and ends for the others."""
    with pytest.raises(type(error)) as caught:
        require(lambda: probe_by(failing(error), ADVICE))

    assert str(caught.value) == message
    assert getattr(caught.value, "retryable", None) == getattr(error, "retryable", None)


def test_defect_is_none_of_a_server() -> None:
    with pytest.raises(ZeroDivisionError):
        probe_by(failing(ZeroDivisionError()), ADVICE)


def away_redis(tmp_path: Path) -> Probe:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    return probe_redis(Redis(addresses=NOBODY, timeout_s=0.2, username="hub", password_file=file))


def away_kafka(tmp_path: Path) -> Probe:
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    sasl = {"security_protocol": "SASL_PLAINTEXT", "sasl_username": "hub", "sasl_password_file": file}
    return probe_kafka(KafkaCluster(Kafka(brokers=NOBODY, timeout_s=0.5, **sasl)))  # type: ignore[arg-type]


def away_hbase(_tmp_path: Path) -> Probe:
    with hbase_settings.direct_caller(HBase(thrift=NOBODY, timeout_s=0.2)) as caller:
        return probe_hbase(caller)


def away_sql(_tmp_path: Path) -> Probe:
    return AccountStore("mysql+pymysql://hub:s3cret@127.0.0.1:1/hub", is_checked=False).probe()


@pytest.mark.parametrize(
    ("take", "setting", "page"),
    [
        (away_redis, "redis.addresses", "redis.md"),
        (away_kafka, "kafka.brokers", "kafka.md"),
        (away_hbase, "hbase.thrift", "hbase.md"),
        (away_sql, "sql.url_file", "sql.md"),
    ],
)
def test_server_that_is_away_is_told_without_a_secret(
    tmp_path: Path, take: Callable[[Path], Probe], setting: str, page: str
) -> None:
    """The operating system's words, the key, the page."""
    found = take(tmp_path)

    assert not found.is_reached
    assert "refused" in found.words.lower()
    assert (setting in found.advice.setting, page in found.advice.page) == (True, True)
    assert "s3cret" not in repr(found)
    with pytest.raises(UnavailableError):
        found.require()


def test_servers_that_answer_are_reached(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each by a question that needs what a hub needs."""
    harness = RedisHarness()
    monkeypatch.setattr(redis_settings, "blocking", lambda *_: harness)
    with closing(init_store(sqlite_url(tmp_path / "accounts.db"))) as store:
        found = [
            probe_redis(Redis(addresses=NOBODY)),
            probe_kafka(FakeCluster()),
            probe_hbase(FakeCaller(TimedGateway(b"t"))),
            store.probe(),
        ]

    assert [each.words for each in found] == [
        "answers",
        "Kafka at kafka-1:9092 lists 0 topics",
        "lists 1 tables",
        "sqlite answers",
    ]
    assert all(each.is_reached for each in found)
    assert harness.closed == 1
