"""A worker's writer threads in a process of their own: appends to queues and to the log, and repeats what failed until it is done.

Run as `python -m tests.support.hubs.store_worker SOCKET QUEUE COUNT`; it prints a line for each batch that was acknowledged.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from iothub.base.errors import BackendError
from iothub.records.events import Event, Subject, session_discarded
from iothub.testing.queue_contract import TENANT
from iothub_services.queues.port import Append, Delivery
from iothub_services.store_process.events import RemoteEvents
from iothub_services.store_process.queues import RemoteQueues

SHARED = 99  # a queue that all workers write to
BATCH = 8

T = TypeVar("T")


def body_of(queue_id: int, number: int) -> bytes:
    return b"%d/%d" % (queue_id, number)


def until_done(call: Callable[[], T]) -> T:
    """Repeat with the same objects, as the thread of a driver does."""
    while True:
        try:
            return call()
        except BackendError as error:
            if not error.retryable:
                raise
            time.sleep(0.01)


def main(path: Path, queue_id: int, count: int) -> None:
    queues, log = RemoteQueues(path), RemoteEvents(path)
    for first in range(0, count, BATCH):
        numbers = range(first, first + BATCH)
        batch = [
            Append(b"", body_of(queue_id, number), 0, (Delivery(queue_id, 1), Delivery(SHARED, 2)))
            for number in numbers
        ]
        events: list[Event] = [
            session_discarded(Subject(TENANT, f"client-{queue_id}", 3, number), reason="x") for number in numbers
        ]
        appended = until_done(lambda batch=batch: queues.append(batch))  # type: ignore[misc]
        logged = until_done(lambda events=events: log.append(events))  # type: ignore[misc]
        positions = [list(each.positions) for each in appended]
        print(json.dumps({"positions": positions, "offsets": [each.offset for each in logged]}), flush=True)
    queues.close()
    log.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]))
