"""One Spark session for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.support.jobs.spark import spark

__all__ = ["spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Starting Java may take long beside everything else."""
    for item in items:
        if "spark" in item.path.parts and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(300))
            item.add_marker(pytest.mark.filterwarnings("default"))
