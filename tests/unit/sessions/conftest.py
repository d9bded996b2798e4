"""A control plane over doubles for every test, and somebody who watches Wills."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.control_house import House
from tests.support.party import Guest


@pytest.fixture
def house(tmp_path: Path) -> Iterator[House]:
    made = House(tmp_path)
    yield made
    made.close()


@pytest.fixture
def watcher(house: House) -> Guest:
    """Is subscribed to w/#."""
    guest = house.join("watcher", username="acme/dev2")
    guest.subscribe(("w/#", 0))
    house.journal.words()
    return guest
