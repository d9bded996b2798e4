"""The queue coprocessor inside the real HBase, through the Thrift gateway, at the level of bytes (docs/reference/coprocessor.md)."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator

import pytest

from iothub.base.errors import BackendError
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from ops.services.places import ROOT
from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.own_tables import reopen_regions
from tests.support.hbase.queue_bytes import Bytes, Code, Kind, Status, appended, claimed, record, request, step
from tests.support.hbase.queue_table import QueueTable, queue_table

REGIONS = 4
QUEUES = iter(
    range(4, 1 << 20, 4)
)  # all in the first of four regions: the lowest bits of an id are the first of its key
OTHER_REGION = 1


@pytest.fixture(scope="module")
def _table(_servers: Services) -> Iterator[QueueTable]:
    _servers.up()
    with queue_table(_servers, REGIONS) as table:
        yield table


@pytest.fixture
def table(_table: QueueTable, services: Services) -> QueueTable:
    """One table for all tests of this file; each takes queues of its own. The servers are up."""
    assert services
    return _table


@pytest.fixture
def caller(table: QueueTable) -> Iterator[DirectCaller]:
    with table.caller() as caller:
        yield caller


@pytest.fixture
def queue(table: QueueTable, caller: DirectCaller) -> int:
    """A queue without bounds."""
    queue_id = next(QUEUES)
    assert table.do(caller, queue_id, queue_bytes.create(queue_id))[0].status == Status.DONE
    return queue_id


def _bodies(records: dict[int, bytes]) -> dict[int, bytes]:
    return {position: raw[queue_bytes.RECORD_HEAD_BYTES :] for position, raw in records.items()}


def test_example_of_the_reference_page(table: QueueTable, caller: DirectCaller) -> None:
    """What docs/reference/coprocessor.md shows is what is on the wire."""
    page = (ROOT / "docs/reference/coprocessor.md").read_text(encoding="utf-8")
    lines = re.findall(r"^([\w:]+) +([<>]) ([0-9a-f]+)$", page, re.MULTILINE)
    meta = queue_bytes.meta_row(OTHER_REGION)
    asked = b""
    for what, way, text in lines:
        if way == ">":
            asked = bytes.fromhex(text)
            continue
        is_get = what.startswith("m:")
        results = table.get(caller, meta, what.encode(), asked) if is_get else table.append(caller, meta, asked)
        assert (what, (results or b"").hex()) == (what, text)
    table.do(caller, OTHER_REGION, step(Code.DROP, OTHER_REGION))

    assert [what for what, way, _ in lines if way == "<"] == [
        "create",
        "append",
        "claim",
        "moves",
        "m:deq",
        "m:sta",
        "moves",
    ]


def test_records_come_back_unchanged_at_dense_positions(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Appended in two calls, read by the claimed epoch: the bytes that were sent are the bytes that are read."""
    sent = [
        record(b"one", expires_at_ms=77, subscription_ids=(5, 268_435_455)),
        record(b"two", 2, message_id=b"i" * 16),
    ]
    first = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 1, sent))[0])
    second = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 2, [record(b"", 0)]))[0])
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch

    page = table.page(caller, queue, epoch, 0)

    assert (first.positions, second.positions) == ((1, 2), (3,))
    assert page.records == {1: sent[0], 2: sent[1], 3: record(b"", 0)}
    assert (page.head, page.tail, page.upto, page.is_short) == (0, 3, 3, True)


def test_repeated_call_gets_its_first_answer(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """(writer, sequence) names the call; a lower sequence is refused, another writer is not concerned."""
    call = queue_bytes.append(queue, 9, 7, [record(b"a"), record(b"b")])
    first = appended(table.do(caller, queue, call)[0])
    again = appended(table.do(caller, queue, call)[0])
    late = table.do(caller, queue, queue_bytes.append(queue, 9, 6, [record(b"c")]))[0]
    other = appended(table.do(caller, queue, queue_bytes.append(queue, 8, 6, [record(b"d")]))[0])

    assert (first.is_repeat, first.positions) == (False, (1, 2))
    assert (again.is_repeat, again.positions) == (True, (1, 2))
    assert (late.status, late.raw) == (Status.OLD_SEQUENCE, struct.pack(">q", 7))
    assert other.positions == (3,)


def test_settled_message_ids_are_forgotten(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Those of the calls that their writer names, and neither those of later calls nor of somebody else."""
    own, later, will = (bytes([each]) * 16 for each in range(3))
    first = [record(b"a", 2, message_id=own, is_settled_later=True), record(b"b", 2, message_id=will)]
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, first))
    second = [record(b"c", 2, message_id=later, is_settled_later=True)]
    table.do(caller, queue, queue_bytes.append(queue, 9, 2, second, settled=(1, 2)))

    asked = [record(b"d", 2, message_id=each) for each in (own, will, later)]
    answer = table.do(caller, queue, queue_bytes.append(queue, 8, 1, asked))[0]

    assert appended(answer).positions == (4, 2, 3)


def test_many_queues_of_a_region_are_one_call(table: QueueTable, caller: DirectCaller) -> None:
    """Created, appended to and claimed in one: answers in the order of the operations, whatever the order of the keys."""
    queues = [next(QUEUES) for _ in range(20)]
    steps = [queue_bytes.create(each) for each in queues]
    steps += [queue_bytes.append(each, 9, 1, [record(b"%d" % each)]) for each in reversed(queues)]
    steps += [queue_bytes.claim(each) for each in queues]

    results = table.do(caller, queues[0], *steps)

    assert {each.status for each in results} == {Status.DONE}
    assert {appended(each).positions for each in results[20:40]} == {(1,)}
    assert {claimed(each).tail for each in results[40:]} == {1}
    assert _bodies(table.page(caller, queues[7], 1, 0).records) == {1: b"%d" % queues[7]}


def test_queue_of_another_region_refuses_the_call_at_once(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Nothing of it is written, and the gateway does not try again for seconds."""
    steps = (
        queue_bytes.append(queue, 9, 1, [record(b"a")]),
        queue_bytes.append(OTHER_REGION, 9, 1, [record(b"a")]),
    )
    with pytest.raises(
        BackendError, match=r"queue 1 of tenant 7 is not in region .*: one call takes queues of one region"
    ):
        table.do(caller, queue, *steps)

    assert appended(table.do(caller, queue, steps[0])[0]).is_repeat is False


def test_append_creates_no_queue(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Unknown or dropped: gone, also while others of the call are served."""
    unknown = next(QUEUES)
    table.do(caller, queue, step(Code.DROP, queue))
    other = next(QUEUES)
    results = table.do(
        caller,
        other,
        queue_bytes.create(other),
        *[queue_bytes.append(each, 9, 1, [record(b"a")]) for each in (unknown, queue, other)],
    )

    assert [each.status for each in results] == [Status.DONE, Status.GONE, Status.GONE, Status.DONE]
    assert table.get(caller, queue_bytes.meta_row(unknown), b"m:sta") is None
    assert table.get(caller, queue_bytes.meta_row(queue), b"m:sta") is None


def test_claim_fences_the_reader_before(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Its moves and its pages are refused from then on, with the epoch that is."""
    old = claimed(table.do(caller, queue, queue_bytes.claim(queue, b"a"))[0])
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"a"), record(b"b")]))
    new = claimed(table.do(caller, queue, queue_bytes.claim(queue, b"b"))[0])

    move = table.do(caller, queue, queue_bytes.moves(queue, old.epoch, 1, (Kind.ACK, 2)))[0]
    page = table.get(caller, queue_bytes.meta_row(queue), b"m:deq", queue_bytes.page(old.epoch, 0, 1, 1))
    answer = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 2, [record(b"c")]))[0])

    assert (old.epoch, new.epoch, new.tail) == (1, 2, 2)
    assert (move.status, move.raw) == (Status.STALE_EPOCH, struct.pack(">q", 2))
    assert page == b"\1\2" + struct.pack(">q", 2)
    assert (answer.epoch, answer.owner, answer.head) == (2, b"b", 0)


def test_what_a_reader_moves_is_what_the_next_one_claims(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Head, reserved, released, open inbound; an intent's message can be read until it is routed."""
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"aa"), record(b"bbb"), record(b"c")]))
    results = table.do(
        caller,
        queue,
        queue_bytes.moves(
            queue, epoch, 1, (Kind.ACK, 1), (Kind.RELEASE, 3), (Kind.RESERVE, 1024), (Kind.RECORD_INBOUND, 8)
        ),
        queue_bytes.intent(queue, epoch, 2, 9, b"m" * 16, b"to finish it"),
        queue_bytes.intent(queue, epoch, 3, 9, b"n" * 16, b"another"),
    )
    intents = caller.call(calls.get_row(table.name, queue_bytes.queue_key(queue) + b"\2\0\x09", [b"m:p"]))

    next_one = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0])

    assert results[0].raw == struct.pack(">qqqq", 1, 3, 2, 4)
    assert [each.raw[32:] for each in results[1:]] == [b"\0" + b"m" * 16, b"\1" + b"m" * 16]
    assert intents is not None
    assert intents.cells[b"m:p"].value == b"to finish it"
    assert (next_one.head, next_one.reserved, next_one.released) == (1, 1024, (3,))
    assert next_one.inbound == {8: (True, bytes(16)), 9: (False, b"m" * 16)}


def test_acknowledged_records_are_not_read_again(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Pages begin above what is gone, end at their count, and say how far they came."""
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"%d" % each) for each in range(1, 11)]))
    table.do(caller, queue, queue_bytes.moves(queue, epoch, 1, (Kind.ACK, 4)))

    page = table.page(caller, queue, epoch, 0, count=3)

    assert (list(page.records), page.upto, page.is_short) == ([5, 6, 7], 7, False)
    assert list(table.all_records(caller, queue, epoch)) == [5, 6, 7, 8, 9, 10]


def test_full_queue_names_its_limit(table: QueueTable, caller: DirectCaller) -> None:
    """Drop QoS 0 first, then refuse; what is left of the tenant's bounds is told with the call."""
    queue = next(QUEUES)
    bounds = queue_bytes.limits(3, 0, queue_bytes.DROP_QOS0_FIRST)
    table.do(caller, queue, queue_bytes.create(queue, bounds))

    bodies = [record(b"a"), record(b"b", 0), record(b"c", 0), record(b"d"), record(b"e"), record(b"f")]
    own = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 1, bodies))[0])
    table.do(caller, queue, step(Code.SET_LIMITS, queue, queue_bytes.limits()))
    tenant = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 2, [record(b"g")] * 2, (1, -1)))[0])

    assert (own.positions, own.dropped) == ((1, 2, 3, 4, 5, -1), ((3, 2), (4, 3)))
    assert set(own.hits) == {"session_queued_messages"}
    assert (own.messages, own.size_bytes) == (3, 3)
    assert (tenant.positions, tenant.hits) == ((6, -1), ("queued_messages",))


def test_expiry_finds_what_is_due_and_removes_it(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """A look goes over the queues of a region, the removal names its positions; what may have been sent is spared."""
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch
    bodies = [record(b"a", expires_at_ms=20), record(b"b", expires_at_ms=10), record(b"c")]
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, bodies))
    table.do(caller, queue, queue_bytes.moves(queue, epoch, 1, (Kind.RESERVE, 1)))

    found = Bytes(table.get(caller, queue_bytes.meta_row(queue), b"m:due", queue_bytes.due(50, 10)) or b"")
    results = table.do(caller, queue, queue_bytes.expire(queue, 50, [2, 1, 3]))[0]

    assert found.take("Bi") == (1, 2)
    expected = [(10, queue_bytes.queue_key(queue), 2, 0), (20, queue_bytes.queue_key(queue), 1, 1)]
    assert [(found.one("q"), found.bytes(12), *found.take("qB")) for _ in range(2)] == expected
    assert results.raw == struct.pack(">iqiq", 1, 2, 1, 1)
    assert list(table.page(caller, queue, epoch, 0).records) == [1, 3]


def test_queue_that_was_made_anew_starts_empty(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """Nothing of its predecessor shows, although the rows are still in the region."""
    table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"a"), record(b"b")]))
    dropped = table.do(caller, queue, step(Code.DROP, queue))[0]
    table.do(caller, queue, queue_bytes.create(queue, token=2))
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch
    answer = appended(table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"c")]))[0])

    assert dropped.raw == struct.pack(">q", 2)
    assert answer.positions == (1,)
    assert _bodies(table.page(caller, queue, epoch, 0).records) == {1: b"c"}


def test_damaged_state_is_refused_by_name(table: QueueTable, caller: DirectCaller) -> None:
    """The other queue of the call goes on."""
    damaged, other = next(QUEUES), next(QUEUES)
    caller.call(calls.mutate_row(table.name, queue_bytes.meta_row(damaged), {b"m:s": b"\x09whatever"}))

    results = table.do(caller, other, queue_bytes.create(other), queue_bytes.append(damaged, 9, 1, [record(b"a")]))
    shown = table.get(caller, queue_bytes.meta_row(damaged), b"m:sta")

    assert [each.status for each in results] == [Status.DONE, Status.DAMAGED]
    text = f"state of queue {damaged} of tenant 7: version must be from 1 to 1, not 9".encode()
    assert results[1].raw.startswith(text)
    assert (shown or b"")[2:].startswith(text)


def test_damaged_queue_is_dropped_with_all_that_it_had(table: QueueTable, caller: DirectCaller) -> None:
    """Its records, and the publishes that it kept open; then it can be made again, and nothing of it shows."""
    queue = next(QUEUES)
    table.do(caller, queue, queue_bytes.create(queue), queue_bytes.append(queue, 9, 1, [record(b"a")]))
    caller.call(calls.mutate_row(table.name, keys.intent_row(keys.queue_key(queue, 7), 5), {b"m:p": b"open"}))
    caller.call(calls.mutate_row(table.name, queue_bytes.meta_row(queue), {b"m:s": b"\x09whatever"}))
    reopen_regions(table.services, table.name, 1)  # they keep the newest states in memory

    assert table.do(caller, queue, step(Code.PURGE, queue))[0].status == Status.DAMAGED
    dropped = table.do(caller, queue, step(Code.DROP, queue))[0]
    assert (dropped.status, dropped.raw) == (Status.DONE, bytes(8))
    assert caller.call(calls.get_row(table.name, keys.intent_row(keys.queue_key(queue, 7), 5))) is None
    table.do(caller, queue, queue_bytes.create(queue, token=2))
    epoch = claimed(table.do(caller, queue, queue_bytes.claim(queue))[0]).epoch
    assert table.page(caller, queue, epoch, 0).records == {}


def test_stats_of_queues_in_many_regions_are_one_call(table: QueueTable, caller: DirectCaller) -> None:
    """The once-a-second look at the tails: a get of many rows; those that are not there are left out."""
    first = next(QUEUES)
    queues = [first, first + 1, first + 2, first + 3]
    for number, each in enumerate(queues[:3], 1):
        bounds = queue_bytes.limits(5, 60, queue_bytes.DROP_OLDEST)
        steps = queue_bytes.create(each, bounds), queue_bytes.append(each, 9, 1, [record(b"ab")] * number)
        table.do(caller, each, *steps)
    rows = caller.call(calls.get_rows(table.name, [queue_bytes.meta_row(each) for each in queues], [b"m:sta"]))

    found = {row.key: row.cells[b"m:sta"].value for row in rows}
    assert found == {
        queue_bytes.meta_row(each): b"\1\0"
        + struct.pack(">qqqqqqqqBB", 0, 0, number, 0, number, 2 * number, 5, 60, 1, 0)
        for number, each in enumerate(queues[:3], 1)
    }


MALFORMED = {
    "nothing": (b"", "version needs 1 bytes, 0 are left"),
    "future version": (b"\2\0\0\0\1", "version 2 is not known here; this jar knows version 1"),
    "no operation": (request(), "number of operations must be from 1 to 16384, not 0"),
    "countless operations": (b"\1\xff\xff\xff\xff", "number of operations is 4294967295"),
    "unknown operation": (request(step(99, 4)), "there is no such operation"),
    "no message": (request(queue_bytes.append(4, 1, 1, [])), "number of messages must be from 1 to 4096, not 0"),
    "message of a future version": (request(queue_bytes.append(4, 1, 1, [b"\7" * 30])), "message 0: version 7"),
    "shortened": (request(queue_bytes.append(4, 1, 1, [record(b"abc")]))[:-1], "needs 61 bytes, 60 are left"),
    "too long": (request(queue_bytes.create(4)) + b"x", "1 bytes follow behind its end"),
    "negative length": (request(step(Code.DROP, 4))[:-4] + b"\xff\xff\xff\xff", "needs 4294967295 bytes"),
    "sequence 0": (request(queue_bytes.append(4, 1, 0, [record(b"a")])), "sequence must be at least 1, not 0"),
    "unknown policy": (request(queue_bytes.create(4, queue_bytes.limits(0, 0, 3))), "overflow policy must be from 0"),
    "unknown move": (request(queue_bytes.moves(4, 1, 1, (7, 1))), "there is no move 7"),
    "packet identifier 0": (request(queue_bytes.moves(4, 1, 1, (4, 0))), "packet identifier must be from 1 to 65535"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_request_is_refused_and_the_server_lives(
    table: QueueTable, caller: DirectCaller, queue: int, name: str
) -> None:
    """One line says what is wrong; the same connection serves the next call."""
    value, why = MALFORMED[name]
    with pytest.raises(BackendError, match="refused: ") as refusal:
        table.append(caller, queue_bytes.meta_row(queue), value)

    assert why in str(refusal.value)
    assert appended(table.do(caller, queue, queue_bytes.append(queue, 9, 1, [record(b"a")]))[0]).positions == (1,)


def test_other_appends_and_gets_of_queues_are_refused(table: QueueTable, caller: DirectCaller, queue: int) -> None:
    """A column that is none of ours would spoil the state; a get must say what it asks."""
    meta = queue_bytes.meta_row(queue)
    with pytest.raises(BackendError, match="takes appends of one cell in column m:mul only"):
        table.append(caller, meta, b"x", column=b"m:s")
    with pytest.raises(BackendError, match="needs an attribute 'request'"):
        table.get(caller, meta, b"m:deq")
    with pytest.raises(BackendError, match=r"is asked of a queue's meta row"):
        table.get(caller, b"elsewhere", b"m:deq", queue_bytes.page(1, 0, 1, 1))
    with pytest.raises(BackendError, match=r"page of queue .*: version 2 is not known"):
        table.get(caller, meta, b"m:deq", b"\2" + queue_bytes.page(1, 0, 1, 1)[1:])
