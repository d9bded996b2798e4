"""Hubs with two workers: one for all tests that leave it as it is, and one for each test that breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.hubs.workers import Workers
from tests.support.ports import free_port
from tests.support.waiting import until


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with tenant `acme` (plan unlimited) and devices `dev1` and `dev2`, secret "secret"."""
    hub = Hub(tmp_path_factory.mktemp("initialised") / "hub")
    hub.init()
    hub.tenant("acme", "dev1", "dev2")
    return hub.data_dir


def hub_in(directory: Path, initialised: Path) -> Hub:
    """Two workers, not started; every connect and disconnect has its line."""
    hub = Hub(directory / "hub", ports={"tcp": free_port(), "http": free_port()})
    hub.settings |= {"node.workers": "2", "log.rate_limit": "off"}
    shutil.copytree(initialised, hub.data_dir)
    return hub


@pytest.fixture
def make_hub(tmp_path: Path, initialised: Path) -> Iterator[Callable[[], Hub]]:
    made: list[Hub] = []

    def make() -> Hub:
        made.append(hub_in(tmp_path, initialised))
        return made[-1]

    yield make
    for hub in made:
        hub.close()


@contextmanager
def workers_of(hub: Hub) -> Iterator[Workers]:
    join = Clients(Listener(hub, "tcp"))
    try:
        yield Workers(hub, join)
    finally:
        join.leave()


def start(hub: Hub) -> None:
    """Start, and wait until both workers serve."""
    hub.start()
    until(lambda: '"workers": 2' in hub.log, "both workers")


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory, initialised: Path) -> Iterator[Hub]:
    hub = hub_in(tmp_path_factory.mktemp("workers"), initialised)
    start(hub)
    yield hub
    hub.finish()


@pytest.fixture
def workers(shared_hub: Hub) -> Iterator[Workers]:
    with workers_of(shared_hub) as made:
        yield made


@pytest.fixture
def own(make_hub: Callable[[], Hub]) -> Iterator[Workers]:
    """Workers of a hub of this test's own."""
    hub = make_hub()
    start(hub)
    with workers_of(hub) as made:
        yield made
