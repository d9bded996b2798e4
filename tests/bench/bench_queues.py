"""How fast the queue drivers append, read and acknowledge, the store alone: messages a second, and CPU of this process for each.

Run by hand, alone: `.venv/bin/python tests/bench/bench_queues.py --drivers sqlite hbase redis`; it starts HBase and
Redis of `make services` where they do not run, and stops them again. `--regions` and `--connections` say what the tables and the client are like.
Knows no hub: one thread uses the store, as the hub's writer does; the client of HBase has its reactor, as in a hub.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from iothub.base import gc_tuning
from iothub.base.units import Endpoint
from iothub.testing.clock import ManualClock
from iothub.testing.reactor_thread import ReactorThread
from iothub_services.hbase.caller import ThreadCaller
from iothub_services.hbase.client import HBaseClient
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, QueueLimits, QueueStore
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from ops.services.errors import ServicesError
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase.own_tables import own_tables
from tests.support.hubs.redis_hubs import RedisQueueHarness
from tests.support.servers.running import running

DRIVERS = ("sqlite", "journal", "hbase", "redis")
QUEUES = 1_000
BODY = bytes(1_024)
TENANT = 1
PAGE = 500

Row = dict[str, float | str]


@dataclass(frozen=True, slots=True)
class Shape:
    """What is measured: messages of one append (at most as many as the hub puts into one commit), and what HBase's driver is like."""

    batches: tuple[int, ...] = (1, 16, 256, 2_000)
    regions: int = 16
    connections: int = 8


AS_ALWAYS = Shape()


@contextmanager
def opened(driver: str, folder: Path, shape: Shape) -> Iterator[QueueStore]:
    """Give an empty store of a driver."""
    with ExitStack() as stack:
        if driver in {"sqlite", "journal"}:
            database = open_database(folder / f"{driver}.db", SCHEMA, ManualClock(), _ignore)
            store: QueueStore = SqliteQueues(database) if driver == "sqlite" else JournaledQueues(database, _ignore)
        elif driver == "redis":
            store = stack.enter_context(_on_redis())
        else:
            store = stack.enter_context(_on_hbase(shape))
        yield store
        store.close()


def _ignore(_word: str, _text: str) -> None:
    """The file is new: nothing is wrong with it."""


@contextmanager
def _on_redis() -> Iterator[QueueStore]:
    services = Services(say=_say)
    with running(services, "redis"):
        harness = RedisQueueHarness(services)
        with harness.store() as store:
            yield store
        harness.remove()


@contextmanager
def _on_hbase(shape: Shape) -> Iterator[QueueStore]:
    services = Services(say=_say)
    with (
        running(services, "hbase"),
        own_tables(services, shape.regions, "queues", "queue_index", "bodies") as tables,
        ReactorThread() as reactor,
    ):
        gateways = [Endpoint(HOST, services.ports.thrift)]
        client = HBaseClient(reactor.reactor, gateways, connections=shape.connections * len(gateways))
        reactor.call(client.open)
        try:
            yield HBaseQueues(ThreadCaller(client, reactor.reactor.callFromThread), tables)
        finally:
            reactor.call(client.close)


class Measure:
    """Sums up wall and CPU time of stretches of work."""

    def __init__(self) -> None:
        self._wall = self._cpu = 0.0

    def __enter__(self) -> Measure:
        self._wall -= time.perf_counter()
        self._cpu -= time.process_time()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall += time.perf_counter()
        self._cpu += time.process_time()

    def row(self, driver: str, what: str, messages: int) -> Row:
        """Return messages a second, and CPU us for each."""
        return {
            "driver": driver,
            "what": what,
            "per_s": messages / self._wall,
            "cpu_us": self._cpu / messages * 1e6,
        }


def measured(driver: str, store: QueueStore, seconds: float, batches: Sequence[int]) -> list[Row]:
    """Append for some seconds at each batch size, then read and acknowledge all of it."""
    with store.group():
        for queue_id in range(1, QUEUES + 1):
            store.create(TENANT, queue_id, QueueLimits(0, 0))
        epochs = {queue_id: store.claim(queue_id, b"bench").epoch for queue_id in range(1, QUEUES + 1)}
    gc_tuning.settle()  # as in a hub that has started
    _append(driver, store, max(batches), seconds / 2)  # warm
    rows = [_append(driver, store, batch, seconds) for batch in batches]
    measure = Measure()
    with measure:
        read = _read(store, epochs)
    rows.append(measure.row(driver, "read", read))
    tails = store.tails(list(epochs))
    measure = Measure()
    with measure:
        for at in range(1, QUEUES + 1, PAGE):
            store.apply([Move(MoveKind.ACK, each, epochs[each], tails[each]) for each in range(at, at + PAGE)])
    rows.append(measure.row(driver, "acknowledge, up to the tail", sum(tails.values())))
    return rows


def _append(driver: str, store: QueueStore, batch: int, seconds: float) -> Row:
    number = 0
    measure = Measure()
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        messages = [
            Append(each.to_bytes(16), BODY, 0, (Delivery(1 + each * 7 % QUEUES, 1),))
            for each in range(number, number + batch)
        ]
        number += batch
        with measure, store.group():
            store.append(messages)
    return measure.row(driver, f"append, {batch} a batch", number)


def _read(store: QueueStore, epochs: dict[int, int]) -> int:
    count = 0
    for queue_id, epoch in epochs.items():
        after, is_short = 0, False
        while not is_short:
            page = store.read(queue_id, epoch, after, PAGE, 1 << 20)
            count += len(page.records)
            after, is_short = page.upto, page.is_short
    return count


def table(drivers: tuple[str, ...], folder: Path, seconds: float, shape: Shape = AS_ALWAYS) -> list[Row]:
    """Measure drivers, one after another."""
    rows = []
    for driver in drivers:
        try:
            with opened(driver, folder, shape) as store:
                rows += measured(driver, store, seconds, shape.batches)
        except ServicesError as error:
            rows.append({"driver": driver, "what": f"not measured: {error}", "per_s": 0.0, "cpu_us": 0.0})
    return rows


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main() -> None:
    """Measure and say what came out."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--drivers", nargs="+", choices=DRIVERS, default=["sqlite"])
    parser.add_argument("--seconds", type=float, default=5.0, help="of each append row")
    parser.add_argument("--batch", type=int, nargs="+", default=AS_ALWAYS.batches, help="messages of one append")
    parser.add_argument("--regions", type=int, default=AS_ALWAYS.regions, help="of the table of queues")
    parser.add_argument("--connections", type=int, default=AS_ALWAYS.connections, help="to the gateway")
    chosen = parser.parse_args()
    shape = Shape(tuple(chosen.batch), chosen.regions, chosen.connections)
    with tempfile.TemporaryDirectory() as folder:
        for row in table(tuple(chosen.drivers), Path(folder), chosen.seconds, shape):
            sys.stdout.write(
                f"{row['driver']:12} {row['what']:28} {row['per_s']:9.0f} messages/s {row['cpu_us']:7.1f} us CPU each\n"
            )


if __name__ == "__main__":
    main()
