"""The queue driver `hbase` while links are cut, regions move and HBase dies: nothing acknowledged is lost, nothing is there twice."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing

import pytest

from iothub.errors import BackendError
from iothub.testing.queue_contract import MANY, TENANT, made
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, QueueLimits
from ops.services.house import Services
from ops.services.places import HOST
from tests.support.cut_link import CutLink
from tests.support.night import at_night
from tests.support.own_tables import caller_of, own_tables

REGIONS = 4
QUEUES = 16  # over all regions
_FIRST = iter(range(1, 1 << 20, 100))
WRITERS = 8
BATCHES = 100  # of each writer, at least
PATIENCE_S = 120.0
PAUSE_S = 0.1


@pytest.fixture(scope="module")
def _tables(_house: Services) -> Iterator[Tables]:
    _house.up()
    with own_tables(_house, REGIONS, "queues", "queue_index", "bodies") as tables:
        yield tables


@pytest.fixture
def tables(_tables: Tables, services: Services) -> Tables:
    """The same tables for all tests of this file; each takes queues of its own. The servers are up."""
    assert services
    return _tables


@pytest.fixture
def queues() -> range:
    """Queues that no other test has."""
    first = next(_FIRST)
    return range(first, first + QUEUES)


def repeated(store: HBaseQueues, batch: Sequence[Append]) -> tuple[list[Appended], int]:
    """Append as the writer's thread does: the same objects again until it works. Returns how often it did not, too."""
    deadline = time.monotonic() + PATIENCE_S
    failures = 0
    while True:
        try:
            with store.group():
                return store.append(list(batch)), failures
        except BackendError as error:
            if not error.retryable or time.monotonic() > deadline:
                raise
            failures += 1
            time.sleep(PAUSE_S)


class Writer(threading.Thread):
    """A hub that appends batches for all queues; every body says who wrote it, for which queue, and which number it is."""

    def __init__(self, caller: Caller, tables: Tables, number: int, queues: Sequence[int], is_over: threading.Event):
        super().__init__(name=f"hub {number}")
        self.number = number
        self.acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in queues}
        self.failures = 0
        self.defect: BaseException | None = None
        self._store = HBaseQueues(caller, tables)
        self._queues = queues
        self._is_over = is_over

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:  # shown by the test's own thread
            self.defect = error

    def _write(self) -> None:
        number = 0
        while number < BATCHES or not self._is_over.is_set():
            number += 1
            batch = [
                Append(b"", b"%d/%d/%d/%d" % (self.number, queue_id, number, each), 0, (Delivery(queue_id, 1),))
                for queue_id in self._queues
                for each in range(1 + (number + queue_id) % 3)
            ]
            answers, failures = repeated(self._store, batch)
            self.failures += failures
            for op, answer in zip(batch, answers, strict=True):
                (position,) = answer.positions
                found = self.acknowledged[op.deliveries[0].queue_id]
                assert position > 0
                assert position not in found
                found[position] = op.body


def written_through(
    services: Services, tables: Tables, writers: int, queues: Sequence[int], fault: Callable[[], None], port: int = 0
) -> list[Writer]:
    """Let hubs append while a fault happens; return them when all is acknowledged."""
    is_over = threading.Event()
    callers = [caller_of(services, port or None) for _ in range(writers)]
    made_writers = [Writer(caller, tables, number, queues, is_over) for number, caller in enumerate(callers)]
    for writer in made_writers:
        writer.start()
    try:
        fault()
    finally:
        is_over.set()
        for writer in made_writers:
            writer.join()
        for caller in callers:
            caller.close()
    assert [writer.defect for writer in made_writers] == [None] * writers
    return made_writers


def check(services: Services, tables: Tables, writers: Sequence[Writer], queues: Sequence[int]) -> None:
    """Positions are dense, every acknowledged message is at its position and nowhere else, in the order of its writer."""
    with caller_of(services) as caller, closing(HBaseQueues(caller, tables)) as store:
        for queue_id in queues:
            answered = {at: body for writer in writers for at, body in writer.acknowledged[queue_id].items()}
            assert len(answered) == sum(len(writer.acknowledged[queue_id]) for writer in writers)
            epoch = store.claim(queue_id, b"reader").epoch
            stored: dict[int, bytes] = {}
            page = store.read(queue_id, epoch, 0, MANY, MANY)
            while page.records:
                stored |= {record.position: record.body for record in page.records}
                page = store.read(queue_id, epoch, page.upto, MANY, MANY)
            assert stored == answered
            assert list(stored) == list(range(1, len(stored) + 1))
            for writer in writers:
                numbers = [
                    tuple(map(int, body.split(b"/")))[2:] for _, body in sorted(writer.acknowledged[queue_id].items())
                ]
                assert numbers == sorted(numbers)


def create(services: Services, tables: Tables, queues: Sequence[int]) -> None:
    with caller_of(services) as caller, closing(HBaseQueues(caller, tables)) as store:
        for queue_id in queues:
            store.create(TENANT, queue_id, QueueLimits(0, 0))


def test_link_is_cut_between_call_and_answer(services: Services, tables: Tables, queues: range) -> None:
    """What was done and not answered is answered, repeated, with the positions that it got."""
    create(services, tables, queues)
    with CutLink(HOST, services.ports.thrift) as link:

        def cut() -> None:
            for _ in range(20):
                link.cut()
                time.sleep(0.05)

        writers = written_through(services, tables, 1, queues, cut, link.port)
        assert link.cuts > 0
        assert writers[0].failures > 0
    check(services, tables, writers, queues)


def test_inbound_qos2_while_the_link_is_cut(services: Services, tables: Tables, queues: range) -> None:
    """Whichever answer is lost - of the intent, of the appends, of `routed` - each message is there once."""
    with CutLink(HOST, services.ports.thrift) as link, caller_of(services, link.port) as caller:
        store = HBaseQueues(caller, tables)
        readers = {queue_id: made(store, queue_id).epoch for queue_id in queues[:4]}
        publisher = made(store, queues[9])
        for number in range(1, 41):
            link.cut(number % 3)
            deliveries = tuple(Delivery(queue_id, 2) for queue_id in readers)
            inbound = Inbound(queues[9], publisher.epoch, number)
            answers, _ = repeated(store, [Append(number.to_bytes(16), b"%d" % number, 0, deliveries, inbound)])
            assert answers == [Appended((number,) * len(readers))]
        assert link.cuts > 10

        for queue_id, epoch in readers.items():
            page = store.read(queue_id, epoch, 0, MANY, MANY)
            assert [record.body for record in page.records] == [b"%d" % number for number in range(1, 41)]


def test_hubs_append_while_regions_close_and_open(services: Services, tables: Tables, queues: range) -> None:
    """Eight writers, one queue: a region that is on its way refuses for a moment."""
    create(services, tables, queues[:1])

    def reopen() -> None:
        for _ in range(2):
            assert services.java("hbase", "iothub.hbase.admin.RegionAdmin", "reopen", tables.queues.decode()) == 0

    writers = written_through(services, tables, WRITERS, queues[:1], reopen)
    check(services, tables, writers, queues[:1])


@pytest.mark.parametrize(
    ("writers", "count"),
    [pytest.param(2, QUEUES, id="many queues"), *at_night(pytest.param(WRITERS, 1, id="one queue"))],
)
def test_hubs_append_while_hbase_is_killed(
    services: Services, tables: Tables, queues: range, writers: int, count: int
) -> None:
    """Kill -9 under load: what may have been written is sent again, with the same bytes."""
    chosen = queues[:count]
    create(services, tables, chosen)

    def kill() -> None:
        time.sleep(1.0)  # let the hubs be in full flight
        services.kill("hbase")
        services.up("hbase")

    found = written_through(services, tables, writers, chosen, kill)
    check(services, tables, found, chosen)
    assert sum(writer.failures for writer in found) > 0
