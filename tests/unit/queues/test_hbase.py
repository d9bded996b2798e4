"""The queue driver `hbase` on a gateway in memory: what is sent, what is repeated, what is told when something is in the way.

Most of it is what `iothub_services.queues.hbase.append` and `iothub_services.queues.hbase.expiry` do.
"""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.records import keys
from iothub.testing.queue_contract import GONE, MANY, TENANT, identified, made, one, positions
from iothub_services.hbase import thrift
from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase.bodies import LARGE_BYTES, PIECE_BYTES
from iothub_services.queues.hbase.store import HBaseQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Move,
    MoveKind,
    Overflow,
    QueueLimits,
    TenantUsage,
)
from tests.support.hbase.hbase_calls import FakeCaller, Fault
from tests.support.hbase.hbase_gateway import RefusedError
from tests.support.hbase.hbase_queues import TABLES, HBase


def fail(caller: FakeCaller, verb: str, *faults: Fault) -> None:
    """Let the next calls of a verb get these, in this order."""
    planned = list(faults)

    def fault(call: Call[object]) -> Fault:
        return planned.pop(0) if planned and call.verb.name == verb else Fault.NONE

    caller.fault = fault


def bodies(harness: HBase, queue_id: int) -> list[bytes]:
    store, _ = harness.store(99)
    epoch = store.claim(queue_id, b"reader").epoch
    return [record.body for record in store.read(queue_id, epoch, 0, MANY, MANY).records]


def spread(queue_ids: Iterable[int], number: int = 1, body: bytes = b"body", qos: int = 1) -> Append:
    """One message for many queues; those of 1, 2, 3 and 4 lie in different regions."""
    return Append(identified(number), body, 0, tuple(Delivery(queue_id, qos) for queue_id in queue_ids))


def test_table_without_the_coprocessor_is_refused_before_a_queue_looks_lost() -> None:
    """Region servers without the jar: every queue seems to be missing, and the hub would end every session."""
    harness = HBase()
    made(harness.store(1)[0], 1)
    harness.gateway.verbs["getRowWithColumns"] = lambda _arguments: (thrift.LIST, thrift.structs([]))
    store, _ = harness.store(2)

    with pytest.raises(
        BackendError, match=r"4 of 4 regions of test:queues answer without .*; put the iothub-hbase jar"
    ) as caught:
        store.list_queues(TENANT)
    assert not caught.value.retryable


def test_page_of_a_region_without_the_coprocessor_loses_no_queue() -> None:
    """A region server without the jar has taken it over: what it answers says nothing of the queue, and an operator has to see to it."""
    harness = HBase()
    store, _ = harness.store()
    claim = made(store, 1)
    harness.gateway.verbs["getRowWithColumns"] = lambda _arguments: (thrift.LIST, thrift.structs([]))

    with pytest.raises(BackendError, match="answers without the queue coprocessor") as caught:
        store.read(1, claim.epoch, 0, 9, MANY)
    assert not caught.value.retryable


def test_queues_of_a_region_are_one_call() -> None:
    """A batch for eight queues in four regions is four calls, all sent before the first is answered."""
    store, caller = HBase().store()
    for queue_id in range(1, 9):
        made(store, queue_id)
    caller.made.clear()
    before = caller.batches

    store.append([one(queue_id, number) for number in range(1, 4) for queue_id in range(1, 9)])

    assert (caller.made, caller.batches - before) == (["append"] * 4, 1)


def test_lost_answer_is_asked_for_again_and_doubles_nothing() -> None:
    """The region that had done its part tells its first answer; the others are not asked again."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in range(1, 5):
        made(store, queue_id)
    batch = [spread(range(1, 5)), one(2, 2)]
    fail(caller, "append", Fault.NONE, Fault.UNANSWERED)
    with pytest.raises(BackendError) as failure, store.group():
        store.append(batch)
    caller.made.clear()

    with store.group():
        answers = store.append(batch)

    assert (failure.value.retryable, failure.value.is_written) == (True, True)
    assert answers == [Appended((1, 1, 1, 1)), Appended((2,))]
    assert caller.made == ["append"]
    assert [len(bodies(harness, queue_id)) for queue_id in range(1, 5)] == [1, 2, 1, 1]


def test_call_that_never_left_says_so() -> None:
    """Nothing was written for certain: the publisher may be told so, and the message never appears."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    fail(caller, "append", Fault.UNSENT)
    with pytest.raises(BackendError) as failure, store.group():
        store.append([one(1, 1, body=b"given up")])

    assert not failure.value.is_written
    assert store.append([one(1, 2, body=b"next")]) == [Appended((1,))]
    assert bodies(harness, 1) == [b"next"]


def test_uncertain_call_goes_before_what_comes_later() -> None:
    """Its messages were given up; they are settled first all the same, so that no sequence is passed over."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    fail(caller, "append", Fault.LOST)
    with pytest.raises(BackendError) as failure, store.group():
        store.append([one(1, 1, body=b"given up")])

    with store.group():
        assert store.append([one(1, 2, body=b"next")]) == [Appended((2,))]

    assert failure.value.is_written
    assert bodies(harness, 1) == [b"given up", b"next"]


def test_part_of_a_batch_comes_again() -> None:
    """Of two messages one was given up: the other one gets its place in the call that was lost."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    batch = [one(1, 1), one(1, 2)]
    fail(caller, "append", Fault.UNANSWERED)
    with pytest.raises(BackendError), store.group():
        store.append(batch)

    assert store.append(batch[1:]) == [Appended((2,))]
    assert bodies(harness, 1) == [b"m1", b"m2"]


def test_group_that_failed_is_not_done_twice() -> None:
    """Its last verb failed: what was done before it is answered from memory, moves and creations too."""
    harness = HBase()
    store, caller = harness.store()
    claim = made(store, 1)
    batch, again = [one(1, 1)], [one(1, 2)]
    acknowledge = [Move(MoveKind.RESERVE, 1, claim.epoch, 5)]

    def group() -> list[object]:
        with store.group():
            results: list[object] = [store.apply(acknowledge), store.append(batch)]
            store.create(TENANT, 5, QueueLimits())
            results.append(store.append(again))
            results.append(store.claim(1, b"next").epoch)
            return results

    fail(caller, "append", *[Fault.NONE] * 4, Fault.UNSENT)
    with pytest.raises(BackendError):
        group()
    caller.fault = lambda _: Fault.NONE
    caller.made.clear()

    assert group() == [[True], [Appended((1,))], [Appended((2,))], claim.epoch + 1]
    assert caller.made == ["append"]
    with pytest.raises(ConflictError):
        store.create(TENANT, 5, QueueLimits())
    assert store.append(batch) == [Appended((3,))]  # a group that ended well is forgotten


@pytest.mark.parametrize("fault", [Fault.UNANSWERED, Fault.LOST])
def test_claim_and_creation_are_repeated_under_their_token(fault: Fault) -> None:
    """No epoch is skipped, and no queue is said to exist already, for an answer that was lost."""
    store, caller = HBase().store()
    fail(caller, "append", fault)
    with pytest.raises(BackendError):
        store.create(TENANT, 1, QueueLimits(), first_epoch=7)
    store.create(TENANT, 1, QueueLimits(), first_epoch=7)
    fail(caller, "append", fault)
    with pytest.raises(BackendError):
        store.claim(1, b"a")

    assert store.claim(1, b"a").epoch == 7
    assert store.claim(1, b"a").epoch == 8


def test_index_row_is_there_before_the_queue_and_after_it() -> None:
    """The index may name a queue that is not there, never miss one."""
    harness = HBase()
    store, caller = harness.store()
    index = harness.gateway.table(TABLES.queue_index)
    fail(caller, "append", Fault.UNSENT)
    with pytest.raises(BackendError):
        store.create(TENANT, 1, QueueLimits())
    assert list(index) == [keys.index_key(TENANT, 1)]
    assert store.list_queues(TENANT) == []
    assert store.drop_tenant(TENANT) == 0
    assert list(index) == []

    made(store, 1)
    fail(caller, "mutateRows", Fault.UNSENT)
    with pytest.raises(BackendError):
        store.drop(1)
    assert list(index) == [keys.index_key(TENANT, 1)]
    assert store.append([one(1, 1)]) == [Appended((GONE,))]
    assert store.drop(1) == 0


def test_queue_of_another_hub_is_found_by_its_row() -> None:
    """It was made after this hub has read the index; one that is nowhere stays unknown."""
    harness = HBase()
    store, _ = harness.store(1)
    other, caller = harness.store(2)
    other.open()
    claim = made(store, 1)

    assert other.append([one(1, 1), one(2, 2)]) == [Appended((1,)), Appended((GONE,))]
    caller.made.clear()
    assert other.append([one(1, 3)]) == [Appended((2,))]
    assert caller.made == ["append"]
    assert positions(store, 1, claim.epoch) == [1, 2]
    with pytest.raises(NotFoundError):
        other.stats(2)


def test_usage_comes_from_the_states_at_the_start_and_from_answers() -> None:
    """What another hub appended counts once this one is told of that queue."""
    harness = HBase()
    first, _ = harness.store(1)
    made(first, 1)
    made(first, 2)
    first.append([one(1, 1), one(2, 2)])
    second, _ = harness.store(2)
    second.open()
    assert second.tenant_usage(TENANT) == TenantUsage(2, 4)

    first.append([one(1, 3)])
    assert second.tenant_usage(TENANT) == TenantUsage(2, 4)
    second.append([one(1, 4)])
    assert second.tenant_usage(TENANT) == TenantUsage(4, 8)
    assert second.tenant_usage(9) == TenantUsage(0, 0)


def test_wide_and_large_messages_are_stored_apart() -> None:
    """Their bodies are durable before any record refers to them; few small ones are copied."""
    harness = HBase()
    store, caller = harness.store()
    epochs = {queue_id: made(store, queue_id).epoch for queue_id in range(1, 7)}
    stored = harness.gateway.table(TABLES.bodies)
    store.append([spread(epochs, 1, b"x" * 200), spread([1, 2], 2, b"y" * 1000)])
    assert stored == {}
    caller.made.clear()

    wide, large = spread(epochs, 3, b"w" * 1000), one(1, 4, body=b"l" * (PIECE_BYTES + 1))
    store.append([wide, large])

    assert caller.made[0] == "mutateRows"
    assert len(stored) == 2
    for queue_id, epoch in epochs.items():
        after = 2 if queue_id in (1, 2) else 1
        assert store.read(queue_id, epoch, after, 1, MANY).records[0].body == wide.body
    assert store.read(1, epochs[1], 3, 1, MANY).records[0].body == large.body
    assert store.stats(1).bytes == 200 + 1000 + 1000 + PIECE_BYTES + 1


def test_body_that_is_lost_reads_as_nothing() -> None:
    """Whoever decodes it names the position; the records around it come."""
    harness = HBase()
    store, _ = harness.store()
    claim = made(store, 1)
    store.append([one(1, 1), one(1, 2, body=b"l" * (LARGE_BYTES + 1)), one(1, 3)])
    harness.gateway.table(TABLES.bodies).clear()

    assert [record.body for record in store.read(1, claim.epoch, 0, 9, MANY).records] == [b"m1", b"", b"m3"]


def test_damaged_queue_is_dropped_with_its_row_of_the_index() -> None:
    """What it held is not known, and leaves its tenant's sum."""
    harness = HBase()
    store, _ = harness.store()
    made(store, 1)
    made(store, 2)
    store.append([one(1, 1), one(2, 2)])
    harness.coprocessor.damaged.add(keys.queue_key(1, TENANT))

    assert store.drop(1) == 0

    assert harness.gateway.table(TABLES.queue_index).keys() == {keys.index_key(TENANT, 2)}
    assert store.tenant_usage(TENANT).messages == 1


def test_defect_of_the_coprocessor_counts_as_not_written() -> None:
    """It says so: the same request would end the same way, so it is not sent again for ever."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    honest = harness.gateway.verbs["append"]
    text = "org.apache.hadoop.hbase.DoNotRetryIOException: "

    def defect(arguments: dict[int, object]) -> None:
        raise RefusedError(text + text + "defect in the queue coprocessor", 1, False)

    harness.gateway.verbs["append"] = defect
    with pytest.raises(BackendError, match="defect in the queue coprocessor") as failure:
        store.append([one(1, 1, body=b"refused")])
    harness.gateway.verbs["append"] = honest

    assert (failure.value.retryable, failure.value.is_written) == (False, False)
    assert store.append([one(1, 2)]) == [Appended((1,))]
    assert caller.made


def test_probe_writes_where_it_failed() -> None:
    """One region after the other comes back; nothing of it shows."""
    harness = HBase()
    store, caller = harness.store()
    for queue_id in (1, 2):
        made(store, queue_id)
    fail(caller, "append", Fault.LOST, Fault.LOST)
    with pytest.raises(BackendError), store.group():
        store.append([spread([1, 2])])
    fail(caller, "append", Fault.NONE, Fault.UNSENT)
    with pytest.raises(BackendError, match="it never leaves"):
        store.probe()
    caller.fault = lambda _: Fault.NONE
    caller.made.clear()

    store.probe()
    store.probe()

    assert caller.made.count("append") == 4  # one region: the queue of nobody is looked for, then made; then there
    assert store.list_queues(0) == []


def test_tenant_at_its_bound_costs_one_round() -> None:
    """What does not fit goes out together; it is refused in the order of the batch."""
    store, caller = HBase().store()
    for queue_id in range(1, 5):
        made(store, queue_id, QueueLimits(0, 0, Overflow.REJECT))
    store.set_tenant_limits(TENANT, 3, 0)
    before = caller.batches

    answers = store.append([spread(range(1, 5), 1), spread(range(1, 5), 2)])

    assert answers == [Appended((1, 1, 1, -1)), Appended((-1,) * 4)]
    assert answers[1].hit == ("queued_messages",) * 4
    assert caller.batches - before == 2


def test_records_of_one_queue_are_split_over_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """An operation takes so many records and no more; order is kept."""
    monkeypatch.setattr("iothub_services.queues.hbase.requests.MOST_RECORDS", 3)
    store, caller = HBase().store()
    claim = made(store, 1)
    before = caller.batches

    answers = store.append([one(1, number) for number in range(1, 9)])

    assert [answer.positions for answer in answers] == [(number,) for number in range(1, 9)]
    assert positions(store, 1, claim.epoch) == list(range(1, 9))
    assert caller.batches - before == 4


def test_calls_and_pages_stay_below_the_frame_limit() -> None:
    """Half of it is for what is not a body."""
    harness = HBase()
    caller = FakeCaller(harness.gateway)
    store = HBaseQueues(caller, TABLES, 1, harness.clock, frame_bytes=100_000)
    claim = made(store, 1)
    made(store, 5)
    caller.made.clear()
    sizes: list[int] = []

    def fault(call: Call[object]) -> Fault:
        sizes.append(call.size)
        return Fault.NONE

    caller.fault = fault
    store.append([one(queue_id, number, body=b"x" * 20_000) for number in range(1, 6) for queue_id in (1, 5)])

    assert max(sizes) < 60_000
    assert len(store.read(1, claim.epoch, 0, 9, MANY).records) == 3
    assert positions(harness.store(2)[0], 1, claim.epoch) == [1, 2, 3, 4, 5]


def test_forgotten_messages_take_their_call_along() -> None:
    """Nobody asks for them any more, and memory is bounded: what comes next does not wait for them."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    made(store, 2)
    store._appending.repeats._most = 1
    fail(caller, "append", Fault.LOST, Fault.UNSENT)
    for queue_id in (1, 2):
        with pytest.raises(BackendError), store.group():
            store.append([one(queue_id, 1, body=b"given up")])

    assert store.append([one(1, 3)]) == [Appended((1,))]
    assert bodies(harness, 1) == [b"m3"]


def test_what_was_given_up_is_forgotten_when_nobody_writes() -> None:
    """A writer's thread that is idle repeats nothing: what was never acknowledged is not stored hours later."""
    harness = HBase()
    store, caller = harness.store()
    made(store, 1)
    fail(caller, "append", Fault.LOST)
    with pytest.raises(BackendError), store.group():
        store.append([one(1, 1, body=b"given up")])

    assert not store.idle()

    assert store.append([one(1, 2)]) == [Appended((1,))]
    assert bodies(harness, 1) == [b"m2"]


def test_expiry_goes_through_all_regions_in_the_order_of_deadlines() -> None:
    """A page of it looks at so many records, whichever regions they are in."""
    store, _ = HBase().store()
    for queue_id in range(1, 5):
        made(store, queue_id)
    store.append([one(queue_id, queue_id, expires_at_ms=100 - queue_id) for queue_id in range(1, 5)])

    first = store.expire(98, 2)
    assert [record.queue_id for record in first.removed] == [4, 3]
    assert first.after is not None
    rest = store.expire(98, 9, first.after)
    assert [record.queue_id for record in rest.removed] == [2]
    assert rest.after is None
    assert store.tenant_usage(TENANT) == TenantUsage(1, 2)
