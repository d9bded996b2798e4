"""A record of a newer program in the middle of a queue, in every driver: what is before it arrives, nothing goes past it, nothing is lost.

What a batch may not bring past it is in `iothub_services.queues.behind`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.records.message import StoredMessage, encode_message
from iothub.testing.clock import ManualClock
from iothub.testing.queue_contract import MANY, TENANT, made, moved
from iothub_services.queues.hbase.requests import MOST_RECORDS
from iothub_services.queues.port import Append, Appended, Delivery, MoveKind, Overflow, QueueLimits, QueueStore, Refused
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.queues.threads import LoadedPage, load_page
from iothub_services.sqlite.database import open_database
from tests.support.hbase_calls import Fault
from tests.support.hbase_plain import PlainHBase
from tests.support.hbase_queues import HBase

SPOILT = 4
KEY = keys.queue_key(1, TENANT)


class House(NamedTuple):
    """A driver; `spoil` changes the version of what is stored at `SPOILT`, `restarted` gives another hub's store, `asked` how much it called."""

    store: QueueStore
    spoil: Callable[[], None]
    restarted: Callable[[], QueueStore]
    asked: Callable[[], int] = lambda: 0


def on_sqlite(path: Path) -> House:
    store = SqliteQueues(open_database(path / "queues.db", SCHEMA, ManualClock(), lambda _, text: pytest.fail(text)))

    def spoil() -> None:
        with store._database.transaction() as connection:
            where = "id = (SELECT body FROM ref WHERE position = ?)"
            (body,) = connection.execute(f"SELECT b FROM body WHERE {where}", (SPOILT,)).fetchone()
            connection.execute(f"UPDATE body SET b = ? WHERE {where}", (b"\7" + body[1:], SPOILT))

    return House(store, spoil, lambda: store)


def on_hbase(_: Path) -> House:
    house = HBase()

    def spoil() -> None:
        records = house.coprocessor.queues[KEY].records
        records[SPOILT] = replace(records[SPOILT], raw=b"\7" + records[SPOILT].raw[1:])

    return House(house.store(1)[0], spoil, lambda: house.store(2)[0], lambda: house.coprocessor.requests)


def on_hbase_plain(_: Path) -> House:
    house = PlainHBase()

    def spoil() -> None:
        row = house.rows[keys.record_row(KEY, SPOILT)]
        value, time = row[b"d:b"]
        row[b"d:b"] = (b"\7" + value[1:], time)

    return House(house.store(1)[0], spoil, lambda: house.store(2)[0])


@pytest.fixture(params=[on_sqlite, on_hbase, on_hbase_plain])
def house(request: pytest.FixtureRequest, tmp_path: Path) -> House:
    made_house: House = request.param(tmp_path)
    made(made_house.store, 1)
    for number in range(1, 7):
        append(made_house.store, number)
    made_house.spoil()
    return made_house


def append(store: QueueStore, number: int, qos: int = 1) -> Appended:
    body = encode_message(StoredMessage(b"a/b", b"%d" % number, 1, False, b"", 0, bytes(16), "pub"))
    (answer,) = store.append([Append(number.to_bytes(16), body, 0, (Delivery(1, qos),))])
    return answer


def page(store: QueueStore, epoch: int, after: int, count: int = 10) -> LoadedPage:
    return load_page(store.read(1, epoch, after, count, MANY))


def numbers(found: LoadedPage) -> list[int]:
    return [int(record.message.payload) for record in found.records]


@pytest.mark.parametrize("is_restarted", [False, True])
def test_what_is_before_an_unreadable_record_is_read(house: House, is_restarted: bool) -> None:
    """In pages of any size; the next one names the record, and nothing behind it comes."""
    store = house.restarted() if is_restarted else house.store
    epoch = store.claim(1, b"reader").epoch
    for count in (1, 2, 3, 4, 10):
        after, seen = 0, []
        while (found := page(store, epoch, after, count)).unreadable is None:
            assert not found.is_short
            seen += numbers(found)
            after = found.upto
        seen += numbers(found)

        assert (seen, found.upto, found.is_short) == ([1, 2, 3], SPOILT - 1, False)
        assert found.unreadable.position == SPOILT
        assert "version 7" in found.unreadable.why


def test_queue_that_stands_still_takes_messages_and_acknowledgements(house: House) -> None:
    """Nothing is lost, so publishers are answered, and what was read may go."""
    epoch = house.store.claim(1, b"reader").epoch

    assert append(house.store, 7).positions == (7,)
    assert moved(house.store, MoveKind.ACK, 1, epoch, SPOILT - 1)
    stats = house.store.stats(1)
    assert (stats.head, stats.tail, stats.messages) == (SPOILT - 1, 7, 4)


@pytest.mark.parametrize("house", [on_hbase, on_hbase_plain], indirect=True)
@pytest.mark.parametrize("small", [1, 6, 40])
def test_message_that_must_make_room_is_refused_with_what_is_behind_it(house: House, small: int) -> None:
    """Records that may go for it cannot all be read. What has room is stored before it, with the same call, and all in other queues."""
    store = house.restarted()
    made(store, 2)
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 1000, Overflow.DROP_OLDEST))])
    sizes = [*[10] * small, held + 990, *[10] * small, held + 995, 10]

    with store.group():
        answers = store.append([Append(b"", b"x" * size, 0, (Delivery(1, 1), Delivery(2, 1))) for size in sizes])

    here = [*range(7, 7 + small), *[int(Refused.UNREADABLE)] * (small + 3)]
    assert [answer.positions for answer in answers] == list(zip(here, range(1, len(sizes) + 1), strict=True))
    assert {found.position for answer in answers for _, found in answer.unreadable} == {SPOILT}


@pytest.mark.parametrize(("house", "qos"), [(on_hbase, 1), (on_hbase, 2), (on_hbase_plain, 1)], indirect=["house"])
def test_publisher_that_repeats_what_was_refused_keeps_its_order(house: House, qos: int) -> None:
    """The second one would have had room, and come before the repeat of the first one [MQTT-4.6.0-5]."""
    store = house.restarted()
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 1000, Overflow.DROP_OLDEST))])
    sizes = (7, held + 990), (8, 10)
    batch = [Append(number.to_bytes(16), b"x" * size, 0, (Delivery(1, qos),)) for number, size in sizes]
    with store.group():
        assert [answer.positions for answer in store.append(batch)] == [(int(Refused.UNREADABLE),)] * 2

    store.set_limits([(1, QueueLimits())])

    with store.group():
        assert [answer.positions for answer in store.append([replace(each) for each in batch])] == [(7,), (8,)]


@pytest.mark.parametrize("house", [on_hbase], indirect=True)
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_repeat_that_a_queue_has_is_told_its_position_behind_what_is_refused(house: House, qos: int) -> None:
    """Refused it would be sent anew, under another id, and its receiver would get it twice. Nothing else goes past, but for QoS 0's sake."""
    store = house.restarted()
    assert append(store, 77, qos=2).positions == (7,)
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 200, Overflow.DROP_OLDEST))])
    asked = (88, held + 150, qos), (77, 10, 2), (89, 10, 1), (90, 10, 2), (91, 10, 0)
    batch = [Append(number.to_bytes(16), b"x" * size, 0, (Delivery(1, each),)) for number, size, each in asked]

    with store.group():
        answers = store.append(batch)

    refused = int(Refused.UNREADABLE)
    behind = [refused] * 3 if qos else [8, 9, refused]
    assert [answer.positions for answer in answers] == [(each,) for each in (refused, 7, *behind)]
    assert store.stats(1).tail == 7 + 2 * (not qos)


@pytest.mark.parametrize("house", [on_hbase], indirect=True)
@pytest.mark.parametrize("fault", [Fault.LOST, Fault.UNANSWERED])
def test_call_that_only_looks_for_repeats_is_made_again_when_it_failed(house: House, fault: Fault) -> None:
    """Whether it was done is not known; neither is anything stored by it."""
    store = house.restarted()
    assert append(store, 77, qos=2).positions == (7,)
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 200, Overflow.DROP_OLDEST))])
    asked = (88, held + 150), (77, 10), (89, 10)
    batch = [Append(number.to_bytes(16), b"x" * size, 0, (Delivery(1, 2),)) for number, size in asked]
    caller = store._caller  # type: ignore[attr-defined]
    calls = iter(range(1, 100))
    caller.fault = lambda call: fault if call.verb.name == "append" and next(calls) == 3 else Fault.NONE
    with pytest.raises(BackendError), store.group():
        store.append(batch)

    with store.group():
        answers = store.append(batch)

    refused = int(Refused.UNREADABLE)
    assert [answer.positions for answer in answers] == [(refused,), (7,), (refused,)]
    assert store.stats(1).tail == 7


@pytest.mark.parametrize("house", [on_hbase, on_hbase_plain], indirect=True)
def test_refused_message_of_qos_0_takes_only_its_like_with_it(house: House) -> None:
    """Nobody sends it again, so no order is lost; what others sent behind it would cost them their connections."""
    store = house.restarted()
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 1000, Overflow.DROP_OLDEST))])
    asked = (held + 990, 0), (10, 1), (10, 0), (held + 990, 1), (10, 1)

    with store.group():
        answers = store.append([Append(b"", b"x" * size, 0, (Delivery(1, qos),)) for size, qos in asked])

    refused = int(Refused.UNREADABLE)
    assert [answer.positions for answer in answers] == [(each,) for each in (refused, 7, refused, refused, refused)]


@pytest.mark.parametrize("faulty", [3, 4])
def test_call_that_fails_elsewhere_changes_nothing_of_it(faulty: int) -> None:
    """The repeat knows that the first one was refused, and refuses the second one."""
    house = HBase()
    store, caller = house.store(1)
    for queue_id in (1, 2):
        made(store, queue_id)
    for number in range(1, 7):
        append(store, number)
    records = house.coprocessor.queues[KEY].records
    records[SPOILT] = replace(records[SPOILT], raw=b"\7" + records[SPOILT].raw[1:])
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 1000, Overflow.DROP_OLDEST))])
    elsewhere = [Append(b"", b"x", 0, (Delivery(2, 1),)) for _ in range(MOST_RECORDS + 1)]  # it takes two rounds, too
    batch = [Append(b"", b"x" * size, 0, (Delivery(1, 1),)) for size in (held + 990, 10)] + elsewhere
    calls = iter(range(1, 100))
    caller.fault = lambda call: Fault.UNSENT if call.verb.name == "append" and next(calls) == faulty else Fault.NONE
    with pytest.raises(BackendError), store.group():
        store.append(batch)

    with store.group():
        answers = store.append(batch)

    assert [answer.positions for answer in answers[:2]] == [(int(Refused.UNREADABLE),)] * 2
    assert answers[-1].positions == (len(elsewhere),)


def test_call_of_a_log_that_fails_elsewhere_changes_nothing_of_it() -> None:
    """With `hbase-plain` one queue's rows are asked for while those of another one are planned."""
    house = PlainHBase()
    store, _ = house.store(1)
    made(store, 1)
    store.create(TENANT, 2, QueueLimits(1), 1)
    for number in range(1, 7):
        append(store, number)
    row = house.rows[keys.record_row(KEY, SPOILT)]
    row[b"d:b"] = (b"\7" + row[b"d:b"][0][1:], row[b"d:b"][1])
    store, caller = house.store(2)
    held = store.stats(1).bytes
    store.set_limits([(1, QueueLimits(0, held + 1000, Overflow.DROP_OLDEST))])
    store.append([Append(b"", b"x", 0, (Delivery(2, 1),))])
    batch = [
        Append(b"", b"x" * size, 0, (Delivery(queue_id, 1),)) for queue_id, size in ((1, held + 990), (2, 1), (1, 10))
    ]
    full = keys.queue_key(2, TENANT)
    caller.fault = lambda call: Fault.UNSENT if full in call.frame(1) else Fault.NONE
    with pytest.raises(BackendError), store.group():
        store.append(batch)
    caller.fault = lambda _: Fault.NONE

    with store.group():
        answers = store.append(batch)

    refused = (int(Refused.UNREADABLE),)
    assert [answer.positions for answer in answers] == [refused, (int(Refused.FULL),), refused]


@pytest.mark.parametrize("house", [on_hbase], indirect=True)
@pytest.mark.parametrize("qos", [0, 1, 2])
@pytest.mark.parametrize(
    "size_of", [lambda _: 4, lambda number: 300 - number, lambda number: 100 - number % 2 * number // 4]
)
def test_full_queue_with_an_unreadable_record_costs_few_calls(
    house: House, qos: int, size_of: Callable[[int], int]
) -> None:
    """Each message must make room, so all are refused: not one by one, whatever their sizes are."""
    store = house.store
    store.set_limits([(1, QueueLimits(6, 0, Overflow.DROP_OLDEST))])
    moved(store, MoveKind.RESERVE, 1, store.claim(1, b"reader").epoch, SPOILT - 1)
    batch = [Append(number.to_bytes(16), b"x" * size_of(number), 0, (Delivery(1, qos),)) for number in range(10, 266)]
    asked = house.asked()

    with store.group():
        answers = store.append(batch)

    assert {answer.positions for answer in answers} == {(int(Refused.UNREADABLE),)}
    assert house.asked() - asked < 12


@pytest.mark.parametrize("is_restarted", [False, True])
def test_purge_lets_the_queue_go_on(house: House, is_restarted: bool) -> None:
    """All that waits is removed, also what cannot be read; positions go on."""
    store = house.restarted() if is_restarted else house.store
    epoch = store.claim(1, b"reader").epoch
    assert moved(store, MoveKind.ACK, 1, epoch, 2)

    assert store.purge(1) == 4

    assert (store.stats(1).messages, store.stats(1).bytes) == (0, 0)
    empty = page(store, epoch, SPOILT - 1)
    assert (empty.records, empty.upto, empty.is_short, empty.unreadable) == ([], 6, True, None)
    assert append(store, 7, qos=2).positions == (7,)
    assert numbers(page(store, epoch, 6)) == [7]
    assert moved(store, MoveKind.ACK, 1, epoch, 7)
    assert store.stats(1).messages == 0


@pytest.mark.parametrize("is_restarted", [False, True])
def test_queue_with_an_unreadable_record_is_dropped(house: House, is_restarted: bool) -> None:
    """Ending its session is the other way out."""
    store = house.restarted() if is_restarted else house.store

    assert store.drop(1) == 6
    assert store.list_queues(TENANT) == []


def test_last_batch_of_a_log_that_cannot_be_read_is_dropped_with_its_queue() -> None:
    """Where the queue ends is not known then: nothing can be appended, and ending the session is the way out."""
    house = on_hbase_plain(Path())
    made(house.store, 1)
    for number in range(1, SPOILT + 1):
        append(house.store, number)
    house.spoil()
    store = house.restarted()
    ((_, found),) = append(store, 9).unreadable
    assert found.position == SPOILT

    assert store.drop(1) == 0
    assert store.list_queues(TENANT) == []
