"""A control plane over doubles for every test, and somebody who watches Wills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.clients.mqtt_clients import Client
from tests.support.in_process.control_harness import Harness


@pytest.fixture
def harness(tmp_path: Path) -> Iterator[Harness]:
    made = Harness(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watcher(harness: Harness) -> Client:
    """Is subscribed to w/#."""
    client = harness.join("watcher", username="acme/dev2")
    client.subscribe(("w/#", 0))
    harness.journal.words()
    return client
