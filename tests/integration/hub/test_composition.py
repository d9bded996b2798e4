"""The composition root, without a reactor that runs: everything that is declared is there."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from dataclasses import is_dataclass
from pathlib import Path

import pytest
from twisted.internet.epollreactor import EPollReactor

from iothub.base.clock import SystemClock
from iothub.base.errors import ConfigError, ConflictError
from iothub.base.units import Endpoint
from iothub.config.datadir import DataDir
from iothub.config.sections import Cluster, Config, Events, Http, Kafka, Listeners, TcpListener
from iothub.hub import parts
from iothub.hub.cluster_members import ClusterMembers
from iothub.hub.composition.compose import compose
from iothub.hub.monitoring.health import Health
from iothub.hub.reload import prepare
from iothub.records.admin_commands import Json, Request, Verb
from iothub_services.metrics.alarms import AlarmName
from iothub_services.quota.names import Quota
from tests.support.hubs.composed import close_parts


class Rows:
    """Keeps what a hub answers."""

    def __init__(self) -> None:
        self.all: list[Json] = []

    async def rows(self, rows: Sequence[Json]) -> None:
        self.all += rows


def alarms_of(health: Health) -> list[Json]:
    """Ask one hub for its alarms, as `iothub alarm list` asks all."""
    rows = Rows()
    with pytest.raises(StopIteration):  # it waits for nothing
        health.answer_alarms(Request(Verb.ALARM_LIST, "", {}), rows).send(None)
    return rows.all


def test_every_declared_metric_has_a_source(initialised: Path) -> None:
    """`iothub.hub.composition.metric_sources` names all.

    `iothub.hub.composition.stores`, `iothub.hub.composition.tasks` and `iothub.hub.composition.foundation` make what they are read from.
    """
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(listeners=Listeners(tcp=TcpListener(port=0)), http=Http())
    made = compose(settings, DataDir(initialised), reactor, SystemClock())
    try:
        health = made.sockets.health
        assert made.monitoring.telemetry.registry.unfed() == []
        assert len(health.metrics().splitlines()) < 3000
        assert b"iothub_link" not in health.metrics()
        assert made.control.links is None  # what links need is made with them: no descriptor, timer or thread
        assert Quota.CONNECTIONS.value not in b"".join(health.tenant_metrics(None, "", 10)).decode()
    finally:
        close_parts(made, reactor)


def test_hub_answers_with_its_raised_alarms(initialised: Path) -> None:
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(listeners=Listeners(tcp=TcpListener(port=0)))
    made = compose(settings, DataDir(initialised), reactor, SystemClock())
    try:
        before = alarms_of(made.sockets.health)  # of a directory that other tests have used
        made.monitoring.alarms.raise_(AlarmName.DISK_LOW, subject="here", detail="1 MiB free")
        new = [row for row in alarms_of(made.sockets.health) if row not in before]
        assert [(row["node"], row["name"], row["detail"]) for row in new] == [(0, "disk_low", "1 MiB free")]
    finally:
        close_parts(made, reactor)


def test_hub_on_shared_stores_has_links_where_it_is_to_listen(initialised: Path) -> None:
    """Made by `iothub.hub.composition.links`, not opened before the hub joins; `iothub.hub.composition.cluster` registers what travels over them."""
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(
        listeners=Listeners(tcp=TcpListener(port=0)),
        events=Events(driver="kafka"),
        kafka=Kafka(brokers=(Endpoint("127.0.0.1", 1),)),
        cluster=Cluster(listen="127.0.0.1:7883", insecure=True),
    )
    made = compose(settings, DataDir(initialised), reactor, SystemClock())
    try:
        assert made.control.links is not None
        assert made.monitoring.telemetry.registry.unfed() == []
        assert b"iothub_cluster_peers 0" in made.sockets.health.metrics()
        assert b'iothub_cluster_members{state="joining"} 1' in made.sockets.health.metrics()
        assert made.sockets.health.brief()["links"] == {"up": 0, "hubs": 0}
        assert b'iothub_cluster_events_total{event="peer_up"} 0' in made.sockets.health.metrics()
        assert ClusterMembers(made.process, made.control, made.sockets).rows({})[0]["state"] == "joining"
        assert all(callable(use) for use in prepare(made, settings))
        assert made.control.links.up() == ()
        assert made.control.cluster is not None
        assert made.control.cluster.settle(1, (5,)) is not None  # nobody counts a hub that has not joined
        assert made.control.cluster.log_place.known() == (5,)  # what a client was acknowledged stands in every OPENED
        made.control.links.close()
    finally:
        close_parts(made, reactor)


def test_links_whose_certificates_cannot_be_used_keep_a_hub_from_starting(initialised: Path, tmp_path: Path) -> None:
    """Before anything waits for a server. What was opened by then ends with the process, so this is in a directory of its own."""
    directory = DataDir(shutil.copytree(initialised, tmp_path / "hub"))
    reactor = EPollReactor()  # type: ignore[no-untyped-call]
    settings = Config(
        events=Events(driver="kafka"),
        kafka=Kafka(brokers=(Endpoint("127.0.0.1", 1),)),
        cluster=Cluster(listen="127.0.0.1:7883"),
    )

    with pytest.raises(ConfigError, match=r"cluster\.ca_file: .*cluster/ca\.pem: No such file.*cluster issue"):
        compose(settings, directory, reactor, SystemClock())

    reactor.removeAll()
    reactor._poller.close()


def test_hub_with_other_accounts_opens_nothing(initialised: Path, tmp_path: Path) -> None:
    """The files beside them were made with others: exit code 4, and no store is made or read."""
    theirs = tmp_path / "hub"
    shutil.copytree(initialised, theirs)
    directory = DataDir(theirs)
    directory.write_installation("b" * 32)
    before = {path.name for path in theirs.iterdir()}
    reactor = EPollReactor()  # type: ignore[no-untyped-call]

    with pytest.raises(
        ConflictError, match=r"its stores belong to installation b{32}, these accounts are of installation"
    ) as caught:
        compose(Config(), directory, reactor, SystemClock())

    assert caught.value.exit_code == 4
    assert {path.name for path in theirs.iterdir()} - before <= {"accounts.db-wal", "accounts.db-shm"}
    reactor.removeAll()
    reactor._poller.close()


def test_parts_are_frozen() -> None:
    """What a part needs it has from its constructor; nothing is replaced in a running hub."""
    groups = [kind for kind in vars(parts).values() if is_dataclass(kind) and kind.__module__ == parts.__name__]

    assert parts.Parts in groups
    assert all(vars(group)["__dataclass_params__"].frozen and "__slots__" in vars(group) for group in groups)
