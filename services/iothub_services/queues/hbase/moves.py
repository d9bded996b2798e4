"""What readers do to their own queues in HBase: moves and inbound intents, fenced by epoch and by a sequence.

Knows no append. A repeat of a move changes nothing, so an uncertain call is simply made again, with a higher sequence: the one before it
comes too late then.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from iothub.base.errors import BackendError
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue, QueueIndex
from iothub_services.queues.hbase.regions import Outcome, Regions
from iothub_services.queues.hbase.requests import Result, Status
from iothub_services.queues.port import Move, worst_of

Reader = tuple[int, int]  # queue id, epoch


class Moved(NamedTuple):
    """What became of one reader's moves. `answer` is empty if it is fenced, or its queue is gone."""

    is_done: bool
    answer: bytes = b""


_FENCED = Moved(is_done=False)


class Readers:
    """Sends moves. `sequence` rises with every call: no two calls of one epoch have the same."""

    def __init__(self, index: QueueIndex, regions: Regions, sequence: Iterator[int]) -> None:
        self._index = index
        self._regions = regions
        self._sequence = sequence

    def apply(self, moves: Sequence[Move]) -> list[bool]:
        """Do moves. Raises BackendError: some may be done."""
        by_reader: dict[Reader, list[bytes]] = {}
        for move in moves:
            by_reader.setdefault((move.queue_id, move.epoch), []).append(requests.move(move))
        moved = self.send_moves(by_reader)
        return [moved[move.queue_id, move.epoch].is_done for move in moves]

    def send_moves(self, by_reader: Mapping[Reader, Sequence[bytes]]) -> dict[Reader, Moved]:
        """Do moves, as `requests` writes them, of each reader. Raises BackendError: some may be done."""
        self._index.find(queue_id for queue_id, _ in by_reader)
        moved = dict.fromkeys(by_reader, _FENCED)
        sent: list[tuple[Reader, KnownQueue]] = []
        steps = []
        for reader, each in by_reader.items():
            queue_id, epoch = reader
            known = self._index.get(queue_id)
            if known is not None:
                sent.append((reader, known))
                steps.append(requests.moves(known.key, epoch, next(self._sequence), each))
        for (reader, known), result in zip(sent, require(self._regions.send_steps(steps)), strict=True):
            moved[reader] = self._moved(known, result)
        return moved

    def _moved(self, known: KnownQueue, result: Result) -> Moved:
        status, octets = result
        if status == Status.DONE:
            known.holds(*requests.moved(octets))
            return Moved(is_done=True, answer=octets)
        if status == Status.GONE:
            self._index.forget(known.queue_id)
        return _FENCED


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
