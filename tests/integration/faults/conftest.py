"""Hubs of the fault tests: whatever a test leaves running is killed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.hubs.datadirs import fresh_hub
from tests.support.hubs.hub import Hub


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    """A hub that has not been started."""
    hub = fresh_hub(tmp_path)
    yield hub
    hub.close()
