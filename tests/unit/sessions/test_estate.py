"""Queues that no session has any more are dropped now or later, and what they held is counted once."""

from __future__ import annotations

from typing import Any, cast

from iothub.errors import BackendError
from iothub_services.sessions.estate import Estate
from tests.support.control_house import now


class Queues:
    """Drops queues of ten records, when it lets them go."""

    def __init__(self) -> None:
        self.is_down = False
        self.dropped: list[int] = []

    async def drop(self, queue_id: int) -> int:
        if self.is_down:
            raise BackendError("queues.db: disk full", retryable=True)
        self.dropped.append(queue_id)
        return 10


def estate(queues: Queues) -> Estate:
    return Estate(cast("Any", None), cast("Any", queues), b"w")


def test_queue_is_dropped_at_once() -> None:
    queues, counted = Queues(), list[int]()

    now(estate(queues).drop(3, counted.append))

    assert (queues.dropped, counted) == ([3], [10])


def test_queue_that_cannot_be_dropped_is_dropped_and_counted_later() -> None:
    """Once, however often it was tried."""
    queues, counted = Queues(), list[int]()
    left = estate(queues)
    queues.is_down = True
    now(left.drop(3, counted.append))
    left.drop_soon(4)
    left.drop_orphans()
    assert (queues.dropped, counted) == ([], [])

    queues.is_down = False
    left.drop_orphans()
    left.drop_orphans()

    assert (queues.dropped, counted) == ([3, 4], [10])
