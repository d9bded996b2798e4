"""A message on its way to disk, for a driver that reads the plane's objects and for one that gets an append."""

from __future__ import annotations

from typing import Any

import pytest

from iothub_services.queues.bodies import body_of
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, Move, MoveKind, QueueLimits
from iothub_services.queues.writing import QueueWrites
from tests.support.operated_queues import operation_of

ITEMS = [
    Append(b"", b"body", 0, (Delivery(5, 1, 1, (3,)), Delivery(6, 2, 2))),
    Append(b"i" * 16, b"body", 12_500, (Delivery(5, 2),)),
    Append(b"i" * 16, b"", 0, (), Inbound(4, 9, 77)),
]


@pytest.mark.parametrize("item", ITEMS)
def test_operation_as_append_is_what_the_port_has(item: Append) -> None:
    assert operation_of(item).as_append() == item


def test_operation_that_comes_again_is_the_same_append() -> None:
    """A driver knows by its identity what it may have done already."""
    operation = operation_of(ITEMS[0])

    assert operation.as_append() is operation.as_append()


def test_body_is_made_once_and_only_for_who_asks() -> None:
    """What waits is counted with the size that the body will have."""
    publish = operation_of(ITEMS[0]).publish
    operation = AppendOperation(publish, None)

    assert operation.made_body is None
    assert operation.size_bytes == len(operation.body)
    assert operation.body == body_of(publish.message)
    assert operation.body is operation.body


class Taking(MemoryQueues):
    """Takes operations."""

    def append_operations(self, batch: list[Any]) -> list[Any]:
        return [answer.positions for answer in self.append([each.as_append() for each in batch])]


@pytest.mark.parametrize(("store", "positions"), [(Taking(), (1,)), (MemoryQueues(), Appended((1,)))])
def test_driver_gets_what_it_takes(store: MemoryQueues, positions: object) -> None:
    """Each answer is at its operation's place, moves between appends too."""
    store.create(7, 5, QueueLimits())
    epoch = store.claim(5, b"w").epoch
    append = operation_of(Append(b"", b"body", 0, (Delivery(5, 1),)))
    moves = [Move(MoveKind.RESERVE, 5, epoch, 9), Move(MoveKind.RESERVE, 5, epoch - 1, 9)]

    assert QueueWrites(store)([moves[0], append, moves[1]]) == [True, positions, False]
