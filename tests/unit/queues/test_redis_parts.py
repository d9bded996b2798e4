"""The parts of the queue driver `redis` by themselves: answers that cannot be read, pipelines that are cut, claims and removals of what has gone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import count

import pytest

from iothub.base.errors import BackendError, NotFoundError
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, QueueLimits
from iothub_services.queues.redis.append import Appending
from iothub_services.queues.redis.index import KnownQueue, QueueIndex
from iothub_services.queues.redis.messages import MOST_BYTES, MOST_RECORDS, AppendCall
from iothub_services.queues.redis.moves import Readers
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.removing import Removing
from iothub_services.queues.redis.sending import PART_BYTES, PART_CALLS, Sender, require
from iothub_services.queues.remote.shares import Item, Share
from iothub_services.queues.remote.tenant import Tenant
from iothub_services.redis.calls import Call, RedisRefusedError, RedisUnavailableError, Reply, command
from tests.support.servers.redis_queues import PREFIX, Fault, RedisHarness

NAMES = Names(PREFIX)


def operation(shares: int) -> AppendCall:
    asked = AppendCall(KnownQueue(1, 7, Tenant()))
    for _ in range(shares):
        item = Item(b"", 0, b"body", 4)
        item.shares.append(Share(Delivery(1, 1), asked.known))
        asked.add_share(item, item.shares[0], MOST_RECORDS, MOST_BYTES)
    return asked


def test_answer_of_an_append_is_read() -> None:
    """A run, or one word for each; what was dropped behind them."""
    run, mixed = operation(3), operation(3)
    run.on_answer(b"5 20 =7")
    mixed.on_answer(b"2 9 7 f3 8 d2:1:3,4")

    assert [share.position for share in run.shares] == [7, 8, 9]
    assert (run.known.messages, run.known.bytes, run.known.tenant.messages) == (5, 20, 5)
    assert [share.position for share in mixed.shares] == [7, -1, 8]
    assert mixed.shares[1].hits == ("queued_messages",)
    assert (mixed.shares[2].dropped, mixed.shares[2].hits) == ((3, 4), ("session_queued_messages",) * 2)


@pytest.mark.parametrize("answer", [b"1 2 x", b"1 2 7"])
def test_answer_that_cannot_be_read_is_no_success(answer: bytes) -> None:
    """Nobody is told a position that the queue did not give."""
    with pytest.raises(BackendError) as caught:
        operation(2).on_answer(answer)
    assert (caught.value.retryable, caught.value.is_written) == (False, True)


def test_operation_takes_only_so_many() -> None:
    """What follows waits for the next round, in order."""
    asked = operation(MOST_RECORDS + 5)

    assert asked.is_full
    assert len(asked.shares) == MOST_RECORDS


def test_pipelines_are_cut_by_count_and_bytes() -> None:
    """And nothing is sent behind one that was lost."""
    sent: list[int] = []

    def ask(calls: Sequence[Call]) -> list[Reply]:
        sent.append(len(calls))
        if len(sent) == 3:
            raise RedisUnavailableError("gone", is_written=True)
        return [b"ok"] * len(calls)

    sender = Sender(ask, ask, b"probe")
    large = command("SET", "k", b"x" * (PART_BYTES // 2))
    outcomes = sender.write([*[command("GET", "k")] * (PART_CALLS + 1), large, large, large])

    assert sent == [PART_CALLS, 2, 1]
    errors = [outcome for outcome in outcomes if isinstance(outcome, BackendError)]
    assert [error.is_written for error in errors] == [True, False]
    with pytest.raises(BackendError) as caught:
        require(outcomes)
    assert caught.value.is_written


def test_refusal_of_one_queue_holds_up_no_part() -> None:
    """Of any other refusal nobody knows what it means for those behind it."""
    sent: list[int] = []

    def ask(calls: Sequence[Call]) -> list[Reply]:
        sent.append(len(calls))
        return [
            *[b"ok"] * (len(calls) - 1),
            RedisRefusedError(f"Redis refused: {'DAMAGED' if len(sent) == 1 else 'NOPERM'} it"),
        ]

    outcomes = Sender(ask, ask, b"probe").write([command("GET", "k")] * (3 * PART_CALLS))

    assert sent == [PART_CALLS] * 2
    assert [type(outcome) for outcome in outcomes].count(RedisUnavailableError) == PART_CALLS


def test_worst_error_is_told() -> None:
    """One that will not pass by itself, so that the batch is taken apart."""
    with pytest.raises(BackendError, match="our mistake"):
        require([RedisUnavailableError("later"), RedisRefusedError("our mistake"), b"ok"])


def harness_with_queue() -> tuple[RedisHarness, Sender, QueueIndex]:
    harness = RedisHarness()
    harness.store().create(7, 1, QueueLimits())
    sender = Sender(harness.ask, harness.ask, NAMES.probe)
    return harness, sender, QueueIndex(sender, NAMES)


def nothing() -> None:
    """No queue is missing here."""


def test_late_call_is_refused() -> None:
    """Redis has a later one of the same writer: nobody else may have that number."""
    harness, sender, index = harness_with_queue()
    newer = Appending(index, sender, NAMES, harness.clock, 5, count(10), nothing)
    older = Appending(index, sender, NAMES, harness.clock, 5, count(3), nothing)
    op = Append(b"", b"body", 0, (Delivery(1, 1),))
    newer.route(newer.items([op]))

    with pytest.raises(BackendError, match="another hub writes under the same incarnation"):
        older.route(older.items([op]))


def test_open_call_is_sent_as_it_was_until_it_is_answered() -> None:
    """What comes for the queue meanwhile waits behind it; who gives up does not keep it open."""
    harness, sender, index = harness_with_queue()
    index.existing(1)
    appending = Appending(index, sender, NAMES, harness.clock, 5, count(1), nothing)
    first, second = (Append(b"", body, 0, (Delivery(1, 1),)) for body in (b"one", b"two"))
    harness.fault = lambda _: Fault.LATE
    with pytest.raises(BackendError), appending.repeats.group():
        appending.route(appending.items([first]))
    harness.fault = lambda _: Fault.NONE

    with appending.repeats.group():
        items = appending.items([second])
        appending.route(items)

    assert items[0].answered().positions == (2,)
    appending.forget()
    assert len(appending.repeats) == 0


def test_reader_of_a_queue_that_has_gone_is_told() -> None:
    """By its claim and by its moves."""
    harness, sender, index = harness_with_queue()
    readers = Readers(index, sender, NAMES, harness.clock, count(1))
    known = index.existing(1)
    harness.redis.execute_command("FLUSHALL")

    assert readers.apply([Move(MoveKind.ACK, 1, 1, 1)]) == [False]
    index.add(7, 1)
    with pytest.raises(NotFoundError):
        readers.claim(known, 1, b"")


def test_purge_of_a_queue_that_has_gone_is_told() -> None:
    """A drop is not: that is what was wanted."""
    harness, sender, index = harness_with_queue()
    removing = Removing(index, sender, NAMES)
    known = index.existing(1)
    harness.redis.execute_command("FLUSHALL")

    with pytest.raises(NotFoundError):
        removing.purge(known)
    assert removing.drop(1) == 0
