"""Driver `hbase-plain` beside rows of a newer program: one queue's do not hold up what is asked of many, and nobody takes it for gone.

What is tried is in `iothub_services.queues.hbase_plain.reading` and `iothub_services.queues.hbase_plain.log`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub.testing.queue_contract import MANY, TENANT, made, moved, one, positions
from iothub_services.queues.hbase_plain.appending import ROW_BYTES
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from iothub_services.queues.memory import MemoryQueues
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    MoveKind,
    Overflow,
    QueueLimits,
    Refused,
    UnreadableQueueError,
)
from iothub_services.queues.several import SeveralQueues
from tests.support.hbase_calls import Fault
from tests.support.hbase_plain import PlainHBase

_POLLS = 8  # in one of so many a queue's meta row is looked at, too


class House(PlainHBase):
    """Queues 1 and 2 of this hub, of which another, newer one may write more."""

    def __init__(self) -> None:
        super().__init__()
        self.here, _ = self.store(1)
        self.epochs = {queue_id: made(self.here, queue_id).epoch for queue_id in (1, 2)}
        self.newer, _ = self.store(2)

    def spoil(self, queue_id: int, position: int) -> None:
        """Give a row the version of a newer program."""
        self._spoil(keys.record_row(keys.queue_key(queue_id, TENANT), position), b"d:b")

    def spoil_meta(self, queue_id: int) -> None:
        self._spoil(keys.meta_row(keys.queue_key(queue_id, TENANT)), b"m:s")

    def _spoil(self, row: bytes, column: bytes) -> None:
        value, time = self.rows[row][column]
        self.rows[row][column] = (b"\7" + value[1:], time)

    def append(self, *queue_ids: int) -> None:
        for queue_id in queue_ids:
            self.newer.append([one(queue_id, 1)])

    def restarted(self) -> PlainHBaseQueues:
        return self.store(3)[0]


def unreadable_at(store: PlainHBaseQueues, queue_id: int, epoch: int, after: int) -> tuple[list[int], int | None]:
    page = store.read(queue_id, epoch, after, 10, MANY)
    return [record.position for record in page.records], page.unreadable and page.unreadable.position


def test_row_of_a_newer_hub_blinds_no_other_session() -> None:
    """Tails of all are told; that of the one goes beyond the row, so its session reads, and finds out what it stands still before."""
    house = House()
    house.append(1, 2)
    house.spoil(1, 1)

    assert house.here.tails([1, 2]) == {1: 1, 2: 1}
    assert positions(house.here, 2, house.epochs[2]) == [1]
    assert unreadable_at(house.here, 1, house.epochs[1], 0) == ([], 1)


def test_row_of_a_newer_hub_far_behind_the_known_tail_blinds_no_other_session() -> None:
    """More rows came than are looked for one by one."""
    house = House()
    house.append(*[1] * 9, *[2] * 9)
    house.spoil(1, 9)

    for _ in range(_POLLS):
        assert house.here.tails([1, 2]) == {1: 9, 2: 9}


def test_meta_row_of_a_newer_hub_blinds_no_other_session() -> None:
    """Its session reads and is told."""
    house = House()
    house.append(2)
    assert moved(house.newer, MoveKind.RESERVE, 1, house.epochs[1], 1)
    house.spoil_meta(1)

    found = [house.here.tails([1, 2]) for _ in range(_POLLS)]

    assert {tails[2] for tails in found} == {1}
    assert max(tails[1] for tails in found) == 1
    with pytest.raises(CorruptRecordError, match="meta row"):
        house.here.read(1, house.epochs[1], 0, 10, MANY)


def test_queue_that_is_gone_has_no_tail_though_a_row_is_left() -> None:
    """A newer hub died while it dropped it."""
    house = House()
    house.append(1, 2)
    house.spoil(1, 1)
    del house.rows[keys.meta_row(keys.queue_key(1, TENANT))]

    found = [house.here.tails([1, 2]) for _ in range(_POLLS)]

    assert {2: 1} in found


@pytest.mark.parametrize("what", ["row", "meta row"])
def test_queue_that_is_not_loaded_blinds_no_other_session(what: str) -> None:
    """It was forgotten to save memory, or the hub has been started again. Its row's place is its tail."""
    house = House()
    house.append(1, 1, 2)
    house.spoil(1, 2) if what == "row" else house.spoil_meta(1)
    store = house.restarted()

    assert store.tails([1, 2]) == {1: 2 if what == "row" else 0, 2: 1}


@pytest.mark.parametrize("what", ["row", "meta row"])
def test_queue_that_cannot_be_read_is_not_taken_for_gone(what: str) -> None:
    """A publish to a queue that is gone is acknowledged: here it must not be."""
    house = House()
    house.append(1)
    house.spoil(1, 1) if what == "row" else house.spoil_meta(1)
    several = SeveralQueues({"hbase-plain": house.restarted(), "memory": MemoryQueues()}, "hbase-plain", "memory")

    (answer,) = several.append([one(1, 9)])

    assert answer.positions == (Refused.UNREADABLE,)
    ((queue_id, found),) = answer.unreadable
    assert (queue_id, found.position) == (1, 1 if what == "row" else 0)
    assert "version 7" in found.why


def test_tail_that_cannot_be_read_is_found_while_something_is_on_its_way() -> None:
    """Its slot is one of the past by now, so the end of the queue is looked for: that costs this queue's message alone."""
    house = House()
    house.append(1, 1, 1)
    assert moved(house.newer, MoveKind.ACK, 1, house.epochs[1], 2)
    house.spoil(1, 3)

    broken, whole = house.here.append([one(1, 8), one(2, 9)])

    assert (broken.positions, whole.positions) == ((Refused.UNREADABLE,), (1,))
    assert [(queue_id, found.position) for queue_id, found in broken.unreadable] == [(1, 3)]


def test_queue_that_turned_out_to_be_unreadable_is_not_written_to_again() -> None:
    """Nothing is known of where it ends: it is read anew first."""
    house = House()
    store, caller = house.store(3)
    store.append([one(1, 1)])
    house.spoil_meta(1)
    assert store.append([one(1, 2), one(1, 3)])[1].positions == (Refused.UNREADABLE,)
    caller.made.clear()

    (answer,) = store.append([one(1, 4)])

    assert answer.positions == (Refused.UNREADABLE,)
    assert "checkAndPut" not in caller.made


class TurningOut:
    """Queue 1 turns out to be unreadable while something is on its way into it: a newer hub was faster.

    Queue 3 is full: what it gets waits for that.
    """

    def __init__(self) -> None:
        self.house = House()
        self.store, self.caller = self.house.store(3)
        self.store.create(TENANT, 3, QueueLimits(1, 0, Overflow.DROP_OLDEST))
        self.store.append([one(3, 1), one(1, 7, qos=2)])
        self.house.append(1)
        self.house.spoil(1, 2)

    def puts(self) -> int:
        return self.caller.made.count("checkAndPut")

    def append(self, *batch: Append) -> list[tuple[int, ...]]:
        self.caller.made.clear()
        return [answer.positions for answer in self.store.append(list(batch))]


def test_nothing_more_of_a_call_is_written_into_a_queue_that_turned_out_to_be_unreadable() -> None:
    """Its rows are not known any more. What it has already is told, and no queue behind it is kept from its message."""
    refused = (int(Refused.UNREADABLE),)
    alone = TurningOut()
    assert alone.append(one(1, 8), one(3, 2)) == [refused, (2,)]
    turning = TurningOut()

    told = turning.append(one(1, 8), one(3, 2), one(1, 9), one(1, 7, qos=2), one(1, 10, qos=0))

    assert told == [refused, (2,), refused, (1,), refused]
    assert turning.puts() == alone.puts()


def test_what_waits_behind_a_row_of_a_queue_that_turned_out_to_be_unreadable_is_refused_with_it() -> None:
    """They are too many for one: the second one is not tried, and the queue is read anew before anything else is."""
    alone, turning = TurningOut(), TurningOut()
    batch = [Append(b"", b"x" * 8_192, 0, (Delivery(1, 1),)) for _ in range(2 * ROW_BYTES // 8_192)]
    alone.append(batch[0])

    assert turning.append(*batch) == [(int(Refused.UNREADABLE),)] * len(batch)
    assert turning.puts() == alone.puts()
    assert turning.append(one(1, 11)) == [(int(Refused.UNREADABLE),)]
    assert turning.puts() == 0


def test_repeat_of_what_is_before_an_unreadable_row_is_told_its_position() -> None:
    """What is behind that row is not known: a new message may be a repeat, too, and is refused."""
    house = House()
    house.newer.append([one(1, 1, qos=2)])
    house.newer.append([one(1, 2, qos=2)])
    house.append(1)
    house.newer.append([one(1, 4)])
    house.spoil(1, 3)
    store, caller = house.store(3)
    asked = [one(1, 9, qos=2), one(1, 2, qos=2), *[one(1, number, qos=2) for number in range(10, 40)]]

    first, known, *others = store.append(asked)

    refused = (int(Refused.UNREADABLE),)
    assert (first.positions, known.positions, {each.positions for each in others}) == (refused, (2,), {refused})
    assert caller.batches < 12


def test_repeat_for_whoever_s_own_queue_turned_out_to_be_unreadable_says_that_it_is_noted() -> None:
    """The intent was written by the attempt before, so what its publisher sends next is for that one's queues until it is finished."""
    house = House()
    store, caller = house.store(3)
    store.append([one(2, 1)])
    message = Append(bytes(16), b"x", 0, (Delivery(2, 2),), Inbound(1, house.epochs[1], 5))
    fails = keys.record_row(keys.queue_key(2, TENANT), 2)
    caller.fault = lambda call: Fault.UNSENT if fails in call.frame(1) else Fault.NONE
    with pytest.raises(BackendError), store.group():
        store.append([message])
    caller.fault = lambda _: Fault.NONE
    house.spoil_meta(1)
    store._log.release([1])

    with store.group():
        noted, new = store.append([message, replace(message, inbound=Inbound(1, house.epochs[1], 6))])

    assert (noted.positions, noted.is_noted) == ((Refused.UNREADABLE,), True)
    assert (new.positions, new.is_noted) == ((Refused.UNREADABLE,), False)


def test_sums_are_read_beside_a_queue_that_cannot_be() -> None:
    """After the start, of all queues, when nobody writes."""
    house = House()
    house.append(1, 2)
    house.spoil(1, 1)
    store = house.restarted()

    while store.idle():
        pass

    assert store.tenant_usage(TENANT).messages == 1
    assert store.append([one(2, 2)]) == [Appended((2,))]


def test_gateway_that_does_not_answer_is_told() -> None:
    """What is no damage is no queue's."""
    house = House()
    house.append(1)
    store, caller = house.store(3)
    caller.fault = lambda _: Fault.UNSENT

    with pytest.raises(BackendError) as caught:
        store.tails([1, 2])
    assert not isinstance(caught.value, UnreadableQueueError)


def test_queue_that_cannot_be_read_to_its_end_is_listed_and_shown() -> None:
    """With what is before that: `queue list` and `session list` are of a whole tenant."""
    house = House()
    house.append(1, 1, 1, 2)
    assert moved(house.newer, MoveKind.ACK, 1, house.epochs[1], 1)
    house.spoil(1, 3)
    store = house.restarted()

    listed = {stats.queue_id: (stats.head, stats.tail, stats.messages) for stats in store.list_queues(TENANT)}

    assert listed == {1: (1, 2, 1), 2: (0, 1, 1)}
    stats = store.stats(1)
    assert (stats.head, stats.tail, stats.messages, stats.bytes) == (1, 2, 1, 2)
    assert unreadable_at(store, 1, stats.epoch, stats.head) == ([2], 3)


def test_queue_of_which_no_row_can_be_read_is_listed_and_shown() -> None:
    """More rows than are looked at to find one that can be; a sum is never below zero."""
    house = House()
    house.newer.append([one(1, 1), one(1, 2)])
    assert moved(house.newer, MoveKind.ACK, 1, house.epochs[1], 1)
    house.append(*[1] * 12)
    for position in (1, *range(3, 15)):
        house.spoil(1, position)
    store = house.restarted()

    assert [stats.queue_id for stats in store.list_queues(TENANT)] == [1, 2]
    stats = store.stats(1)
    assert (stats.head, stats.messages, stats.bytes) == (1, 0, 0)
    assert unreadable_at(store, 1, stats.epoch, stats.head) == ([], 2)


def test_many_rows_before_one_that_cannot_be_read_are_read_in_few_round_trips() -> None:
    """By a hub that has not loaded the queue."""
    house = House()
    house.append(*[1] * 20)
    house.spoil(1, 20)
    store, caller = house.store(3)

    page = store.read(1, house.epochs[1], 0, 100, MANY)

    assert [record.position for record in page.records] == list(range(1, 20))
    assert caller.batches < 12
    assert store.append([one(1, 21)])[0].unreadable[0][1].position == 20


def test_queue_whose_meta_row_cannot_be_read_is_listed_all_the_same() -> None:
    """Nothing else is known of it, but it is not gone: a start ends the sessions of those that are."""
    house = House()
    house.append(2)
    house.spoil_meta(1)
    store = house.restarted()

    listed = store.list_queues(TENANT)

    assert [(stats.queue_id, stats.tenant_id, stats.tail) for stats in listed] == [(1, TENANT, 0), (2, TENANT, 1)]
    assert [stats.unreadable[:42] for stats in listed] == ["queue 1: meta row of a queue of format ver", ""]
    with pytest.raises(UnreadableQueueError, match="queue 1: meta row of a queue of format version 7"):
        store.stats(1)


@pytest.mark.parametrize("what", ["row", "meta row"])
def test_tenant_is_dropped_with_a_queue_that_cannot_be_read(what: str) -> None:
    """After a restart, too: queues are only counted."""
    house = House()
    house.append(1, 2)
    house.spoil(1, 1) if what == "row" else house.spoil_meta(1)
    store = house.restarted()

    assert store.drop_tenant(TENANT) == 2
    assert house.rows == {}
    assert store.list_queues(TENANT) == []


@pytest.mark.parametrize("is_restarted", [False, True])
def test_last_batch_that_cannot_be_read_is_dropped_but_not_purged(is_restarted: bool) -> None:
    """How many positions it has is not known, and none may be issued twice: the guide says so, and names the other way out."""
    house = House()
    house.append(1)
    house.spoil(1, 1)
    store = house.restarted() if is_restarted else house.here

    if is_restarted:
        with pytest.raises(UnreadableQueueError, match="version 7"):
            store.purge(1)
    else:
        assert store.purge(1) == 0
    assert unreadable_at(store, 1, house.epochs[1], 0) == ([], 1)

    store.drop(1)
    assert store.tails([1, 2]) == {2: 0}
