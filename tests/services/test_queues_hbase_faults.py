"""The queue driver `hbase` while links are cut, regions move, HBase dies and owners change: nothing acknowledged is lost or doubled.

The bytes of the coprocessor under the same faults: `test_queue_coprocessor_faults.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from iothub.testing.queue_contract import MANY, made
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Appended, Delivery, Inbound
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase.own_tables import own_tables, reopen_regions
from tests.support.night import at_night, by_day
from tests.support.servers.cut_link import CutLink
from tests.support.servers.queue_writers import QueueHarness, repeated

REGIONS = 4
QUEUES = 16  # over all regions
WRITERS = 8
ROUNDS = by_day(1, 3)  # of all regions that are closed and opened
FLIGHT_S = 1.0  # until the hubs are in full flight
_FIRST = iter(range(1, 1 << 20, 100))


@pytest.fixture(scope="module")
def _tables(_servers: Services) -> Iterator[Tables]:
    _servers.up()
    with own_tables(_servers, REGIONS, "queues", "queue_index", "bodies") as tables:
        yield tables


@pytest.fixture
def harness(_tables: Tables, services: Services) -> QueueHarness:
    """The same tables for all tests of this file; each takes queues of its own. The servers are up."""
    return QueueHarness(services, _tables, HBaseQueues, _tables.queues)


def fresh() -> range:
    """Queues that no other test has."""
    first = next(_FIRST)
    return range(first, first + QUEUES)


def test_link_is_cut_between_call_and_answer(services: Services, harness: QueueHarness) -> None:
    """What was done and not answered is found again, repeated, at the positions that it got."""
    queues = fresh()
    harness.create(queues)
    with CutLink(HOST, services.ports.thrift) as link:
        with harness.writing(1, queues, port=link.port) as hubs:
            for _ in range(20):
                link.cut()
                time.sleep(0.05)
        assert link.cuts > 0
        assert hubs[0].failures > 0
    harness.check(hubs, queues)


def test_inbound_qos2_while_the_link_is_cut(services: Services, harness: QueueHarness) -> None:
    """Whichever answer is lost - of the intent, of the appends, of `routed` - each message is there once."""
    queues = fresh()
    with CutLink(HOST, services.ports.thrift) as link, harness.store(link.port) as store:
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


def test_hubs_append_while_regions_close_and_open(harness: QueueHarness) -> None:
    """A region that is on its way refuses for a moment. Eight hubs write to one queue."""
    queues = fresh()[:1]
    harness.create(queues)

    with harness.writing(WRITERS, queues) as hubs:
        reopen_regions(harness.services, harness.table, ROUNDS)

    harness.check(hubs, queues)


@pytest.mark.parametrize(
    ("writers", "count"),
    [pytest.param(2, QUEUES, id="many queues"), *at_night(pytest.param(WRITERS, 1, id="one queue"))],
)
def test_hubs_append_while_hbase_is_killed(services: Services, harness: QueueHarness, writers: int, count: int) -> None:
    """Kill -9 under load: what may have been written is sent again, with the same bytes."""
    queues = fresh()[:count]
    harness.create(queues)

    with harness.writing(writers, queues, is_reading=count > 1) as hubs:
        time.sleep(FLIGHT_S)
        services.kill("hbase")
        services.up("hbase")

    harness.check(hubs, queues)
    assert sum(hub.failures for hub in hubs) > 0


@pytest.mark.parametrize("is_restarted", [False, *at_night(True)])
def test_hubs_append_while_their_gateway_is_killed(
    services: Services, harness: QueueHarness, is_restarted: bool
) -> None:
    """HBase goes on; calls that the gateway had taken may be done after it has gone. At night it is restarted in good order, too."""
    services.up("gateway")
    queues = fresh()
    harness.create(queues)

    with harness.writing(2, queues, port=services.ports.second_thrift, is_reading=True) as hubs:
        time.sleep(FLIGHT_S)
        services.kill("gateway")
        services.up("gateway")
        if is_restarted:
            time.sleep(FLIGHT_S)
            services.restart("gateway")

    services.down("gateway")
    harness.check(hubs, queues)
    assert sum(hub.failures for hub in hubs) > 0
