"""Row keys: golden bytes, what they are taken apart into, and that the order of the bytes is the order that is meant."""

from __future__ import annotations

import pytest

from iothub.base.errors import CorruptRecordError
from iothub.records import keys


def test_queue_key_has_the_bits_of_its_id_in_reverse() -> None:
    """K = bit_reverse64(queue id) | tenant id (B49-B51): golden bytes."""
    assert keys.queue_key(1, 7).hex() == "8000000000000000" + "00000007"
    assert keys.queue_key(2, 7).hex() == "4000000000000000" + "00000007"
    assert keys.queue_key(0x0123456789ABCDEF, 0xFFFFFFFF).hex() == "f7b3d591e6a2c480" + "ffffffff"


def test_neighbours_are_far_apart() -> None:
    """128 queues in a row fall into 128 regions that begin at 00, 02, 04 ..."""
    firsts = {keys.queue_key(number, 1)[0] // 2 for number in range(4096, 4096 + 128)}

    assert firsts == set(range(128))


def test_meta_row_comes_before_the_records() -> None:
    """One scan from the meta row reads a queue in order, and nothing of another one."""
    queue, other = keys.queue_key(5, 1), keys.queue_key(5, 2)
    rows = [keys.meta_row(queue), *(keys.record_row(queue, position) for position in (1, 2, 255, 256, 1 << 40))]

    assert rows == sorted(rows)
    assert rows[1].hex() == queue.hex() + "01" + "0000000000000001"
    assert not any(row.startswith(other) for row in rows)
    assert all(row < keys.prefix_end(queue) for row in rows)


def test_open_intents_come_behind_the_records() -> None:
    """By Packet Identifier; within the queue's rows."""
    queue = keys.queue_key(5, 1)

    assert keys.intent_row(queue, 77).hex() == queue.hex() + "02" + "004d"
    assert keys.record_row(queue, 1 << 62) < keys.intent_row(queue, 1) < keys.prefix_end(queue)


def test_keys_are_taken_apart() -> None:
    """What went in comes out."""
    queue = keys.queue_key(99, 3)
    message_id = bytes(range(16))

    assert keys.split_queue_key(keys.meta_row(queue)) == (99, 3)
    assert keys.position_of(keys.record_row(queue, 77)) == 77
    assert keys.queue_of_index(keys.index_key(3, 99)) == (3, 99)
    assert keys.message_of_body(keys.body_key(message_id, 3)) == (message_id, 3)
    assert keys.after_tenant(keys.state_key(3, "métér")) == (3, "métér".encode())
    assert keys.after_tenant(keys.retained_key(3, b"a/b")) == (3, b"a/b")
    assert keys.checkpoint_key(2, 3, "c").hex() == "01" + "0000000000000002" + "00000003" + "63"
    assert keys.checkpoint_prefix(0) > keys.POINTER_KEY
    assert keys.session_of_state(keys.state_key(3, "métér")) == (3, "métér")
    assert keys.session_of_checkpoint(keys.checkpoint_key(2, 3, "métér")) == (2, 3, "métér")
    assert keys.expiry_of(keys.expiry_key(1 << 41, 3, b"a/b")) == (1 << 41, 3, b"a/b")


def test_rows_of_nobody_come_before_those_of_tenants() -> None:
    """How far the log is applied, and the index of what expires, in the order of time: no tenant's scan meets them."""
    expiries = [keys.expiry_key(*each) for each in ((9, 5, b"a"), (255, 1, b"z"), (256, 1, b"a"), (256, 1, b"b"))]

    assert expiries == sorted(expiries)
    assert expiries[0].hex() == "00000000" + "0000000000000009" + "00000005" + "61"
    assert keys.APPLIED_KEY < keys.tenant_key(keys.NO_TENANT) < expiries[0]
    assert expiries[-1] < keys.tenant_key(1)


@pytest.mark.parametrize(
    ("take_apart", "key"),
    [
        (keys.split_queue_key, b"short"),
        (keys.position_of, keys.meta_row(keys.queue_key(1, 1))),
        (keys.position_of, keys.queue_key(1, 1) + b"\2" + bytes(8)),
        (keys.queue_of_index, b"x" * 11),
        (keys.message_of_body, b"x" * 19),
        (keys.after_tenant, b"abc"),
        (keys.session_of_state, b"\0\0\0\1\xff"),
        (keys.session_of_state, b"\0"),
        (keys.session_of_checkpoint, keys.POINTER_KEY),
        (keys.session_of_checkpoint, b"\1" + bytes(7)),
        (keys.expiry_of, keys.retained_key(1, b"a" * 30)),
        (keys.expiry_of, keys.tenant_key(0) + bytes(11)),
    ],
)
def test_foreign_key_is_refused_by_name(take_apart: object, key: bytes) -> None:
    """A row that is not ours is never misread."""
    with pytest.raises(CorruptRecordError, match=key.hex()):
        take_apart(key)  # type: ignore[operator]


@pytest.mark.parametrize(
    ("prefix", "end"),
    [(b"a", b"b"), (b"a\xff", b"b"), (b"\x00\x00\x00\xff", b"\x00\x00\x01"), (b"\xff\xff", b""), (b"", b"")],
)
def test_prefix_ends_where_the_next_begins(prefix: bytes, end: bytes) -> None:
    """The last tenant's rows have no key behind them: a scan without a bound."""
    assert keys.prefix_end(prefix) == end
