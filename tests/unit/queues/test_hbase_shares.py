"""Shares of messages and the operation of one queue: bytes of records, and what is made of the answer."""

from __future__ import annotations

import gc
import weakref

import pytest

from iothub.records import keys
from iothub.records.queued import record_head
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue
from iothub_services.queues.hbase.shares import AppendCall, Heads
from iothub_services.queues.port import Appended, Delivery
from iothub_services.queues.remote.shares import Item, Share
from iothub_services.queues.remote.tenant import Tenant

ROOM = (-1, -1)


def message(body: bytes, *deliveries: Delivery, expires_at_ms: int = 0) -> Item:
    item = Item(b"i" * 16, expires_at_ms, body, len(body))
    item.shares = [Share(each, KnownQueue(each.queue_id, 7, Tenant())) for each in deliveries]
    return item


@pytest.mark.parametrize(
    "delivery",
    [Delivery(1, 0), Delivery(1, 1, 1), Delivery(1, 2), Delivery(1, 1, 0, (5, 6)), Delivery(1, 2, 3, (1 << 28,))],
)
def test_heads_are_those_of_whole_records(delivery: Delivery) -> None:
    """Whatever the record before it was."""
    heads = Heads()
    others = [message(b"abc", Delivery(1, 1)), message(b"abcd", Delivery(1, 1), expires_at_ms=9)]
    asked = message(b"abc", delivery, expires_at_ms=9)
    message_id = b"i" * 16 if delivery.qos == 2 else b""

    found = [heads.of(item, item.shares[0]) + item.stored for item in (*others, asked, asked)]

    fields = (delivery.qos, delivery.flags, delivery.subscription_ids, 9, message_id)
    whole = record_head(*fields, 3, is_apart=False) + b"abc"
    assert found[2:] == [len(whole).to_bytes(4, "big") + whole] * 2


def test_head_of_a_body_that_lies_apart_is_another() -> None:
    """The same size, the same delivery: a reference all the same."""
    heads = Heads()
    here, apart = message(b"x" * 17, Delivery(1, 1)), message(b"x" * 17, Delivery(1, 1))
    apart.body_id = b"b" * 16

    first = heads.of(here, here.shares[0])
    second = heads.of(apart, apart.shares[0])

    assert first == requests.sized(record_head(1, 0, (), 0, b"", 17, is_apart=False), 17)
    assert second == requests.sized(record_head(1, 0, (), 0, b"", 17, is_apart=True), 17)


def test_operation_gives_each_share_its_position() -> None:
    """One run, as usual; what the queue holds is taken, too."""
    known = KnownQueue(1, 7, Tenant())
    operation = AppendCall(known)
    items = [message(b"a", Delivery(1, 1)), message(b"bc", Delivery(1, 1))]
    for item in items:
        operation.add_share(item, item.shares[0], 9, 100)
    operation.encode(9, 1, ROOM, Heads(), (1, 1))

    operation.on_answer(bytes(9) + b"\0" + bytes(16) + _answer(2, 3, [(0, 4, 2)]))

    assert operation.step[0] == keys.queue_key(1, 7)
    assert [item.answered() for item in items] == [Appended((4,)), Appended((5,))]
    assert (known.messages, known.bytes, operation.alive) == (2, 3, 2)


@pytest.mark.parametrize(("qos", "is_settled_later"), [(0, False), (1, False), (2, False), (2, True)])
def test_call_says_what_is_settled_only_if_it_has_something_to_settle(qos: int, is_settled_later: bool) -> None:
    """Every other one is as long as it was."""
    operation = AppendCall(KnownQueue(1, 7, Tenant()))
    item = message(b"a", Delivery(1, qos))
    item.is_settled_later = is_settled_later
    operation.add_share(item, item.shares[0], 9, 100)

    operation.encode(9, 8, ROOM, Heads(), (3, 5))

    head = record_head(
        qos, 0, (), 0, b"i" * 16 if qos == 2 else b"", 1, is_apart=False, is_settled_later=is_settled_later
    )
    said = (3, 5) if is_settled_later else None
    parts = [requests.sized(head, 1), b"a"]
    assert operation.step == requests.append(keys.queue_key(1, 7), 9, 8, ROOM, parts, said)


def test_answer_of_another_length_is_refused() -> None:
    """More positions than records: nothing of it is believed."""
    operation = AppendCall(KnownQueue(1, 7, Tenant()))
    item = message(b"a", Delivery(1, 1))
    operation.add_share(item, item.shares[0], 9, 100)
    operation.encode(9, 1, ROOM, Heads(), (1, 1))

    with pytest.raises(ValueError, match="zip"):
        operation.on_answer(bytes(9) + b"\0" + bytes(16) + _answer(2, 3, [(0, 4, 2)]))


def test_message_goes_without_the_garbage_collector() -> None:
    """A body must not wait for it: messages, shares and operations form no circle."""

    class Target:
        queue_id, qos, flags, subscription_ids = 1, 1, 0, ()

    target = Target()
    there = weakref.ref(target)
    item = Item(b"", 0, b"a", 1)
    item.shares = [Share(target, KnownQueue(1, 7, Tenant()))]  # type: ignore[arg-type]
    operation = AppendCall(KnownQueue(1, 7, Tenant()))
    operation.add_share(item, item.shares[0], 9, 100)
    operation.encode(9, 1, ROOM, Heads(), (1, 1))
    gc.disable()
    try:
        del target, item, operation
        assert there() is None
    finally:
        gc.enable()


def _answer(messages: int, size_bytes: int, runs: list[tuple[int, int, int]]) -> bytes:
    parts = [messages.to_bytes(8, "big"), size_bytes.to_bytes(8, "big"), len(runs).to_bytes(4, "big")]
    for kind, first, count in runs:
        parts += [bytes((kind,)), first.to_bytes(8, "big"), count.to_bytes(4, "big")]
    return b"".join([*parts, bytes(4)])
