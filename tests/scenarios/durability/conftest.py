"""Hubs of the durability scenarios: whatever a test leaves running is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that has not been started; the program itself will be, each time."""
    hub = fresh_hub(tmp_path)
    hub.is_whole = True
    yield hub
    hub.close()
