"""The real servers for the tests of this folder. Where they cannot be brought up, every test fails: none is skipped."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Iterator

import pytest

from iothub.config.sections import Kafka
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from ops.services.places import Ports
from ops.services.probes import is_free
from ops.services.servers import ALWAYS, NAMES, ports_of
from ops.services.services import Services
from ops.services.thrift import Gateway
from tests.support.hbase.hbase_tables import caller, fresh_tables
from tests.support.hbase.own_tables import drop_tables
from tests.support.servers.kafka import create_topic, delete_topic, own_topics


@pytest.fixture(scope="session")
def _set() -> Iterator[Services]:
    """Those that the tests have started are stopped after them; those that ran already go on."""
    servers = _chosen()
    before = {report.name for report in servers.reports() if report.state != "down"}
    yield servers
    for name in reversed(ALWAYS):
        if name not in before:
            servers.down(name)


@pytest.fixture(scope="session")
def _servers(_set: Services) -> Services:
    """All of them."""
    _set.up()
    return _set


@pytest.fixture
def redis_server(_set: Services) -> Services:
    """Redis, up, whatever the test before has done to it; the others need not be."""
    return _up(_set, "redis")


@pytest.fixture
def mariadb(_set: Services) -> Services:
    """MariaDB, as above."""
    return _up(_set, "mariadb")


@pytest.fixture
def postgresql(_set: Services) -> Services:
    """PostgreSQL, as above."""
    return _up(_set, "postgresql")


def _up(servers: Services, name: str) -> Services:
    if next(report.state for report in servers.reports() if report.name == name) != "running":
        servers.up(name)
    return servers


def _chosen() -> Services:
    """Return the set of this folder; if another program has its ports, one with the next that are free: another set is tested, too."""
    servers = Services(say=print)
    if any(report.state != "down" for report in servers.reports()):
        return servers
    shifts = range(servers.ports.shift, servers.ports.shift + 1_000, 100)
    free = (
        ports for ports in map(Ports, shifts) if all(is_free(port) for name in NAMES for port in ports_of(name, ports))
    )
    return Services(ports=next(free, servers.ports), say=print)


def _processes(servers: Services) -> list[tuple[str, str, int | None]]:
    return [(report.name, report.state, report.pid) for report in servers.reports() if report.name in ALWAYS]


@pytest.fixture
def broker_alone() -> Iterator[Services]:
    """Kafka alone, up whatever the test before has done to it; it goes on if it ran already."""
    servers = _chosen()
    was_up = any(report.name == "kafka" and report.state != "down" for report in servers.reports())
    servers.up("kafka")
    yield servers
    if was_up:
        servers.up("kafka")
    else:
        servers.down("kafka")


@pytest.fixture
def services(_servers: Services, _answered: list[tuple[str, str, int | None]]) -> Services:
    """Return the servers, all of them up, whatever the test before has done to them.

    The same processes as before are not asked again: HBase's answer is one of every region of every table.
    """
    if _processes(_servers) != _answered:
        _servers.up()
        _answered[:] = _processes(_servers)
    return _servers


@pytest.fixture(scope="session")
def _answered() -> list[tuple[str, str, int | None]]:
    """The processes of the servers when they answered last."""
    return []


@pytest.fixture
def topic(services: Services) -> Iterator[str]:
    """A topic of its own for each test, gone afterwards."""
    name = f"smoke.{uuid.uuid4().hex}"
    create_topic(services, name)
    yield name
    services.up()
    delete_topic(services, name)


@pytest.fixture
def kafka(services: Services) -> Iterator[Kafka]:
    """Settings whose topics nobody else uses, gone afterwards."""
    with own_topics(services) as settings:
        yield settings


@pytest.fixture(scope="session")
def _used_tables(_servers: Services) -> Iterator[list[bytes]]:
    """Dropped together, at the end: each would wait seconds for the master."""
    names: list[bytes] = []
    yield names
    _servers.up()
    drop_tables(_servers, names)


@pytest.fixture
def table(services: Services, _used_tables: list[bytes]) -> bytes:
    """A table of its own for each test."""
    name = f"smoke_{uuid.uuid4().hex}".encode()
    with Gateway(services.ports.thrift) as gateway:
        gateway.call("createTable", name, [{1: b"f:", 2: 1}])
    _used_tables.append(name)
    return name


@pytest.fixture(scope="module")
def _store_tables(_servers: Services, request: pytest.FixtureRequest) -> Iterator[deque[Tables]]:
    """As many as the module's STORE_TABLES says: a deleted row of HBase's hides what is written with an older time, so none is used twice."""
    name, count = request.module.STORE_TABLES
    _servers.up()
    with fresh_tables(_servers, name, count) as made:
        yield deque(made)


@pytest.fixture
def tables(services: Services, _store_tables: deque[Tables]) -> Tables:
    """The table of one store, empty."""
    assert services
    return _store_tables.popleft()


@pytest.fixture
def tools(services: Services) -> Iterator[DirectCaller]:
    with caller(services) as made:
        yield made
