"""Inbound QoS 2 in each driver on a server: intent, append, routed - and what is left when the hub stops between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import pytest
from structlog.testing import capture_logs

from iothub.base.errors import BackendError
from iothub.testing.queue_contract import MANY, made, one
from iothub_services.hbase.calls import Call as HBaseCall
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, Overflow, QueueLimits, QueueStore
from iothub_services.queues.redis.reader_scripts import CLAIM, INTEND, MOVE
from iothub_services.queues.redis.scripts import APPEND
from iothub_services.redis.calls import Call as RedisCall
from tests.support.hbase.hbase_calls import Fault
from tests.support.hbase.hbase_queues import HBase
from tests.support.servers.redis_queues import Fault as RedisFault
from tests.support.servers.redis_queues import RedisHarness

READER, PUBLISHER, OTHER = 1, 2, 3
ON_REDIS = {
    Fault.NONE: RedisFault.NONE,
    Fault.UNSENT: RedisFault.FULL,
    Fault.LOST: RedisFault.LOST_BEFORE,
    Fault.UNANSWERED: RedisFault.LOST_AFTER,
}


class Server(NamedTuple):
    """`hub` opens the store of a hub, by its number. `planned`: what becomes of the next changes of queues, in their order."""

    hub: Callable[[int], QueueStore]
    planned: list[Fault]

    def stop_after(self, changes: int) -> None:
        """No further change leaves the hub."""
        self.planned[:] = [Fault.NONE] * changes + [Fault.UNSENT] * 9


def on_redis() -> Server:
    harness, planned = RedisHarness(), list[Fault]()

    def fault(call: RedisCall) -> RedisFault:
        return ON_REDIS[planned.pop(0)] if planned and call.script in (CLAIM, INTEND, APPEND, MOVE) else RedisFault.NONE

    harness.fault = fault
    return Server(harness.store, planned)


def on_hbase() -> Server:
    harness, planned = HBase(), list[Fault]()

    def fault(call: HBaseCall[object]) -> Fault:
        return planned.pop(0) if planned and call.verb.name == "append" else Fault.NONE

    def hub(number: int) -> QueueStore:
        store, caller = harness.store(number)
        caller.fault = fault
        return store

    return Server(hub, planned)


@pytest.fixture(params=[on_redis, on_hbase])
def server(request: pytest.FixtureRequest) -> Server:
    opened: Server = request.param()
    store = opened.hub(9)
    made(store, READER)
    made(store, PUBLISHER)
    return opened


def publish(number: int = 1, packet_id: int = 77, epoch: int = 1) -> Append:
    return one(READER, number, 2, inbound=Inbound(PUBLISHER, epoch, packet_id))


def fails(store: QueueStore, batch: list[Append]) -> BackendError:
    """Append in a group, as the writer does, in vain."""
    with pytest.raises(BackendError) as failure, store.group():
        store.append(batch)
    return failure.value


def records(store: QueueStore, queue_id: int = READER) -> list[bytes]:
    epoch = store.claim(queue_id, b"reader").epoch
    return [record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records]


@pytest.mark.parametrize(("changes", "is_there"), [(1, False), (2, True)])
def test_claim_finishes_what_was_not_routed(server: Server, changes: int, is_there: bool) -> None:
    """The hub died behind the intent, or behind the append: the next one routes it, once."""
    store, later = server.hub(1), server.hub(2)
    server.stop_after(changes)
    fails(store, [publish()])
    server.planned.clear()
    assert records(later) == ([b"m1"] if is_there else [])

    claim = later.claim(PUBLISHER, b"later")

    assert claim.inbound == (77,)
    assert records(later) == [b"m1"]
    assert later.append([publish(9, epoch=claim.epoch)]) == [Appended((), is_duplicate=True)]
    assert later.claim(PUBLISHER, b"last").inbound == (77,)
    assert records(later) == [b"m1"]


def test_claim_finishes_in_the_order_of_publishing(server: Server) -> None:
    """Packet Identifiers begin anew at 1: receivers get what came first all the same [MQTT-4.6.0-5]."""
    store, later = server.hub(1), server.hub(2)
    server.stop_after(1)
    fails(store, [publish(1, 65_535), publish(2, 1)])
    server.planned.clear()

    assert later.claim(PUBLISHER, b"later").inbound == (1, 65_535)
    assert records(later) == [b"m1", b"m2"]


def test_finished_message_is_as_it_was_sent(server: Server) -> None:
    """For each queue its own QoS, flags and Subscription Identifiers; with its deadline."""
    store, later = server.hub(1), server.hub(2)
    made(store, OTHER)
    deliveries = (Delivery(READER, 2, 1, (5, 9)), Delivery(OTHER, 1, 2))
    server.stop_after(1)
    fails(store, [Append(b"i" * 16, b"body", 99, deliveries, Inbound(PUBLISHER, 1, 77))])
    server.planned.clear()

    later.claim(PUBLISHER, b"later")

    found = []
    for queue_id in (READER, OTHER):
        epoch = later.claim(queue_id, b"reader").epoch
        found += later.read(queue_id, epoch, 0, MANY, MANY).records
    assert [(each.qos, each.flags, each.subscription_ids, each.expires_at_ms, each.body) for each in found] == [
        (2, 1, (5, 9), 99, b"body"),
        (1, 2, (), 99, b"body"),
    ]


def test_finished_message_that_finds_no_room_is_counted_in_the_log(server: Server) -> None:
    """Nobody is there any more who would count it."""
    store, later = server.hub(1), server.hub(2)
    store.set_limits([(READER, QueueLimits(1, 0, Overflow.REJECT))])
    made(store, OTHER, QueueLimits(1, 0, Overflow.DROP_OLDEST))
    made(store, 4)
    store.append([one(READER, 8), one(OTHER, 9)])
    server.stop_after(1)
    fails(
        store,
        [
            Append(
                b"i" * 16, b"b", 0, tuple(Delivery(each, 2) for each in (READER, OTHER, 4)), Inbound(PUBLISHER, 1, 77)
            )
        ],
    )
    server.planned.clear()

    with capture_logs() as lines:
        assert later.claim(PUBLISHER, b"later").inbound == (77,)

    (line,) = [line for line in lines if line["event"] == "QoS 2 messages of an interrupted publisher delivered"]
    assert (line["queue"], line["intents"], line["refused"], line["dropped"]) == (PUBLISHER, 1, 1, 1)


def test_repeat_is_routed_under_the_first_message_id(server: Server) -> None:
    """The hub had given it up: the client's second PUBLISH finds the intent open, and doubles nothing."""
    store = server.hub(1)
    server.stop_after(2)
    fails(store, [publish()])
    server.planned.clear()
    store.idle()

    assert store.append([publish(9)]) == [Appended((1,))]
    assert records(store) == [b"m1"]


@pytest.mark.parametrize("at", range(3))
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED, Fault.UNSENT])
def test_lost_answer_of_any_step_is_repeated(server: Server, at: int, fault: Fault) -> None:
    """Of the intent, the append, or `routed`: the same message again is no duplicate of itself."""
    store = server.hub(1)
    server.planned[:] = [*[Fault.NONE] * at, fault]
    batch = [publish()]
    fails(store, batch)

    with store.group():
        assert store.append(batch) == [Appended((1,))]
    assert records(store) == [b"m1"]
    assert store.claim(PUBLISHER, b"next").inbound == (77,)


@pytest.mark.parametrize(("changes", "is_written"), [(0, False), (1, True), (2, True)])
def test_intent_that_is_there_counts_as_written(server: Server, changes: int, is_written: bool) -> None:
    """Whoever claims finishes it, so the publisher must not be told that its message is nowhere."""
    store = server.hub(1)
    server.stop_after(changes)

    assert fails(store, [publish()]).is_written is is_written


def test_intent_that_may_be_there_counts_as_written(server: Server) -> None:
    """Also when its repeat has not left the hub."""
    store = server.hub(1)
    batch = [publish()]
    server.planned[:] = [Fault.LOST, Fault.UNSENT]
    fails(store, batch)

    assert fails(store, batch).is_written


@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED])
def test_message_for_nobody_is_recorded_once(server: Server, fault: Fault) -> None:
    """Intent and `routed` are one call then; a repeat of it is no duplicate of itself."""
    store = server.hub(1)
    batch = [Append(b"i" * 16, b"b", 0, (), Inbound(PUBLISHER, 1, 5))]
    server.planned[:] = [fault]
    fails(store, batch)
    server.planned[:] = [Fault.NONE, Fault.UNSENT]

    with store.group():
        assert store.append(batch) == [Appended(())]

    assert server.planned == [Fault.UNSENT]
    server.planned.clear()
    assert store.append([Append(b"j" * 16, b"b", 0, (), Inbound(PUBLISHER, 1, 5))]) == [Appended((), is_duplicate=True)]
    assert store.claim(PUBLISHER, b"next").inbound == (5,)


def test_second_of_a_batch_is_no_duplicate_before_the_first_is_routed(server: Server) -> None:
    """A duplicate gets its PUBREC: if the first one is given up unrouted, the second one must route."""
    store = server.hub(1)
    batch = [publish(1), publish(2)]
    server.stop_after(1)
    fails(store, batch)
    server.planned.clear()

    assert store.append(batch[1:]) == [Appended((1,))]
    assert store.append([publish(3)]) == [Appended((), is_duplicate=True)]


def test_second_of_a_stale_pair_is_stale(server: Server) -> None:
    """The publisher was taken over: nothing is written for either."""
    store = server.hub(1)
    store.claim(PUBLISHER, b"next")

    assert store.append([publish(1), publish(2)]) == [Appended((), is_stale=True)] * 2
    assert records(store) == []


def test_messages_of_several_publishers_go_together(server: Server) -> None:
    """Each answer is for its own, stale, repeated or new, beside messages that have no publisher."""
    store = server.hub(1)
    made(store, OTHER)
    store.claim(PUBLISHER, b"next")
    stale, new = publish(1), one(READER, 2, 2, inbound=Inbound(OTHER, 1, 77))
    again = one(READER, 3, 2, inbound=Inbound(OTHER, 1, 77))
    plain = one(READER, 4)

    answers = store.append([stale, new, again, plain])

    assert answers == [Appended((), is_stale=True), Appended((1,)), Appended((), is_duplicate=True), Appended((2,))]
    assert records(store) == [b"m2", b"m4"]


def test_batch_keeps_its_order_whoever_published(server: Server) -> None:
    """Messages with an intent and without one get their positions together, in one round."""
    store = server.hub(1)

    answers = store.append([one(READER, 1), publish(2), one(READER, 3)])

    assert [answer.positions for answer in answers] == [(1,), (2,), (3,)]
    assert records(store) == [b"m1", b"m2", b"m3"]


def test_message_without_an_id_gets_one(server: Server) -> None:
    """Queues know a QoS 2 message again by its id alone: who finishes it doubles nothing."""
    store, later = server.hub(1), server.hub(2)
    server.stop_after(2)
    batch = [
        Append(b"", body, 0, (Delivery(READER, 2),), Inbound(PUBLISHER, 1, packet_id))
        for packet_id, body in ((5, b"a"), (6, b"b"))
    ]
    fails(store, batch)
    server.planned.clear()

    assert later.claim(PUBLISHER, b"later").inbound == (5, 6)
    assert records(later) == [b"a", b"b"]


def test_what_is_routed_is_not_done_again_with_its_group(server: Server) -> None:
    """Something behind it failed: a repeat costs no call for it."""
    store = server.hub(1)
    batch, behind = [publish()], [one(READER, 2)]

    def group() -> list[Appended]:
        with store.group():
            return store.append(batch) + store.append(behind)

    server.planned[:] = [Fault.NONE] * 3 + [Fault.UNSENT]
    with pytest.raises(BackendError):
        group()
    server.planned[:] = [Fault.NONE, Fault.UNSENT]

    assert group() == [Appended((1,)), Appended((2,))]


def test_claim_repeats_what_it_could_not_finish(server: Server) -> None:
    """The store went away while it did: the next claim goes on."""
    store, later = server.hub(1), server.hub(2)
    server.stop_after(1)
    fails(store, [publish()])
    for changes in (0, 1, 2):
        server.stop_after(changes)
        with pytest.raises(BackendError):
            later.claim(PUBLISHER, b"later")
    server.planned.clear()

    assert later.claim(PUBLISHER, b"later").inbound == (77,)
    assert records(later) == [b"m1"]
