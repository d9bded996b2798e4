"""Inbound QoS 2 on HBase beyond what all drivers on servers do (`test_inbound`): rows of intents, and their bodies."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.testing.queue_contract import MANY, TENANT, made, one
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Appended, Inbound
from tests.support.hbase.hbase_calls import FakeCaller, Fault
from tests.support.hbase.hbase_queues import TABLES, HBase

READER, PUBLISHER = 1, 2
INTENT = keys.intent_row(keys.queue_key(PUBLISHER, TENANT), 77)


def stopped(caller: FakeCaller, changes: int) -> None:
    """Let so many changes pass, then none."""
    left = [Fault.NONE] * changes
    caller.fault = lambda call: (left.pop() if left else Fault.UNSENT) if call.verb.name == "append" else Fault.NONE


def records(store: HBaseQueues, queue_id: int = READER) -> list[bytes]:
    epoch = store.claim(queue_id, b"reader").epoch
    return [record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records]


@pytest.fixture
def harness() -> HBase:
    harness = HBase()
    store, _ = harness.store()
    made(store, READER)
    made(store, PUBLISHER)
    return harness


def publish(epoch: int = 1, number: int = 1, packet_id: int = 77) -> Append:
    return one(READER, number, 2, inbound=Inbound(PUBLISHER, epoch, packet_id))


def test_record_of_an_intent_goes_when_it_is_routed(harness: HBase) -> None:
    """By whoever routes it."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, 1)
    with pytest.raises(BackendError):
        store.append([publish()])
    assert INTENT in harness.gateway.table(TABLES.queues)

    harness.store(2)[0].claim(PUBLISHER, b"later")

    assert INTENT not in harness.gateway.table(TABLES.queues)


def test_intent_that_cannot_be_read_stays_open(harness: HBase) -> None:
    """It is not taken for routed: the client's repeat routes it. It counts as damaged, like any other record."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, 1)
    with pytest.raises(BackendError):
        store.append([publish()])
    harness.gateway.table(TABLES.queues)[INTENT] = {b"m:p": (b"\x09from the future", 1)}
    later, _ = harness.store(2)

    claim = later.claim(PUBLISHER, b"later")

    assert claim.inbound == ()
    ((store_name, key, _),) = harness.damaged_records
    assert (store_name, key) == ("queues", f"tenant {TENANT}, QoS 2 message 77 from the client of queue {PUBLISHER}")
    assert later.append([publish(claim.epoch, 9)]) == [Appended((1,))]
    assert later.claim(PUBLISHER, b"last").inbound == (77,)


def test_body_is_there_before_the_intent_that_refers_to_it(harness: HBase) -> None:
    """Else whoever finishes it would deliver nothing."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, 0)

    with pytest.raises(BackendError):
        store.append([one(READER, 1, 2, body=b"l" * 100_000, inbound=Inbound(PUBLISHER, 1, 77))])

    assert len(harness.gateway.table(TABLES.bodies)) == 1


def test_body_of_an_intent_is_stored_apart_when_it_is_large(harness: HBase) -> None:
    """Intent and record refer to the same row; whoever finishes it does not copy it."""
    store, caller = harness.store(1)
    store.open()
    large = b"l" * 100_000
    stopped(caller, 1)
    with pytest.raises(BackendError):
        store.append([one(READER, 1, 2, body=large, inbound=Inbound(PUBLISHER, 1, 77))])
    later, _ = harness.store(2)
    later.claim(PUBLISHER, b"later")

    assert records(later) == [large]
    assert len(harness.gateway.table(TABLES.bodies)) == 1
