"""The queue driver `hbase-plain` while links are cut, regions move, HBase dies and owners change: nothing acknowledged is lost or doubled."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from iothub.errors import BackendError
from iothub.testing.queue_contract import MANY, TENANT, made
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    Move,
    MoveKind,
    QueueLimits,
    StaleEpochError,
)
from ops.services.house import Services
from ops.services.places import HOST
from tests.support.cut_link import CutLink
from tests.support.night import at_night
from tests.support.own_tables import caller_of, own_tables

REGIONS = 8
QUEUES = range(1, 17)
BATCHES = 100  # of each writer, at least
PATIENCE_S = 120.0
PAUSE_S = 0.1


@pytest.fixture
def tables(services: Services) -> Iterator[Tables]:
    with own_tables(services, REGIONS, "queues_plain", "queue_index", "bodies") as tables:
        yield tables


def repeated(store: PlainHBaseQueues, batch: Sequence[Append]) -> tuple[list[Appended], int]:
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


class Hub(threading.Thread):
    """Appends batches to all queues, and reads and acknowledges some of it, as long as nobody has claimed after it.

    Every body says who wrote it, for which queue, and which number it is.
    """

    def __init__(
        self, caller: Caller, tables: Tables, number: int, queues: Sequence[int], is_over: threading.Event
    ) -> None:
        super().__init__(name=f"hub {number}")
        self.number = number
        self.acknowledged: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in queues}
        self.read: dict[int, dict[int, bytes]] = {queue_id: {} for queue_id in queues}
        self.failures = 0
        self.defect: BaseException | None = None
        self._store = PlainHBaseQueues(caller, tables)
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
            if number % 5 == self.number % 5:
                self._consume(self._queues[number % len(self._queues)])

    def _consume(self, queue_id: int) -> None:
        """Claim a queue, read two pages, acknowledge what came, all of it once; a fault, or another claim, ends it."""
        try:
            claim = self._store.claim(queue_id, b"%d" % self.number)
            upto = claim.head
            for _ in range(2):
                page = self._store.read(queue_id, claim.epoch, upto, 10, MANY)
                for record in page.records:
                    assert self.read[queue_id].setdefault(record.position, record.body) == record.body
                upto = page.upto
            self._store.apply([Move(MoveKind.ACK, queue_id, claim.epoch, upto)])
        except (BackendError, StaleEpochError):
            return


def written_through(
    services: Services, tables: Tables, hubs: int, queues: Sequence[int], fault: Callable[[], None], port: int = 0
) -> list[Hub]:
    """Let hubs work while a fault happens; return them when all is acknowledged."""
    is_over = threading.Event()
    callers = [caller_of(services, port or None) for _ in range(hubs)]
    found = [Hub(caller, tables, number, queues, is_over) for number, caller in enumerate(callers)]
    for hub in found:
        hub.start()
    try:
        fault()
    finally:
        is_over.set()
        for hub in found:
            hub.join()
        for caller in callers:
            caller.close()
    assert [hub.defect for hub in found] == [None] * hubs
    return found


def check(services: Services, tables: Tables, hubs: Sequence[Hub], queues: Sequence[int]) -> None:
    """Positions are dense, every acknowledged message was at its position and nowhere else, in the order of its writer."""
    with caller_of(services) as caller:
        store = PlainHBaseQueues(caller, tables)
        for queue_id in queues:
            answered = {at: body for hub in hubs for at, body in hub.acknowledged[queue_id].items()}
            assert len(answered) == sum(len(hub.acknowledged[queue_id]) for hub in hubs)
            claim = store.claim(queue_id, b"reader")
            there = {at: body for hub in hubs for at, body in hub.read[queue_id].items()}
            upto, is_short = claim.head, False
            while not is_short:
                page = store.read(queue_id, claim.epoch, upto, MANY, MANY)
                for record in page.records:
                    assert there.setdefault(record.position, record.body) == record.body
                upto, is_short = page.upto, page.is_short
            assert there == answered
            assert sorted(there) == list(range(1, len(there) + 1))
            for hub in hubs:
                numbers = [
                    tuple(map(int, body.split(b"/")))[2:] for _, body in sorted(hub.acknowledged[queue_id].items())
                ]
                assert numbers == sorted(numbers)


def create(services: Services, tables: Tables, queues: Sequence[int]) -> None:
    with caller_of(services) as caller:
        store = PlainHBaseQueues(caller, tables)
        for queue_id in queues:
            store.create(TENANT, queue_id, QueueLimits(0, 0))


def test_link_is_cut_between_call_and_answer(services: Services, tables: Tables) -> None:
    """What was done and not answered is found again, repeated, at the positions that it got."""
    create(services, tables, QUEUES)
    with CutLink(HOST, services.ports.thrift) as link:

        def cut() -> None:
            for _ in range(20):
                link.cut()
                time.sleep(0.05)

        hubs = written_through(services, tables, 1, QUEUES, cut, link.port)
        assert link.cuts > 0
        assert hubs[0].failures > 0
    check(services, tables, hubs, QUEUES)


def test_inbound_qos2_while_the_link_is_cut(services: Services, tables: Tables) -> None:
    """Whichever answer is lost - of the intent, of the appends, of `routed` - each message is there once."""
    with CutLink(HOST, services.ports.thrift) as link, caller_of(services, link.port) as caller:
        store = PlainHBaseQueues(caller, tables)
        readers = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 5)}
        publisher = made(store, 9)
        for number in range(1, 41):
            link.cut(number % 3)
            deliveries = tuple(Delivery(queue_id, 2) for queue_id in readers)
            inbound = Inbound(9, publisher.epoch, number)
            answers, _ = repeated(store, [Append(number.to_bytes(16), b"%d" % number, 0, deliveries, inbound)])
            assert answers == [Appended((number,) * len(readers))]
        assert link.cuts > 10

        for queue_id, epoch in readers.items():
            page = store.read(queue_id, epoch, 0, MANY, MANY)
            assert [record.body for record in page.records] == [b"%d" % number for number in range(1, 41)]


def test_two_hubs_take_queues_from_each_other_while_regions_close_and_open(services: Services, tables: Tables) -> None:
    """Owners change in the middle, both append all the time: a region that is on its way refuses for a moment."""
    create(services, tables, QUEUES)

    def reopen() -> None:
        for _ in range(2):
            name = tables.queues_plain.decode()
            assert services.java("hbase", "iothub.hbase.admin.RegionAdmin", "reopen", name) == 0

    hubs = written_through(services, tables, 2, QUEUES, reopen)
    check(services, tables, hubs, QUEUES)


@pytest.mark.parametrize("hubs", [pytest.param(2, id="owners change"), *at_night(pytest.param(1, id="one owner"))])
def test_hubs_append_while_hbase_is_killed(services: Services, tables: Tables, hubs: int) -> None:
    """Kill -9 under load: what may have been written is looked for, and sent again."""
    create(services, tables, QUEUES)

    def kill() -> None:
        time.sleep(1.0)  # let the hubs be in full flight
        services.kill("hbase")
        services.up("hbase")

    found = written_through(services, tables, hubs, QUEUES, kill)
    check(services, tables, found, QUEUES)
    assert sum(hub.failures for hub in found) > 0


def test_hubs_append_while_their_gateway_is_killed_and_restarted(services: Services, tables: Tables) -> None:
    """HBase goes on; calls that the gateway had taken may be done after it has gone."""
    services.up("gateway")
    create(services, tables, QUEUES)

    def kill() -> None:
        time.sleep(1.0)
        services.kill("gateway")
        services.up("gateway")
        time.sleep(1.0)
        services.restart("gateway")

    found = written_through(services, tables, 2, QUEUES, kill, services.ports.second_thrift)
    services.down("gateway")
    check(services, tables, found, QUEUES)
    assert sum(hub.failures for hub in found) > 0
