"""Real Kafka and HBase for the tests of this folder. Where they cannot be brought up, every test fails: none is skipped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from ops.services.house import Services
from ops.services.servers import ALWAYS

_HERE = Path(__file__).parent
_TIMEOUT_S = 900  # the first start may fetch 200 MB


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(_TIMEOUT_S))


@pytest.fixture(scope="session")
def _house() -> Iterator[Services]:
    """Those that the tests have started are stopped after them; those that ran already go on."""
    house = Services(say=print)
    before = {report.name for report in house.reports() if report.state != "down"}
    house.up()
    yield house
    house.down(*(name for name in reversed(ALWAYS) if name not in before))


@pytest.fixture
def services(_house: Services) -> Services:
    """Return the servers, all of them up, whatever the test before has done to them."""
    _house.up()
    return _house
