"""A queue is redistributed page by page, dropped now or later, and what it held is counted once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError
from iothub.engine.message import Delivery
from iothub.engine.state import Session
from iothub_services.queues.port import Claim
from iothub_services.queues.threads import LoadedPage
from iothub_services.sessions.orphaned_messages import OrphanedMessages
from tests.support.in_process.control_harness import now


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


def orphaned(queues: Queues) -> OrphanedMessages:
    return OrphanedMessages(cast("Any", None), cast("Any", queues), b"w")


class Shared:
    """A queue of five shared records, in pages of two."""

    def __init__(self) -> None:
        self.records = [Delivery(cast("Any", None), 1, False, (), position) for position in range(1, 6)]

    async def claim(self, _queue_id: int, _owner: bytes) -> Claim:
        return Claim(1, 0, 5, 0)

    async def load(self, _queue_id: int, _epoch: int, after: int) -> LoadedPage:
        records = self.records[after : after + 2]
        return LoadedPage(records, records[-1].position, after + 2 >= 5, [])


class Members:
    """A plane whose store does not take what it is told to, once."""

    def __init__(self, *failing: int) -> None:
        self.failing = set(failing)
        self.taken: list[int] = []

    def leave_groups(self, _session: Session) -> bool:
        return True

    def redistribute(self, _session: Session, records: list[Delivery], on_done: Callable[[int, int], None]) -> None:
        taken = [record.position for record in records if record.position not in self.failing]
        self.failing -= {record.position for record in records}
        self.taken += taken
        on_done(len(taken), len(records) - len(taken))


def test_store_that_failed_is_asked_for_all_of_it_at_the_next_attempt() -> None:
    """A session does not end before all that it shared is durable elsewhere; at QoS 1 a message may arrive twice."""
    members = Members(3)
    messages = OrphanedMessages(cast("Any", members), cast("Any", Shared()), b"w")
    session = cast("Any", SimpleNamespace(queue_id=3, client_id="c", control=SimpleNamespace(place=None)))

    with pytest.raises(BackendError, match="1 messages could not be redistributed"):
        now(messages.redistribute(session))
    assert members.taken == [1, 2, 4]

    assert now(messages.redistribute(session)) == 5
    assert members.taken == [1, 2, 4, 1, 2, 3, 4, 5]


def test_messages_are_redistributed_once() -> None:
    """However often the end of their session is tried."""
    members = Members()
    messages = OrphanedMessages(cast("Any", members), cast("Any", Shared()), b"w")
    session = cast("Any", SimpleNamespace(queue_id=3, client_id="c", control=SimpleNamespace(place=None)))

    counts = [now(messages.redistribute(session)) for _ in range(3)]

    assert counts == [5, 5, 5]
    assert members.taken == [1, 2, 3, 4, 5]


def test_queue_is_dropped_at_once() -> None:
    queues, counted = Queues(), list[int]()

    now(orphaned(queues).drop(3, counted.append))

    assert (queues.dropped, counted) == ([3], [10])


def test_queue_that_cannot_be_dropped_is_dropped_and_counted_later() -> None:
    """Once, however often it was tried."""
    queues, counted = Queues(), list[int]()
    messages = orphaned(queues)
    queues.is_down = True
    now(messages.drop(3, counted.append))
    messages.drop_soon(4)
    messages.drop_again()
    assert (queues.dropped, counted) == ([], [])

    queues.is_down = False
    messages.drop_again()
    messages.drop_again()

    assert (queues.dropped, counted) == ([3, 4], [10])
