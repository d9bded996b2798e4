"""Whose the stores are, as the doctor tells it: beside a hub, taking nothing."""

from __future__ import annotations

from contextlib import closing, nullcontext
from dataclasses import replace
from pathlib import Path

import pytest

from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.sections import Config, Events, HBase, Kafka, Retained
from iothub.doctor import installation
from iothub.doctor.findings import Finding, State, run_checks
from iothub.records.owner import Owner
from iothub_services.events.kafka.owner import PrefixOwner
from iothub_services.hbase import from_settings
from iothub_services.hbase.administration import claim, owner_columns
from iothub_services.hbase.tables import Tables
from iothub_tenants.accounts import installations, streams, tenants
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.streams import Wanted
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.timed_gateway import TimedGateway
from tests.support.servers.fake_kafka import FakeCluster

THEIRS = Owner("b" * 32, "far", 0)
NOBODY = Endpoint("127.0.0.1", 1)


@pytest.fixture
def data_dir(tmp_path: Path) -> DataDir:
    directory = DataDir(tmp_path)
    init_store(sqlite_url(directory.accounts)).close()
    return directory


def found(data_dir: DataDir, settings: Config) -> dict[str, Finding]:
    return {finding.name: finding for finding in run_checks(installation.checks(data_dir, settings), 10.0)}


def test_id_of_the_accounts_is_told(data_dir: DataDir) -> None:
    with closing(init_store(sqlite_url(data_dir.accounts))) as store:
        own = installations.own(store)

    (finding,) = found(data_dir, Config()).values()

    assert (finding.state, finding.text) == (State.OK, f"{own}: accounts and files match")


def test_files_of_other_accounts_fail(data_dir: DataDir) -> None:
    data_dir.write_installation(THEIRS.installation)

    (finding,) = found(data_dir, Config()).values()

    assert finding.state is State.FAIL
    assert "its stores belong to installation bbbb" in finding.text


def test_tables_of_others_fail_and_missing_ones_do_not(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is missing has a line of its own elsewhere."""
    columns, gateway = owner_columns(Tables("iothub")), TimedGateway(b"iothub:queue_index")
    monkeypatch.setattr(from_settings, "direct_caller", lambda _settings: nullcontext(FakeCaller(gateway)))
    settings = Config(retained=Retained(driver="hbase"), hbase=HBase(thrift=(NOBODY,)))
    assert found(data_dir, settings)["installation, HBase"].state is State.OK

    gateway.tables[b"iothub:retained"] = {}
    claim(FakeCaller(gateway), {b"iothub:retained": columns[b"iothub:retained"]}, THEIRS)

    finding = found(data_dir, settings)["installation, HBase"]
    assert finding.state is State.FAIL
    assert "HBase's table iothub:retained: belongs to installation bbbb" in finding.text


def test_topics_of_others_fail(data_dir: DataDir, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = FakeCluster()
    monkeypatch.setattr(
        installation, "owned_topics", lambda _settings, installation: installation.topics(PrefixOwner(cluster))
    )
    settings = Config(events=Events(driver="kafka"), kafka=Kafka(brokers=(NOBODY,)))
    finding = found(data_dir, settings)["installation, Kafka"]
    assert (finding.state, finding.text) == (State.OK, "its stores belong to these accounts or to nobody yet")
    assert cluster.topics == {}

    PrefixOwner(cluster).claim(THEIRS)
    assert found(data_dir, settings)["installation, Kafka"].state is State.FAIL
    only_streams = replace(settings, events=Events())
    assert found(data_dir, only_streams)["installation, Kafka"].state is State.WARN

    with closing(AccountStore(sqlite_url(data_dir.accounts))) as store:
        tenants.create(store, "acme", is_closed=True)
        streams.create(store, "acme", Wanted("telemetry", "sensors/#"))
    assert found(data_dir, only_streams)["installation, Kafka"].state is State.FAIL
