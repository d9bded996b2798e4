"""Hubs of the fault tests: whatever a test leaves running is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.datadirs import fresh_hub
from tests.support.hub import Hub, free_port


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that has not been started."""
    hub = fresh_hub(tmp_path)
    yield hub
    hub.close()


@pytest.fixture(scope="module")
def shared_hub(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A running hub that the tests of one module share: abuse must not harm the next test either."""
    hub = fresh_hub(tmp_path_factory.mktemp("hub"))
    hub.ports["http"] = free_port()
    hub.start()
    yield hub
    hub.close()
