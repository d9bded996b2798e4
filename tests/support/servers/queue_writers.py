"""Hubs that write to queues on a real server while something is done to it, and what must be true afterwards.

Knows the drivers' stores by their port; what is done, and to whom, the tests say.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass

from iothub.base.errors import BackendError
from iothub.testing.queue_contract import MANY, TENANT
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import Tables
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Move,
    MoveKind,
    QueueLimits,
    QueueStore,
    StaleEpochError,
)
from ops.services.services import Services
from tests.support.hbase.own_tables import caller_of
from tests.support.night import by_day

BATCHES = by_day(50, 100)  # of each hub, at least
_PATIENCE_S = 120.0
_PAUSE_S = 0.1
_CONSUMED_EVERY = 5  # batches
_PAGES, _PAGE_RECORDS = 2, 10


def repeated(store: QueueStore, batch: Sequence[Append]) -> tuple[list[Appended], int]:
    """Append as the writer's thread does: the same objects again until it works. Returns how often it did not, too."""
    deadline = time.monotonic() + _PATIENCE_S
    failures = 0
    while True:
        try:
            with store.group():
                return store.append(list(batch)), failures
        except BackendError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            failures += 1
            time.sleep(_PAUSE_S)


class WritingHub(threading.Thread):
    """Appends batches to all its queues; `is_reading`: claims, reads and acknowledges some of it, as long as nobody claims after it.

    Every body says who wrote it, for which queue, and which number it is.
    """

    def __init__(
        self, store: QueueStore, number: int, queues: Sequence[int], is_over: threading.Event, *, is_reading: bool
    ) -> None:
        super().__init__(name=f"hub {number}")
        self.number = number
        self.acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in queues}
        self.read: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in queues}
        self.failures = 0
        self.defect: BaseException | None = None
        self._store = store
        self._queues = queues
        self._is_over = is_over
        self._is_reading = is_reading

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # shown by the test's own thread
            self.defect = error

    def _write(self) -> None:
        number = 0
        while number < BATCHES or not self._is_over.is_set():
            number += 1
            batch = self._batch(number)
            answers, failures = repeated(self._store, batch)
            self.failures += failures
            for op, answer in zip(batch, answers, strict=True):
                (position,) = answer.positions
                found = self.acknowledged[op.deliveries[0].queue_id]
                assert position > 0
                assert position not in found
                found[position] = op.body
            if self._is_reading and number % _CONSUMED_EVERY == self.number % _CONSUMED_EVERY:
                self._consume(self._queues[number % len(self._queues)])

    def _batch(self, number: int) -> list[Append]:
        return [
            Append(b"", b"%d/%d/%d/%d" % (self.number, queue_id, number, each), 0, (Delivery(queue_id, 1),))
            for queue_id in self._queues
            for each in range(1 + (number + queue_id) % 3)
        ]

    def _consume(self, queue_id: int) -> None:
        """Claim a queue, read two pages, acknowledge what came, all of it once; a fault, or another claim, ends it."""
        try:
            claim = self._store.claim(queue_id, b"%d" % self.number)
            upto = claim.head
            for _ in range(_PAGES):
                page = self._store.read(queue_id, claim.epoch, upto, _PAGE_RECORDS, MANY)
                for record in page.records:
                    assert self.read[queue_id].setdefault(record.position, record.body) == record.body
                upto = page.upto
            self._store.apply([Move(MoveKind.ACK, queue_id, claim.epoch, upto)])
        except (BackendError, StaleEpochError):
            return


@contextmanager
def hubs_writing(
    stores: Sequence[QueueStore], queues: Sequence[int], *, is_reading: bool = False
) -> Iterator[list[WritingHub]]:
    """Let hubs write, one for each store; behind it all of them have been answered, and none has met what it must not."""
    is_over = threading.Event()
    made = [WritingHub(each, at, queues, is_over, is_reading=is_reading) for at, each in enumerate(stores)]
    for hub in made:
        hub.start()
    try:
        yield made
    finally:
        is_over.set()
        for hub in made:
            hub.join()
        for store in stores:
            store.close()
    assert [hub.defect for hub in made] == [None] * len(made)


def check_written(store: QueueStore, hubs: Sequence[WritingHub], queues: Sequence[int]) -> None:
    """Positions are dense, every acknowledged message was at its position and nowhere else, in the order of its writer."""
    for queue_id in queues:
        answered = {at: body for hub in hubs for at, body in hub.acknowledged[queue_id].items()}
        assert len(answered) == sum(len(hub.acknowledged[queue_id]) for hub in hubs)
        there = {at: body for hub in hubs for at, body in hub.read[queue_id].items()}
        _read_rest(store, queue_id, there)
        assert there == answered
        assert sorted(there) == list(range(1, len(there) + 1))
        for hub in hubs:
            assert _numbers(hub, queue_id) == sorted(_numbers(hub, queue_id))


@dataclass(frozen=True)
class QueueHarness:
    """One driver's queues on the real HBase, in `table`. `make`: its store, on a caller and tables."""

    services: Services
    tables: Tables
    make: Callable[[Caller, Tables], QueueStore]
    table: bytes

    @contextmanager
    def store(self, port: int | None = None) -> Iterator[QueueStore]:
        with caller_of(self.services, port) as caller, closing(self.make(caller, self.tables)) as store:
            yield store

    def create(self, queues: Sequence[int]) -> None:
        with self.store() as store:
            for queue_id in queues:
                store.create(TENANT, queue_id, QueueLimits(0, 0))

    @contextmanager
    def writing(
        self, hubs: int, queues: Sequence[int], *, port: int | None = None, is_reading: bool = False
    ) -> Iterator[list[WritingHub]]:
        with ExitStack() as stack:
            callers = [stack.enter_context(caller_of(self.services, port)) for _ in range(hubs)]
            stores = [self.make(caller, self.tables) for caller in callers]
            yield stack.enter_context(hubs_writing(stores, queues, is_reading=is_reading))

    def check(self, hubs: Sequence[WritingHub], queues: Sequence[int]) -> None:
        with self.store() as store:
            check_written(store, hubs, queues)


def _read_rest(store: QueueStore, queue_id: int, there: dict[int, bytes]) -> None:
    """Add what nobody has acknowledged; what was read before must be the same."""
    claim = store.claim(queue_id, b"reader")
    upto, is_short = claim.head, False
    while not is_short:
        page = store.read(queue_id, claim.epoch, upto, MANY, MANY)
        for record in page.records:
            assert there.setdefault(record.position, record.body) == record.body
        upto, is_short = page.upto, page.is_short


def _numbers(hub: WritingHub, queue_id: int) -> list[tuple[int, ...]]:
    return [tuple(map(int, body.split(b"/")))[2:] for _, body in sorted(hub.acknowledged[queue_id].items())]
