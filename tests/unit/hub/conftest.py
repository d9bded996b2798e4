"""Whole control planes of several hubs, and one hub with doubles of the others, for the tests of what hubs do together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from iothub.hub.cluster import cluster
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore, create_schema
from tests.support.in_process.clustered_harness import Cluster
from tests.support.in_process.clustered_hub import Follower, Node


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    made: list[Cluster] = []

    def make(count: int = 2, **options: Any) -> Cluster:
        made.append(Cluster(tmp_path, count, **options))
        return made[-1]

    yield make
    for each in made:
        each.close()


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Node]:
    monkeypatch.setattr(cluster, "Follower", Follower)
    url = sqlite_url(tmp_path / "accounts.db")
    create_schema(url)
    store = AccountStore(url)
    yield Node(store)
    store.close()
