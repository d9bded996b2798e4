"""Writers of the queue coprocessor's bytes while a fault happens, and what must be stored afterwards.

Knows no fault.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from tests.support.hbase import queue_bytes
from tests.support.hbase.queue_bytes import appended, claimed, record
from tests.support.hbase.queue_table import QueueTable
from tests.support.night import by_day

WRITERS = 8
CALLS = by_day(150, 300)  # of each writer, at least
QUEUE = 1
MANY_QUEUES = [4 * number for number in range(1, 17)]  # all in one region


class Writer(threading.Thread):
    """One writer incarnation: one call in flight, repeated until it is answered, with the bytes that it had."""

    def __init__(self, table: QueueTable, number: int, is_over: threading.Event) -> None:
        super().__init__(name=f"writer {number}")
        self.number = number
        self.positions: dict[int, bytes] = {}  # as answered
        self.repeats = 0
        self.failure: BaseException | None = None
        self.last: bytes = b""
        self.last_positions: tuple[int, ...] = ()
        self._table = table
        self._is_over = is_over

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # shown by the test's own thread
            self.failure = error

    def _write(self) -> None:
        sequence = 0
        with self._table.caller() as caller:
            while sequence < CALLS or not self._is_over.is_set():
                sequence += 1
                bodies = [b"%d/%d/%d" % (self.number, sequence, each) for each in range(1 + sequence % 5)]
                self.last = queue_bytes.append(QUEUE, self.number, sequence, [record(body) for body in bodies])
                answer = appended(self._table.do_until_answered(caller, QUEUE, self.last)[0])
                self.last_positions = answer.positions
                self.repeats += answer.is_repeat
                self.positions |= dict(zip(answer.positions, bodies, strict=True))


class WideWriter(threading.Thread):
    """One `m:mul` call for sixteen queues after the other: the retry of each finds all of it or nothing. `kinds`: what the retries found."""

    def __init__(self, table: QueueTable) -> None:
        super().__init__(name="wide writer")
        self.is_over = threading.Event()
        self.kinds: set[frozenset[bool]] = set()
        self.failure: BaseException | None = None
        self._table = table

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # shown by the test's own thread
            self.failure = error

    def _write(self) -> None:
        with self._table.caller() as caller:
            self._table.do(caller, MANY_QUEUES[0], *[queue_bytes.create(each) for each in MANY_QUEUES])
            sequence = 0
            is_last = False
            while not is_last:
                is_last = self.is_over.is_set()
                sequence += 1
                steps = [queue_bytes.append(each, 9, sequence, [record(b"%d" % sequence)]) for each in MANY_QUEUES]
                results = self._table.do_until_answered(caller, MANY_QUEUES[0], *steps)
                answers = [appended(each) for each in results]
                self.kinds.add(frozenset(answer.is_repeat for answer in answers))
                assert {answer.positions for answer in answers} == {(sequence,)}


def written_through(table: QueueTable, fault: Callable[[], None]) -> list[Writer]:
    """Let eight writers write to one queue while a fault happens; return them when all is answered."""
    with table.caller() as caller:
        table.do(caller, QUEUE, queue_bytes.create(QUEUE))
    is_over = threading.Event()
    writers = [Writer(table, number, is_over) for number in range(1, WRITERS + 1)]
    for writer in writers:
        writer.start()
    try:
        fault()
    finally:
        is_over.set()
        for writer in writers:
            writer.join()
    assert [writer.failure for writer in writers] == [None] * WRITERS
    return writers


def check_stored(table: QueueTable, writers: list[Writer]) -> None:
    answered = {position: body for writer in writers for position, body in writer.positions.items()}
    assert len(answered) == sum(len(writer.positions) for writer in writers)  # no position was given twice
    with table.caller() as caller:
        claim = claimed(table.do(caller, QUEUE, queue_bytes.claim(QUEUE))[0])
        stored = {
            position: raw[queue_bytes.RECORD_HEAD_BYTES :]
            for position, raw in table.all_records(caller, QUEUE, claim.epoch).items()
        }
        repeated = [appended(table.do(caller, QUEUE, writer.last)[0]) for writer in writers]

    assert stored == answered
    assert list(stored) == list(range(1, len(stored) + 1))
    assert [(each.is_repeat, each.positions) for each in repeated] == [
        (True, writer.last_positions) for writer in writers
    ]
