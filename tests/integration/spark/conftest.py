"""One Spark session for the tests of this folder."""

from __future__ import annotations

import pytest

from tests.support.jobs.spark import spark

__all__ = ["spark"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Spark warns of what it uses."""
    for item in items:
        if item.path.parent.name == "spark":
            item.add_marker(pytest.mark.filterwarnings("default"))
