"""The real servers for the tests of this folder. Where they cannot be brought up, every test fails: none is skipped."""

from __future__ import annotations

import uuid
from collections import deque
from collections.abc import Callable, Generator, Iterator

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

_REPLACED = pytest.StashKey[list[str]]()
_ANSWERING = pytest.StashKey["_Answering"]()


class _Answering:
    """Sees to it that servers answer. The process that answered last is not asked again until a test has failed.

    HBase's answer is one of every region of every table, which takes a while. A server that ran and does not answer is replaced: the test that
    hurt it has failed, and those behind it must not wait for it one after the other.
    """

    def __init__(self, servers: Services) -> None:
        self._servers = servers
        self._last: dict[str, int | None] = {}

    def see(self, *names: str) -> Services:
        running = self._running()
        if any(running.get(name) is None or running[name] != self._last.get(name) for name in names):
            self._servers.up(*names)
            running = self._running()
            self._last.update({name: running.get(name) for name in names})
        return self._servers

    def forget(self) -> None:
        """Ask all of them before the next test."""
        self._last.clear()

    def _running(self) -> dict[str, int | None]:
        return {report.name: report.pid for report in self._servers.reports() if report.state == "running"}


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed and _ANSWERING in item.config.stash:
        item.config.stash[_ANSWERING].forget()
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for reason in config.stash.get(_REPLACED, []):
        terminalreporter.write_line(f"SERVER REPLACED  {reason}", red=True)


@pytest.fixture(scope="session")
def _set(pytestconfig: pytest.Config) -> Iterator[Services]:
    """Those that the tests have started are stopped after them; those that ran already go on."""
    servers = _chosen(pytestconfig.stash.setdefault(_REPLACED, []).append)
    before = {report.name for report in servers.reports() if report.state != "down"}
    yield servers
    for name in reversed(ALWAYS):
        if name not in before:
            servers.down(name)


@pytest.fixture(scope="session")
def _answering(_set: Services, pytestconfig: pytest.Config) -> _Answering:
    return pytestconfig.stash.setdefault(_ANSWERING, _Answering(_set))


@pytest.fixture(scope="session")
def _servers(_answering: _Answering) -> Services:
    """All of them."""
    return _answering.see(*ALWAYS)


@pytest.fixture
def services(_answering: _Answering) -> Services:
    """Return the servers, all of them up, whatever the test before has done to them."""
    return _answering.see(*ALWAYS)


@pytest.fixture
def broker_alone(_answering: _Answering) -> Services:
    """Kafka, as above; the others need not be."""
    return _answering.see("kafka")


@pytest.fixture
def redis_server(_answering: _Answering) -> Services:
    return _answering.see("redis")


@pytest.fixture
def mariadb(_answering: _Answering) -> Services:
    return _answering.see("mariadb")


@pytest.fixture
def postgresql(_answering: _Answering) -> Services:
    return _answering.see("postgresql")


def _chosen(on_hung: Callable[[str], None]) -> Services:
    """Return the set of this folder; if another program has its ports, one with the next that are free: another set is tested, too."""
    servers = Services(say=print, on_hung=on_hung)
    if any(report.state != "down" for report in servers.reports()):
        return servers
    shifts = range(servers.ports.shift, servers.ports.shift + 1_000, 100)
    free = (
        ports for ports in map(Ports, shifts) if all(is_free(port) for name in NAMES for port in ports_of(name, ports))
    )
    return Services(ports=next(free, servers.ports), say=print, on_hung=on_hung)


@pytest.fixture
def topic(broker_alone: Services) -> Iterator[str]:
    """A topic of its own for each test, gone afterwards."""
    name = f"smoke.{uuid.uuid4().hex}"
    create_topic(broker_alone, name)
    yield name
    broker_alone.up("kafka")
    delete_topic(broker_alone, name)


@pytest.fixture
def kafka(broker_alone: Services) -> Iterator[Kafka]:
    """Settings whose topics nobody else uses, gone afterwards."""
    with own_topics(broker_alone) as settings:
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
