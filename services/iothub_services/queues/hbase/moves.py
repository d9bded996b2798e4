# cython: annotation_typing=False
"""What readers do to their own queues in HBase: moves and inbound intents, fenced by epoch and by a sequence.

Knows no append. A repeat of a move changes nothing, so an uncertain call is simply made again, with a higher sequence: the one before it
comes too late then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from iothub.base.errors import BackendError
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue, QueueIndex
from iothub_services.queues.hbase.regions import Outcome, Regions
from iothub_services.queues.hbase.requests import Result, Status, Step
from iothub_services.queues.port import Move, worst_of
from iothub_services.queues.remote.rounds import as_one

Reader = tuple[int, int]  # queue id, epoch

_DONE, _GONE = int(Status.DONE), int(Status.GONE)


class Moving:
    """Moves on their way.

    `asked`: one operation for each reader that has a queue. `answers`: by reader; None if it is fenced, or its queue is gone.
    """

    def __init__(self, index: QueueIndex, sequence: Iterator[int], by_reader: Mapping[Reader, Sequence[bytes]]) -> None:
        self._index = index
        self._known: list[KnownQueue] = []
        self._readers: list[Reader] = []
        self.asked: list[Step] = []
        self.answers: dict[Reader, bytes | None] = dict.fromkeys(by_reader)
        unknown = [queue_id for queue_id, _ in by_reader if index.get(queue_id) is None]
        if unknown:
            index.find(unknown)
        for reader, moves in by_reader.items():
            known = index.get(reader[0])
            if known is not None:
                self._known.append(known)
                self._readers.append(reader)
                self.asked.append(requests.moves(known.key, reader[1], next(sequence), moves))

    def take(self, outcomes: Sequence[Outcome]) -> list[BackendError]:
        """Take what became of each operation that was asked for; return one error for all that were in the way of any."""
        errors: list[BackendError] = []
        for at in range(len(outcomes)):
            outcome = outcomes[at]
            if isinstance(outcome, BackendError):
                errors.append(outcome)
            else:
                self.answers[self._readers[at]] = self._answer(self._known[at], outcome)
        return as_one(errors, len(outcomes))

    def done(self, moves: Sequence[Move]) -> list[bool]:
        """Say of each of these moves whether it is done."""
        return [self.answers[move.queue_id, move.epoch] is not None for move in moves]

    def _answer(self, known: KnownQueue, result: Result) -> bytes | None:
        status, octets = result
        if status == _DONE:
            messages, size_bytes = requests.moved(octets)
            known.holds(messages, size_bytes)
            return octets
        if status == _GONE:
            self._index.forget(known.queue_id)
        return None


class Readers:
    """Sends moves. `sequence` rises with every call: no two calls of one epoch have the same."""

    def __init__(self, index: QueueIndex, regions: Regions, sequence: Iterator[int]) -> None:
        self._index = index
        self._regions = regions
        self._sequence = sequence

    def begin(self, moves: Sequence[Move]) -> Moving:
        """Return moves that somebody else sends. Raises BackendError."""
        by_reader: dict[Reader, list[bytes]] = {}
        for move in moves:
            by_reader.setdefault((move.queue_id, move.epoch), []).append(requests.move(move))
        return Moving(self._index, self._sequence, by_reader)

    def apply(self, moves: Sequence[Move]) -> list[bool]:
        """Do moves. Raises BackendError: some may be done."""
        moving = self.begin(moves)
        self._send(moving)
        return moving.done(moves)

    def send_moves(self, by_reader: Mapping[Reader, Sequence[bytes]]) -> dict[Reader, bytes | None]:
        """Do moves, as `requests` writes them, of each reader. Raises BackendError: some may be done."""
        moving = Moving(self._index, self._sequence, by_reader)
        self._send(moving)
        return moving.answers

    def _send(self, moving: Moving) -> None:
        for error in moving.take(self._regions.send_steps(moving.asked)):
            raise error


def require(outcomes: Sequence[Outcome]) -> list[Result]:
    """Return the results of all operations. Raises BackendError: of several errors the worst one."""
    results: list[Result] = []
    errors: list[BackendError] = []
    for outcome in outcomes:
        if isinstance(outcome, BackendError):
            errors.append(outcome)
        else:
            results.append(outcome)
    if errors:
        raise worst_of(errors, is_written=bool(results) or any(error.is_written for error in errors))
    return results
