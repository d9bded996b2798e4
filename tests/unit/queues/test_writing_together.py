"""A batch of moves and messages for a driver on a server: one request, done once, whatever is lost of it."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

import pytest

from iothub.base.errors import BackendError
from iothub.testing.queue_contract import TENANT, made, one
from iothub_services.queues.port import Append, Appended, Delivery, Inbound, Move, MoveKind, QueueLimits
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import MOVE
from iothub_services.queues.redis.scripts import APPEND
from iothub_services.queues.remote.rounds import as_one
from iothub_services.queues.writing import QueueWrites
from iothub_services.redis.calls import PackedCall
from tests.support.operated_queues import operation_of
from tests.support.servers.lossy_queues import OnHBase, OnRedis, Server
from tests.support.servers.redis_queues import PREFIX, RedisHarness


@pytest.fixture(params=[OnHBase, OnRedis])
def server(request: pytest.FixtureRequest) -> Server:
    chosen: Server = request.param()
    return chosen


def opened(server: Server) -> tuple[Any, int]:
    """Return a store whose queue 1 has positions 1 and 2, and its reader's epoch."""
    store = server.store(1)
    epoch = made(store, 1).epoch
    store.append([one(1, 1), one(1, 2)])
    return store, epoch


def counted(server: Server, store: Any, ops: list[Any]) -> tuple[list[object], int]:
    """Write a batch; return its answers, and how many calls it took until something else was asked."""
    calls = [0] * 50
    server.played = [lambda: calls.pop()] * 50
    answers = QueueWrites(store)(ops)
    server.played = []
    return answers, 50 - len(calls)


def test_moves_and_messages_are_one_request(server: Server) -> None:
    """On HBase one call for the region, on Redis one for each, in one pipeline: no more than the messages alone and the moves alone."""
    store, epoch = opened(server)
    ack, message = Move(MoveKind.ACK, 1, epoch, 2), operation_of(one(1, 3))

    answers, calls = counted(server, store, [ack, message])

    assert answers == [True, (3,)]
    assert calls == (1 if isinstance(server, OnHBase) else 2)
    assert store.stats(1).messages == 1


def test_move_makes_room_for_a_tenant_at_its_bound(server: Server) -> None:
    """It goes ahead alone then: nobody knows how much is left before it is answered."""
    store, epoch = opened(server)
    store.set_tenant_limits(TENANT, 2, 0)
    ack, message = Move(MoveKind.ACK, 1, epoch, 2), operation_of(one(1, 3))

    answers = QueueWrites(store)([ack, message])

    assert answers == [True, (3,)]


@pytest.mark.parametrize("fault", range(1, 5))
def test_batch_whose_answers_are_lost_is_done_once(server: Server, fault: int) -> None:
    """The same objects come again, as the writer's thread brings them."""
    store, epoch = opened(server)
    made(store, 2)
    batch = [Move(MoveKind.ACK, 1, epoch, 1), operation_of(one(1, 3)), operation_of(one(2, 4))]
    writes, answers = QueueWrites(store), list[object]()
    server.played = [fault, fault]
    for _ in range(5):
        with suppress(BackendError):
            answers = writes(batch)
            break

    assert answers == [True, (3,), (1,)]
    assert [record.position for record in store.read(1, epoch, 0, 9, 1 << 20).records] == [2, 3]
    assert store.stats(2).messages == 1


def test_publisher_of_qos_2_beside_moves(server: Server) -> None:
    """Its three steps come behind them."""
    store, epoch = opened(server)
    publisher = made(store, 2)
    publish = Append(b"i" * 16, b"once", 0, (Delivery(1, 2),), Inbound(2, publisher.epoch, 5))

    answers = QueueWrites(store)([Move(MoveKind.ACK, 1, epoch, 2), operation_of(publish)])

    assert answers == [True, (3,)]
    assert store.claim(2, b"again").inbound == (5,)


def test_stale_mover_and_lost_queue_are_told_with_the_messages(server: Server) -> None:
    store, epoch = opened(server)
    moves = [Move(MoveKind.ACK, 1, epoch - 1, 2), Move(MoveKind.ACK, 9, 1, 1)]

    answers = QueueWrites(store)([*moves, operation_of(one(1, 3)), operation_of(one(9, 4))])

    assert answers == [False, False, (3,), (-2,)]
    assert store.stats(1).messages == 3


def test_values_and_operations_say_the_same(server: Server) -> None:
    """A message that a queue refuses has more to say than positions."""
    store = server.store(1)
    made(store, 1, QueueLimits(1, 0))
    (refused,) = QueueWrites(store)([operation_of(one(1, 1)), operation_of(one(1, 2))])[1:]

    assert refused == Appended((-1,))
    assert refused.hit == ("session_queued_messages",)  # type: ignore[attr-defined]


@pytest.mark.parametrize("queue_id", [1, 42, 10**12 + 7, (1 << 63) - 1])
def test_packed_keys_are_the_keys(queue_id: int) -> None:
    """As a command has them: how many, then each with its size."""
    names = Names("any")
    keys = names.keys(queue_id)

    packed = b"".join([b"$%d\r\n%b\r\n" % (len(each), each) for each in (b"%d" % len(keys), *keys)])

    assert names.packed_keys(queue_id) == packed


def test_packed_call_says_what_it_has() -> None:
    """Its arguments are those of a call that is put together one by one, up to what Redis reads."""
    harness = RedisHarness()
    store = harness.store()
    epoch = made(store, 1).epoch
    store.append([Append(b"i" * 16, b"a\r\nbody", 9, (Delivery(1, 2, 1, (5, 6)),))])
    store.apply([Move(MoveKind.ACK, 1, epoch, 1)])

    append, move = [call for call in harness.calls if isinstance(call, PackedCall)]

    keys = Names(PREFIX).keys(1)
    assert append.arguments[:12] == ("EVALSHA", APPEND.digest.encode(), b"9", *keys)
    assert append.arguments[-6:] == (b"2", b"1", b"9", b"5,6", b"i" * 16, b"a\r\nbody")
    assert len(append.arguments) == 12 + 7 + 6
    assert move.arguments[:12] == ("EVALSHA", MOVE.digest.encode(), b"9", *keys)
    assert (move.arguments[12], move.arguments[-2:]) == (b"%d" % epoch, (b"1", b"1"))
    assert append.size == len(append.octets)
    assert append.spelled_out().arguments == ("EVAL", APPEND.text, *append.arguments[2:])


def test_errors_of_one_request_are_one() -> None:
    """If anything of it was done, or may be, then it is written."""
    refused = BackendError("refused", retryable=False)

    assert as_one([], 3) == []
    assert [(str(error), error.is_written) for error in as_one([refused], 1)] == [("refused", False)]
    assert [error.is_written for error in as_one([refused], 2)] == [True]
