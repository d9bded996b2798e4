"""Queues with a journal as tests open, fill and read them."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import (
    Append,
    Delivery,
    QueueLimits,
    QueueStore,
)

TENANT = 3
MANY = 1_000_000

Open = Callable[..., JournaledQueues]


def append(store: QueueStore, *bodies: bytes, queue_ids: tuple[int, ...] = (1,), qos: int = 1) -> None:
    deliveries = tuple(Delivery(queue_id, qos) for queue_id in queue_ids)
    store.append([Append(b"", body, 0, deliveries) for body in bodies])


def made(store: QueueStore, *queue_ids: int) -> None:
    for queue_id in queue_ids:
        store.create(TENANT, queue_id, QueueLimits())
        store.claim(queue_id, b"reader")


def bodies(store: QueueStore, queue_id: int = 1, epoch: int = 1, after: int = 0, count: int = MANY) -> list[bytes]:
    return [record.body for record in store.read(queue_id, epoch, after, count, MANY).records]


def rows(tmp_path: Path, table: str) -> int:
    """Count what is committed."""
    with closing(sqlite3.connect(tmp_path / "queues.db")) as connection:
        return int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
