"""Inbound QoS 2 on HBase: intent, append, routed - and what is left when the hub stops between them."""

from __future__ import annotations

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.testing.queue_contract import MANY, TENANT, made, one
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import Append, Appended, Delivery, Inbound
from tests.support.hbase_calls import FakeCaller, Fault
from tests.support.hbase_queues import TABLES, HBase

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


@pytest.mark.parametrize(("changes", "is_there"), [(1, False), (2, True)])
def test_claim_finishes_what_was_not_routed(harness: HBase, changes: int, is_there: bool) -> None:
    """The hub died behind the intent, or behind the append: the next one routes it, once, and its record of it is gone."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, changes)
    with pytest.raises(BackendError):
        store.append([publish()])
    later, _ = harness.store(2)
    assert records(later) == ([b"m1"] if is_there else [])
    assert INTENT in harness.gateway.table(TABLES.queues)

    claim = later.claim(PUBLISHER, b"later")

    assert claim.inbound == (77,)
    assert records(later) == [b"m1"]
    assert INTENT not in harness.gateway.table(TABLES.queues)
    assert later.append([publish(claim.epoch, 9)]) == [Appended((), is_duplicate=True)]


def test_claim_finishes_in_the_order_of_publishing(harness: HBase) -> None:
    """Packet Identifiers begin anew at 1: receivers get what came first all the same [MQTT-4.6.0-5]."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, 1)
    with pytest.raises(BackendError):
        store.append([publish(number=1, packet_id=65_535), publish(number=2, packet_id=1)])
    later, _ = harness.store(2)

    assert later.claim(PUBLISHER, b"later").inbound == (1, 65_535)
    assert records(later) == [b"m1", b"m2"]


def test_repeat_is_routed_under_the_first_message_id(harness: HBase) -> None:
    """The client was faster than any claim: its second PUBLISH finds the intent open, and doubles nothing."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, 2)
    with pytest.raises(BackendError):
        store.append([publish()])
    other, _ = harness.store(2)

    assert other.append([publish(number=9)]) == [Appended((1,))]
    assert records(other) == [b"m1"]


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


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.UNSENT])
def test_lost_answer_of_any_step_is_repeated(harness: HBase, at: int, fault: Fault) -> None:
    """Of the intent, the append, or `routed`: the same message again is no duplicate of itself."""
    store, caller = harness.store(1)
    store.open()
    planned = [*[Fault.NONE] * at, fault]
    caller.fault = lambda _: planned.pop(0) if planned else Fault.NONE
    batch = [publish()]
    with pytest.raises(BackendError), store.group():
        store.append(batch)

    with store.group():
        assert store.append(batch) == [Appended((1,))]
    assert records(store) == [b"m1"]
    assert store.claim(PUBLISHER, b"next").inbound == (77,)


@pytest.mark.parametrize(("changes", "is_written"), [(0, False), (1, True), (2, True)])
def test_intent_that_is_there_counts_as_written(harness: HBase, changes: int, is_written: bool) -> None:
    """Whoever claims finishes it, so the publisher must not be told that its message is nowhere."""
    store, caller = harness.store(1)
    store.open()
    stopped(caller, changes)

    with pytest.raises(BackendError) as failure, store.group():
        store.append([publish()])

    assert failure.value.is_written is is_written


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED])
def test_message_for_nobody_is_recorded_once(harness: HBase, fault: Fault) -> None:
    """Intent and `routed` are one call then; a repeat of it is no duplicate of itself."""
    store, caller = harness.store(1)
    store.open()
    batch = [Append(b"i" * 16, b"b", 0, (), Inbound(PUBLISHER, 1, 5))]
    planned = [fault]
    caller.fault = lambda _: planned.pop(0) if planned else Fault.NONE
    with pytest.raises(BackendError), store.group():
        store.append(batch)
    caller.made.clear()

    with store.group():
        assert store.append(batch) == [Appended(())]
    assert caller.made == ["append"]
    assert store.append([Append(b"j" * 16, b"b", 0, (), Inbound(PUBLISHER, 1, 5))]) == [Appended((), is_duplicate=True)]


def test_second_of_a_batch_is_no_duplicate_before_the_first_is_routed(harness: HBase) -> None:
    """A duplicate gets its PUBREC: if the first one is given up unrouted, the second one must route."""
    store, caller = harness.store(1)
    store.open()
    batch = [publish(number=1), publish(number=2)]
    stopped(caller, 1)
    with pytest.raises(BackendError), store.group():
        store.append(batch)
    caller.fault = lambda _: Fault.NONE

    assert store.append(batch[1:]) == [Appended((1,))]
    assert store.append([publish(number=3)]) == [Appended((), is_duplicate=True)]


def test_second_of_a_stale_pair_is_stale(harness: HBase) -> None:
    """The publisher was taken over: nothing is written for either."""
    store, _ = harness.store(1)
    store.claim(PUBLISHER, b"next")

    assert store.append([publish(1, 1), publish(1, 2)]) == [Appended((), is_stale=True)] * 2
    assert records(store) == []


def test_message_without_an_id_gets_one(harness: HBase) -> None:
    """Queues know a QoS 2 message again by its id alone."""
    store, _ = harness.store(1)
    delivery = (Delivery(READER, 2),)

    assert store.append([Append(b"", b"b", 0, delivery, Inbound(PUBLISHER, 1, 5))]) == [Appended((1,))]
    assert len(harness.coprocessor.queues[keys.queue_key(READER, TENANT)].ids) == 1


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
