"""Batches of a writer's thread of which nothing is done twice, whatever happens to a request, to the connection or to the store process.

Knows no operation's kind. Operations are compared by identity: whoever repeats a batch brings the same objects, perhaps not all of them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Generic, TypeVar

from iothub_services.queues.remote.repeats import Repeats
from iothub_services.store_process.connection import StoreConnection

Op = TypeVar("Op")
Answer = TypeVar("Answer")

Keep = Callable[[Sequence[Answer]], None]


class Batches(Generic[Op, Answer]):
    """In the thread that writes.

    Invariant: before it is looked which operations are new, it is known what became of those whose answer was lost.
    """

    def __init__(self, connection: StoreConnection, size_of: Callable[[Op], int]) -> None:
        self._connection = connection
        self._size_of = size_of
        self._repeats: Repeats[Op, Answer] = Repeats()

    def group(self) -> AbstractContextManager[None]:
        """Operations inside are repeated together if one of them fails."""
        return self._repeats.group()

    def clear(self) -> None:
        """Nobody repeats anything any more."""
        self._repeats.clear()

    def do(self, ops: Sequence[Op], ask: Callable[[list[Op], Keep[Answer]], Sequence[Answer]]) -> list[Answer]:
        """Return an answer for each operation. `ask`: has the new ones done, perhaps none; what it is given takes an answer that comes late.

        Raises BackendError.
        """
        repeats = self._repeats
        with repeats.group():
            self._connection.settle()
            known = repeats.all_of(ops)
            new = [op for op, answer in zip(ops, known, strict=True) if answer is None]
            answers = ask(new, lambda late: self._keep(new, late))
            repeats.begin(new, answers, sum(map(self._size_of, new)))
            rest = iter(answers)
            for op in ops:
                repeats.answered(op)
            return [next(rest) if answer is None else answer for answer in known]

    def _keep(self, ops: list[Op], answers: Sequence[Answer]) -> None:
        for op, answer in zip(ops, answers, strict=True):
            self._repeats.keep(op, answer, self._size_of(op))
