"""Hubs of the tests in this folder: each test has its own process, because it ends, reloads or breaks it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.clients.clients import Listener
from tests.support.clients.mqtt_clients import Clients
from tests.support.hubs.hub import Hub
from tests.support.ports import free_port


@pytest.fixture(scope="session")
def initialised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data directory with tenant `acme` (plan unlimited) and devices `dev1` and `dev2`, secret "secret"."""
    hub = Hub(tmp_path_factory.mktemp("initialised") / "hub")
    hub.init()
    hub.tenant("acme", "dev1", "dev2")
    return hub.data_dir


@pytest.fixture
def make_hub(tmp_path: Path, initialised: Path) -> Iterator[Callable[..., Hub]]:
    """Make a hub on a copy of that directory, not started; listeners by name, settings as `section__key="value"`."""
    made: list[Hub] = []

    def make(*listeners: str, **settings: str) -> Hub:
        hub = Hub(tmp_path / "hub", ports={name: free_port() for name in listeners or ("tcp", "http")})
        hub.settings.update({name.replace("__", "."): value for name, value in settings.items()})
        shutil.copytree(initialised, hub.data_dir)
        made.append(hub)
        return hub

    yield make
    for hub in made:
        hub.close()


@pytest.fixture
def clients() -> Iterator[Callable[..., Clients]]:
    """Clients of a hub, over TCP if nothing else is said."""
    all_clients: list[Clients] = []

    def host(hub: Hub, listener: str = "tcp") -> Clients:
        all_clients.append(Clients(Listener(hub, listener)))
        return all_clients[-1]

    yield host
    for each in all_clients:
        each.leave()
