"""Queues that no session has any more are dropped now or later, and what they held is counted once."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from iothub.base.errors import BackendError
from iothub.engine.inheritance import Left
from iothub.engine.outbox import SHARED_FLAG
from iothub.engine.session import Session
from iothub_services.queues.port import Claim
from iothub_services.queues.threads import LoadedPage, LoadedRecord
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


class Shared:
    """A queue of five shared records, in pages of two."""

    def __init__(self) -> None:
        self.records = [LoadedRecord(position, 1, SHARED_FLAG, (), cast("Any", None)) for position in range(1, 6)]

    async def claim(self, _queue_id: int, _owner: bytes) -> Claim:
        return Claim(1, 0, 5, 0)

    async def load(self, _queue_id: int, _epoch: int, after: int) -> LoadedPage:
        records = self.records[after : after + 2]
        return LoadedPage(records, records[-1].position, after + 2 >= 5, [])


class Heirs:
    """A plane whose store gives up what it is told to, once."""

    def __init__(self, *given_up: int) -> None:
        self.given_up = set(given_up)
        self.taken: list[int] = []

    def leave_groups(self, _session: Session) -> bool:
        return True

    def bequeath(
        self,
        _session: Session,
        records: list[LoadedRecord],
        given: set[int],
        _spared: set[int],
        on_done: Callable[[Left], None],
    ) -> None:
        left = [record for record in records if record.position in self.given_up - given]
        self.taken += [record.position for record in records if record not in left and record.position not in given]
        self.given_up -= {record.position for record in records}
        on_done(Left(left))


def test_what_the_store_gave_up_is_handed_on_at_the_next_attempt() -> None:
    """A session does not end before all that it shared is durable elsewhere, and what is there already is not given again."""
    heirs = Heirs(3)
    left = Estate(cast("Any", heirs), cast("Any", Shared()), b"w")
    session = cast("Any", SimpleNamespace(queue_id=3, client_id="c", is_leaving=False, subscriptions={}))

    with pytest.raises(BackendError, match="1 messages for other members"):
        now(left.bequeath(session, is_expiry=True))
    assert heirs.taken == [1, 2, 4]

    assert now(left.bequeath(session, is_expiry=True)) == 5
    assert heirs.taken == [1, 2, 4, 3, 5]


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
