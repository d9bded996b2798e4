# cython: annotation_typing=False
"""What the writing thread of the queues does with a batch: one commit.

Knows the port; knows no plane and no reactor.
"""

from __future__ import annotations

from typing import Protocol

from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Appended, Move, QueueStore
from iothub_services.queues.threads import Call, call_verb

WriteOp = AppendOperation | Move | Call
Answer = Appended | tuple[int, ...]


class TakesOperations(Protocol):
    """A driver that reads what the writer has, as it is."""

    def append_operations(self, batch: list[AppendOperation]) -> list[Answer]:
        """Do what `append` does. A tuple instead of an `Appended` is its positions, and there is nothing else to say."""


class WritesTogether(Protocol):
    """A driver for which the moves and the operations of a batch are one request."""

    def write_operations(self, moves: list[Move], batch: list[AppendOperation]) -> tuple[list[bool], list[Answer]]:
        """Do what `apply` and `append` do, together."""


class QueueWrites:
    """The writing thread of the queues: a batch is one commit.

    Moves and appends between two calls may change places: a move comes from a reader that has seen its positions committed, so none
    of them concerns an append of the same batch, and acknowledgements make room.
    """

    def __init__(self, store: QueueStore) -> None:
        self._store = store
        self._write = getattr(store, "write", None)
        self._write_operations = getattr(store, "write_operations", None)
        self._append_operations = getattr(store, "append_operations", None)

    def __call__(self, ops: list[WriteOp]) -> list[object]:
        return self._all(ops)

    def _all(self, ops: list[WriteOp]) -> list[object]:
        answers: list[object] = [None] * len(ops)
        with self._store.group():
            start = 0
            for index in range(len(ops)):
                op = ops[index]
                if not isinstance(op, AppendOperation) and isinstance(op, Call):
                    self._run(ops, answers, start, index)
                    answers[index] = call_verb(self._store, op)
                    start = index + 1
            self._run(ops, answers, start, len(ops))
        return answers

    def _run(self, ops: list[WriteOp], answers: list[object], start: int, end: int) -> None:
        if start == end:
            return
        moves: list[Move] = []
        appends: list[AppendOperation] = []
        for index in range(start, end):
            op = ops[index]
            if isinstance(op, AppendOperation):
                appends.append(op)
            else:
                moves.append(op)  # type: ignore[arg-type]  # a Call is done by itself
        if self._write_operations is not None:
            moved, appended = self._write_operations(moves, appends)
        elif self._write is not None:
            moved, appended = self._write(moves, [op.as_append() for op in appends])
        else:
            moved = self._store.apply(moves) if moves else []
            appended = self._append(appends) if appends else []
        at_move = at_append = 0
        for index in range(start, end):
            if isinstance(ops[index], AppendOperation):
                answers[index] = appended[at_append]
                at_append += 1
            else:
                answers[index] = moved[at_move]
                at_move += 1

    def _append(self, appends: list[AppendOperation]) -> list[Answer]:
        if self._append_operations is not None:
            answers: list[Answer] = self._append_operations(appends)
            return answers
        return [*self._store.append([op.as_append() for op in appends])]
