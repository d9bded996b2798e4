"""Whole control planes of several hubs, for the tests of what they do together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.clustered_harness import Cluster


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(count: int = 2, **options: Any) -> Cluster:
        made.append(Cluster(tmp_path, count, **options))
        return made[-1]

    yield make
    for cluster in made:
        cluster.close()
