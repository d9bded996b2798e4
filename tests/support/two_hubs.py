"""Two hubs on the same stores: a data directory and a node number each, one accounts database, one HBase and one Kafka.

Knows no client: the tests say who connects where.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.support.hub import Hub, free_port
from tests.support.server_hub import PLAIN_TENANT, Stores, server_hub, share_accounts, sister


@dataclass
class Pair:
    """`first` has node number 1 and the accounts; `second` has number 2."""

    first: Hub
    second: Hub

    def start(self) -> None:
        self.first.start()
        self.second.start()


@contextmanager
def pair_of_hubs(directory: Path, stores: Stores) -> Iterator[Pair]:
    """Neither is started; what runs at the end is killed."""
    first = server_hub(directory, stores)
    first.tenant(PLAIN_TENANT, "dev1", "dev2")
    share_accounts(first)
    second_dir = sister(first, directory)
    shared = dict(first.environment)
    first.environment = {**shared, "IOTHUB_NODE__NUMBER": "1", "IOTHUB_NODE__NAME": "one"}
    second = Hub(
        second_dir,
        {"tcp": free_port(), "http": free_port()},
        environment={**shared, "IOTHUB_NODE__NUMBER": "2", "IOTHUB_NODE__NAME": "two"},
        config_file=first.config_file,
    )
    pair = Pair(first, second)
    try:
        yield pair
    finally:
        first.close()
        second.close()
