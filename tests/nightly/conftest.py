"""Hubs and servers of the long tests: whatever a test leaves running is ended."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.servers import ALWAYS
from ops.services.services import Services
from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that has not been started; the program itself will be, each time."""
    hub = fresh_hub(tmp_path)
    hub.is_whole = True
    yield hub
    hub.close()


@pytest.fixture
def services() -> Iterator[Services]:
    """The real servers, up. Those that did not run before are stopped afterwards; a paused one goes on, and so stops in good order."""
    yield from _up()


@pytest.fixture
def accounts_servers() -> Iterator[Services]:
    """The same of MariaDB and Redis alone."""
    yield from _up("mariadb", "redis")


def _up(*names: str) -> Iterator[Services]:
    services = Services(say=print)
    before = {report.name for report in services.reports() if report.state != "down"}
    services.up(*names)
    yield services
    for name in reversed(names or ALWAYS):
        if name not in before:
            services.down(name)
