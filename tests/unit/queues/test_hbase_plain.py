"""The queue driver `hbase-plain` without a server: lost answers, other hubs at the same queues.

What is tried of appends is in `iothub_services.queues.hbase_plain.appending` and `iothub_services.queues.hbase_plain.inbound`, of readers in
`iothub_services.queues.hbase_plain.moves`, `iothub_services.queues.hbase_plain.reading` and `iothub_services.queues.hbase_plain.expiry`; all of
them call HBase by `iothub_services.queues.hbase_plain.log`.
"""

from __future__ import annotations

from itertools import count

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.records import keys
from iothub.testing.queue_contract import GONE, MANY, TENANT, identified, made, moved, one, positions
from iothub_services.hbase.calls import Call
from iothub_services.queues.hbase_plain.meta import intent_column, remembered_rows
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from iothub_services.queues.port import Append, Appended, Inbound, Move, MoveKind, Overflow, Page, QueueLimits, Refused
from tests.support.hbase_calls import FakeCaller, Fault
from tests.support.hbase_plain import TABLES, PlainHBase


def lose(caller: FakeCaller, verb: str, fault: Fault, count: int = 1) -> None:
    """Let the next calls of a verb go wrong."""
    left = [count]

    def happens(call: Call[object]) -> Fault:
        if call.verb.name != verb or not left[0]:
            return Fault.NONE
        left[0] -= 1
        return fault

    caller.fault = happens


def refused(store: PlainHBaseQueues, batch: list[Append]) -> BackendError:
    with pytest.raises(BackendError) as caught:
        store.append(batch)
    return caught.value


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.LOST, Fault.UNANSWERED])
@pytest.mark.parametrize("verb", ["checkAndPut", "getRowWithColumns"])
def test_repeated_append_gets_its_first_positions(fault: Fault, verb: str) -> None:
    """Whether the batch was written or not, and whichever answer was lost."""
    store, caller = PlainHBase().store()
    claim = made(store, 1)
    batch = [one(1, 1), one(1, 2), one(1, 2)]
    lose(caller, verb, fault)

    error = refused(store, batch)

    assert error.retryable
    assert error.is_written == (verb != "checkAndPut" or fault is not Fault.UNSENT)
    assert store.append(batch) == [Appended((1,)), Appended((2,)), Appended((3,))]
    assert positions(store, 1, claim.epoch) == [1, 2, 3]
    assert store.tenant_usage(TENANT) == (3, 6)


def test_repeated_append_that_was_consumed_meanwhile_gets_its_first_positions() -> None:
    """Another hub has read, acknowledged and deleted the row whose answer was lost: the meta row remembers its writer."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    made(store, 1)
    batch = [one(1, 1), one(1, 2)]
    lose(caller, "checkAndPut", Fault.UNANSWERED)
    refused(store, batch)
    other, _ = hbase.store(2)
    epoch = other.claim(1, b"other").epoch
    assert moved(other, MoveKind.ACK, 1, epoch, 2)

    assert store.append(batch) == [Appended((1,)), Appended((2,))]
    assert positions(other, 1, epoch) == []
    assert other.append([one(1, 3)]) == [Appended((3,))]


def test_append_that_lands_in_the_past_is_written_again() -> None:
    """The slot was another hub's, read, acknowledged and deleted: what was put there now would never be read."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    other, _ = hbase.store(2)
    other.append([one(1, 1)])
    epoch = other.claim(1, b"other").epoch
    moved(other, MoveKind.ACK, 1, epoch, 1)

    assert store.append([one(1, 2)]) == [Appended((2,))]
    assert positions(other, 1, epoch) == [2]
    store.idle()
    assert keys.record_row(keys.queue_key(1, TENANT), 1) not in hbase.rows


def test_append_that_was_given_up_is_looked_for_before_the_next() -> None:
    """Its row counts if it was written; if not, nobody writes it any more."""
    for fault, following in ((Fault.UNANSWERED, 2), (Fault.LOST, 1)):
        store, caller = PlainHBase().store()
        claim = made(store, 1)
        lose(caller, "checkAndPut", fault)
        refused(store, [one(1, 1)])

        assert store.append([one(1, 2)]) == [Appended((following,))]
        assert positions(store, 1, claim.epoch) == list(range(1, following + 1))
        assert store.tenant_usage(TENANT).messages == following


def test_append_that_was_given_up_is_looked_for_when_nobody_writes() -> None:
    """Then the sums are right again, and nothing of it is kept."""
    for fault, stored in ((Fault.UNANSWERED, 1), (Fault.LOST, 0), (Fault.UNSENT, 0)):
        store, caller = PlainHBase().store()
        claim = made(store, 1)
        batch = [one(1, 1)]
        lose(caller, "checkAndPut", fault)
        refused(store, batch)

        while store.idle():
            pass

        assert store.tenant_usage(TENANT).messages == stored
        assert positions(store, 1, claim.epoch) == list(range(1, stored + 1))
        assert len(store._appending.repeats) == 0


def test_failure_of_one_queue_is_not_repeated_for_the_others() -> None:
    """What was placed is not placed again, and a queue that nobody appends to now cannot fail the others."""
    store, caller = PlainHBase().store()
    claims = {queue_id: made(store, queue_id) for queue_id in (1, 2, 3)}
    batch = [one(1, 1), one(2, 2), one(3, 3)]
    lose(caller, "checkAndPut", Fault.UNSENT)
    refused(store, batch)
    assert [store.stats(queue_id).messages for queue_id in (1, 2, 3)] == [0, 1, 1]

    assert store.append([one(2, 4)]) == [Appended((2,))]
    assert store.append(batch) == [Appended((1,))] * 3
    assert [len(positions(store, queue_id, claims[queue_id].epoch)) for queue_id in (1, 2, 3)] == [1, 2, 1]


def test_group_that_failed_is_repeated_without_doing_twice_what_was_done() -> None:
    """Creation, append and moves before the failure come again with the same objects."""
    store, caller = PlainHBase().store()
    batch = [one(1, 1)]

    def do() -> list[Appended]:
        with store.group():
            store.create(TENANT, 1, QueueLimits())
            answers = store.append(batch)
            lose(caller, "scannerOpenWithScan", Fault.UNSENT, 1 - len(failures))
            store.list_queues(TENANT)
        return answers

    failures: list[BackendError] = []
    with pytest.raises(BackendError) as caught:
        do()
    failures.append(caught.value)

    assert do() == [Appended((1,))]
    assert store.stats(1).messages == 1


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.LOST, Fault.UNANSWERED])
def test_moves_and_claims_are_done_whatever_is_lost(fault: Fault) -> None:
    """A swap without an answer is looked for; a claim is made anew if it must."""
    store, caller = PlainHBase().store()
    claim = made(store, 1)
    store.append([one(1, number) for number in range(1, 5)])
    moves = [Move(MoveKind.ACK, 1, claim.epoch, 2), Move(MoveKind.RESERVE, 1, claim.epoch, 9)]
    lose(caller, "checkAndPut", fault)
    if fault is Fault.UNSENT:
        with pytest.raises(BackendError):
            store.apply(moves)

    assert store.apply(moves) == [True, True]
    lose(caller, "checkAndPut", fault)
    if fault is Fault.UNSENT:
        with pytest.raises(BackendError):
            store.claim(1, b"b")
    second = store.claim(1, b"b")
    assert (second.head, second.reserved, second.tail) == (2, 9, 4)
    assert second.epoch > claim.epoch


@pytest.mark.parametrize("fault", [Fault.UNSENT, Fault.LOST, Fault.UNANSWERED])
def test_creation_is_repeated_by_whoever_made_it(fault: Fault) -> None:
    """A first meta row whose answer was lost is recognised; another hub's is not."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    lose(caller, "checkAndPut", fault)
    with pytest.raises(BackendError):
        store.create(TENANT, 1, QueueLimits())

    store.create(TENANT, 1, QueueLimits())

    with pytest.raises(ConflictError):
        store.create(TENANT, 1, QueueLimits())
    other, _ = hbase.store(2)
    with pytest.raises(ConflictError):
        other.create(TENANT, 1, QueueLimits())


def test_inbound_that_is_open_is_finished_by_the_next_claim() -> None:
    """The hub died between the append and the word that it was routed; the reader had acknowledged it before (!)."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    reader, publisher = made(store, 1), made(store, 2)
    item = one(1, 1, qos=2, inbound=Inbound(2, publisher.epoch, 77))
    dying, caller = hbase.store(2)
    swaps = count(1)
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "checkAndPut" and next(swaps) > 2 else Fault.NONE
    refused(dying, [item])
    assert store.tails([1]) == {1: 1}
    moved(store, MoveKind.ACK, 1, reader.epoch, 1)

    claim = store.claim(2, b"later")

    assert claim.inbound == (77,)
    assert store.stats(1).tail == 1
    repeated = one(1, 2, qos=2, inbound=Inbound(2, claim.epoch, 77))
    assert store.append([repeated]) == [Appended((), is_duplicate=True)]


def test_open_inbound_is_finished_in_the_order_of_publishing() -> None:
    """Packet Identifiers begin anew at 1: receivers get what came first all the same [MQTT-4.6.0-5]."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    reader, publisher = made(store, 1), made(store, 2)
    swaps = count(1)
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "checkAndPut" and next(swaps) > 1 else Fault.NONE
    inbound = [Inbound(2, publisher.epoch, packet_id) for packet_id in (65_535, 1)]
    refused(store, [one(1, number, qos=2, inbound=each) for number, each in enumerate(inbound, 1)])
    other, _ = hbase.store(2)

    assert other.claim(2, b"later").inbound == (1, 65_535)
    assert [record.body for record in other.read(1, reader.epoch, 0, MANY, MANY).records] == [b"m1", b"m2"]


def test_inbound_without_its_message_is_given_back() -> None:
    """Nothing but the meta row is left of it: it was never answered, so the client sends it again."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    reader, publisher = made(store, 1), made(store, 2)
    swaps = count(1)
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "checkAndPut" and next(swaps) > 1 else Fault.NONE
    refused(store, [one(1, 1, qos=2, inbound=Inbound(2, publisher.epoch, 77))])
    del hbase.rows[keys.meta_row(keys.queue_key(2, TENANT))][intent_column(77)]
    other, _ = hbase.store(2)

    assert other.claim(2, b"later").inbound == ()
    assert positions(other, 1, reader.epoch) == []


def test_ids_are_remembered_for_a_day() -> None:
    """The rows of acknowledged QoS 2 ids go when they are old, at the next acknowledgement or claim."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    claim = made(store, 1)
    prefix = remembered_rows(keys.queue_key(1, TENANT))

    def remembered() -> list[bytes]:
        return [key[len(prefix) :] for key in sorted(hbase.rows) if key.startswith(prefix)]

    for number in (1, 2):
        store.append([one(1, number, qos=2)])
        moved(store, MoveKind.ACK, 1, claim.epoch, number)
        hbase.clock.advance(50_000)
    assert remembered() == [identified(1), identified(2)]

    store.append([one(1, 3, qos=2)])
    moved(store, MoveKind.ACK, 1, claim.epoch, 3)
    assert remembered() == [identified(2), identified(3)]
    hbase.clock.advance(90_000)
    other, _ = hbase.store(2)
    other.claim(1, b"b")
    assert remembered() == []


def test_restarted_hub_goes_on_with_limits_and_ids() -> None:
    """Sums come from two rows, ids of QoS 2 from all of them, once."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1, QueueLimits(3, 0, Overflow.DROP_OLDEST))
    store.append([one(1, 1, qos=2), one(1, 2)])
    restarted, _ = hbase.store(2)

    answers = restarted.append([one(1, 1, qos=2), one(1, 3), one(1, 4)])

    assert answers == [Appended((1,)), Appended((3,)), Appended((4,), dropped=((1, 1),))]
    assert not restarted.exact_limits


def test_long_batch_becomes_rows_that_fit_a_page() -> None:
    """Many rows in order, read page by page, by a hub that has not seen them."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    batch = [one(1, number, body=b"x" * 60_000) for number in range(1, 201)]
    assert [answer.positions[0] for answer in store.append(batch)] == list(range(1, 201))
    other, _ = hbase.store(2)
    epoch = other.claim(1, b"b").epoch

    found: list[int] = []
    is_short, upto = False, 0
    while not is_short:
        page = other.read(1, epoch, upto, 33, MANY)
        found += [record.position for record in page.records]
        upto, is_short = page.upto, page.is_short

    assert found == list(range(1, 201))
    assert max(len(cells[b"d:b"][0]) for cells in hbase.rows.values() if b"d:b" in cells) < 300_000


def test_tails_are_found_that_other_hubs_have_moved() -> None:
    """One row further, many rows further, and within some polls beyond rows that are gone."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    for queue_id in (1, 2, 3):
        made(store, queue_id)
    other, _ = hbase.store(2)
    claims = {queue_id: other.claim(queue_id, b"b") for queue_id in (1, 2, 3)}
    other.append([one(1, 1)])
    for number in range(1, 11):
        other.append([one(2, number), one(3, number)])
    moved(other, MoveKind.ACK, 3, claims[3].epoch, 10)

    assert store.tails([1, 2]) == {1: 1, 2: 10}
    assert {store.tails([3])[3] for _ in range(8)} == {0, 10}
    assert store.append([one(2, 99)]) == [Appended((11,))]


def test_record_of_the_future_is_refused_by_name() -> None:
    """Never misread: neither a batch nor a meta row."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    claim = made(store, 1)
    store.append([one(1, 1)])
    row = keys.record_row(keys.queue_key(1, TENANT), 1)
    value, time = hbase.rows[row][b"d:b"]
    hbase.rows[row][b"d:b"] = (b"\2" + value[1:], time)

    found = store.read(1, claim.epoch, 0, 10, MANY)
    assert (found.records, found.upto, found.is_short) == ([], 0, False)
    assert found.unreadable is not None
    assert found.unreadable.why.startswith("queue 1: batch of queued records of format version 2")
    hbase.rows[keys.meta_row(keys.queue_key(1, TENANT))][b"m:s"] = (b"\7", 0)
    ((_, refused_by),) = hbase.store(2)[0].append([one(1, 2)])[0].unreadable
    assert "meta row of a queue of format version 7" in refused_by.why


def test_rows_that_are_lost_do_not_stop_the_others() -> None:
    """HBase has lost one in the middle: the reader goes on behind it, and the head passes it."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    for number in range(1, 4):
        store.append([one(1, number)])
    del hbase.rows[keys.record_row(keys.queue_key(1, TENANT), 2)]
    other, _ = hbase.store(2)
    epoch = other.claim(1, b"b").epoch

    assert positions(other, 1, epoch) == [1, 3]
    assert moved(other, MoveKind.ACK, 1, epoch, 3)
    assert other.stats(1).messages == 0
    assert other.append([one(1, 4)]) == [Appended((4,))]


def test_late_write_to_a_queue_that_was_made_anew_is_nobodys() -> None:
    """A row of the predecessor in the next slot is overwritten, one behind it is removed."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    store.append([one(1, 1), one(1, 2)])
    row = keys.record_row(keys.queue_key(1, TENANT), 1)
    late = dict(hbase.rows[row])
    store.drop(1)
    claim = made(store, 1)
    hbase.rows[row] = dict(late)
    assert store.read(1, claim.epoch, 0, 10, MANY) == Page([], 0, True)

    assert store.append([one(1, 3)]) == [Appended((1,))]
    (record,) = store.read(1, claim.epoch, 0, 10, MANY).records
    assert record.body == b"m3"
    hbase.rows[keys.record_row(keys.queue_key(1, TENANT), 9)] = {b"d:b": _at(late[b"d:b"], 9)}
    other, _ = hbase.store(2)
    assert other.append([one(1, 4)]) == [Appended((2,))]
    assert keys.record_row(keys.queue_key(1, TENANT), 9) not in hbase.rows


def _at(cell: tuple[bytes, int], first: int) -> tuple[bytes, int]:
    """Move a batch."""
    value, time = cell
    return value[:25] + first.to_bytes(8) + value[33:], time


def test_many_queues_are_written_in_few_round_trips() -> None:
    """Puts of all queues go together, and so do their meta rows."""
    store, caller = PlainHBase().store()
    for queue_id in range(1, 101):
        made(store, queue_id)
    caller.batches, caller.made = 0, []

    store.append([one(queue_id, queue_id) for queue_id in range(1, 101)])

    assert caller.batches == 2
    assert caller.made == ["checkAndPut"] * 100 + ["getRowsWithColumns"]


def test_full_queue_takes_messages_again_when_another_hub_has_made_room() -> None:
    """What this hub knows of the head may be old: it looks before it refuses."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1, QueueLimits(2, 0, Overflow.REJECT))
    assert [answer.positions[0] for answer in store.append([one(1, number) for number in (1, 2, 3)])] == [1, 2, -1]
    other, _ = hbase.store(2)
    moved(other, MoveKind.ACK, 1, other.claim(1, b"other").epoch, 2)

    assert store.append([one(1, 4)]) == [Appended((3,))]
    assert store.tenant_usage(TENANT).messages == 1


def test_rows_that_a_killed_hub_has_not_deleted_go_with_the_next_claim() -> None:
    """The meta row says that they are vacated; nobody reads them meanwhile."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    claim = made(store, 1)
    for number in (1, 2, 3):
        store.append([one(1, number)])
    lose(caller, "mutateRows", Fault.UNSENT)
    assert moved(store, MoveKind.ACK, 1, claim.epoch, 2)
    assert keys.record_row(keys.queue_key(1, TENANT), 1) in hbase.rows
    other, _ = hbase.store(2)

    epoch = other.claim(1, b"other").epoch

    assert [keys.position_of(row) for row in sorted(hbase.rows) if b"d:b" in hbase.rows[row]] == [3]
    assert positions(other, 1, epoch) == [3]


def test_drop_that_was_not_finished_is_finished_with_the_tenant() -> None:
    """The hub died when the meta row was gone: nobody sees the queue, and its rows go with the tenant's."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    made(store, 1)
    store.append([one(1, 1)])
    caller.made = []
    caller.fault = lambda _: Fault.UNSENT if "mutateRow" in caller.made[:-1] else Fault.NONE
    with pytest.raises(BackendError):
        store.drop(1)
    other, _ = hbase.store(2)
    assert other.append([one(1, 2)]) == [Appended((GONE,))]
    assert hbase.rows

    assert other.drop_tenant(TENANT) == 0
    assert hbase.rows == {}
    assert hbase.gateway.tables[TABLES.queue_index] == {}


def test_memory_is_bounded() -> None:
    """Rows that were not used lately are forgotten, and found again."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    claims = {queue_id: made(store, queue_id) for queue_id in (1, 2)}
    for queue_id in (1, 2):
        store.append([one(queue_id, number) for number in range(1, 101)])
    log = store._log
    log.known_records = 150

    with store.group():
        store.append([one(2, 101)])

    assert [len(queue.batches) > 0 for queue in log.loaded()] == [False, True]
    assert len(positions(store, 1, claims[1].epoch)) == 100
    assert moved(store, MoveKind.ACK, 1, claims[1].epoch, 50)
    assert store.stats(1).messages == 50


def test_page_leaves_out_nothing_that_another_hub_puts_meanwhile() -> None:
    """The other one appends, and drops what is behind it, between the look at the rows and the look at the meta row."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    other, _ = hbase.store(2)
    store.create(TENANT, 1, QueueLimits(3, 0, Overflow.DROP_QOS0_FIRST))
    epoch = store.claim(1, b"hub").epoch
    store.append([one(1, 1)])
    coming = [[one(1, number, qos)] for number, qos in ((2, 1), (3, 0), (4, 1))]
    looks = count(1)

    def happens(call: Call[object]) -> Fault:
        if call.verb.name == "getRowsWithColumns" and next(looks) == 2:
            assert [other.append(batch)[0].positions for batch in coming] == [(2,), (3,), (4,)]
        return Fault.NONE

    caller.fault = happens

    page = store.read(1, epoch, 1, 10, MANY)

    assert [record.position for record in page.records] == [2, 4]
    assert page.is_short
    assert store.read(1, epoch, page.upto, 10, MANY).records == []


def test_swap_is_of_the_meta_row_that_it_was_made_from() -> None:
    """The reading thread finds a newer one while the swap is on its way: another hub's claim is not undone."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    other, _ = hbase.store(2)
    epoch = made(store, 1).epoch
    made(store, 2)
    queue = store._log.existing(1)

    def happens(call: Call[object]) -> Fault:
        if call.verb.name == "mutateRow" and queue.meta.epoch == epoch:  # the intent
            other.claim(1, b"other")
            store._log.adopt_raw(queue, store._log.metas((queue.key,))[queue.key])
        return Fault.NONE

    caller.fault = happens

    (answer,) = store.append([one(2, 1, 2, inbound=Inbound(1, epoch, 5))])

    assert answer.is_stale
    assert store.stats(1).epoch == epoch + 1


def test_damaged_queue_hides_nothing_of_its_neighbours() -> None:
    """Both were written to in one call: what was written is known to be."""
    hbase = PlainHBase()
    store, caller = hbase.store()
    for queue_id in (1, 2):
        made(store, queue_id)
    damaged = store._log.existing(1).key

    def happens(call: Call[object]) -> Fault:
        if call.verb.name == "checkAndPut":
            hbase.rows[keys.meta_row(damaged)][b"m:s"] = (b"\1", 9_000)
        return Fault.NONE

    caller.fault = happens

    answers = store.append([one(1, 1), one(2, 2)])

    assert [answer.positions for answer in answers] == [(Refused.UNREADABLE,), (1,)]
    assert store._log.existing(2).tail == 1


@pytest.mark.parametrize("left", [b"\0", b"\xff damaged"])
def test_inbound_without_its_message_is_routed_once_when_it_is_sent_again(left: bytes) -> None:
    """The word that an earlier intent is over was done late, or the cell is damaged, and the hub died before it had routed this one."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    reader, publisher = made(store, 1), made(store, 2)
    dying, caller = hbase.store(2)
    swaps = count(1)
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "checkAndPut" and next(swaps) > 2 else Fault.NONE
    refused(dying, [one(1, 1, qos=2, inbound=Inbound(2, publisher.epoch, 77))])
    hbase.rows[keys.meta_row(keys.queue_key(2, TENANT))][intent_column(77)] = (left, 9_000)

    claim = store.claim(2, b"later")

    assert claim.inbound == ()
    again = one(1, 2, qos=2, inbound=Inbound(2, claim.epoch, 77))
    assert store.append([again]) == [Appended((1,))]
    assert positions(store, 1, reader.epoch) == [1]
    assert store.claim(2, b"later").inbound == (77,)


def test_late_row_that_cannot_be_deleted_is_an_error() -> None:
    """A delete hides nothing of a later time: with wrong clocks the row stays, and nobody may turn in a circle for it."""
    hbase = PlainHBase()
    store, _ = hbase.store()
    made(store, 1)
    store.append([one(1, 1)])
    key = keys.queue_key(1, TENANT)
    row = dict(hbase.rows[keys.record_row(key, 1)])
    store.drop(1)
    made(store, 1)
    hbase.rows[keys.record_row(key, 1)] = row  # of the incarnation before
    hbase.gateway.verbs["mutateRows"] = lambda _: None
    later, _ = hbase.store(2)

    with pytest.raises(BackendError, match="clocks"):
        later.claim(1, b"later")
