"""One row of a queue that is a log: golden bytes of version 1, and that everything else is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.queue_batch import Batch, Known, decode_batch, encode_batch, records_of
from iothub.records.queued import Body, encode_record

ID = bytes(range(16))
RECORDS = [
    encode_record(1, 0, (), 0, b"", Body(b"abc", 3)),
    encode_record(2, 1, (5,), 77, ID, Body(b"", 1000, ID)),
    encode_record(0, 0, (), 0, b"", Body(b"de", 2)),
]
BATCH = Batch(0x0B, 0x0C, 3, 9, 100, 4, (Known(3, 1, 0, b""), Known(1000, 2, 77, ID), Known(2, 0, 0, b"")))
OCTETS = (
    "01"
    + "000000000000000b"
    + "000000000000000c"
    + "0000000000000003"
    + "0000000000000009"
    + "0000000000000064"
    + "0000000000000004"
    + "00000003"
    + "00000015"
    + "010100000000000000000000000000030000616263"
    + "00000037"
    + "01020103000000000000004d000003e8000100000005"
    + ID.hex()
    + "01"
    + ID.hex()
    + "00000014"
    + "0100000000000000000000000000000200006465"
)


def test_batch_has_these_bytes() -> None:
    """Version 1, as jobs read it."""
    assert encode_batch(BATCH, RECORDS).hex() == OCTETS
    assert decode_batch(bytes.fromhex(OCTETS)) == BATCH
    assert [record.body for record in records_of(bytes.fromhex(OCTETS))] == [
        Body(b"abc", 3),
        Body(b"", 1000, ID),
        Body(b"de", 2),
    ]


def test_batch_knows_its_positions_and_sums() -> None:
    """Dense from the first on; what was before it is counted in."""
    assert (BATCH.first, BATCH.last, BATCH.at(10).size) == (9, 11, 1000)
    assert (BATCH.bytes_upto, BATCH.qos0_upto) == (1105, 5)
    moved = BATCH.moved(20, 7, 1)
    assert (moved.last, moved.bytes_upto, moved.qos0_upto) == (22, 1012, 2)
    assert moved.is_same_as(BATCH)


def test_batch_of_the_future_is_refused_by_name() -> None:
    """Whoever skipped it would lose it."""
    with pytest.raises(FutureRecordError, match="format version 2"):
        decode_batch(b"\2" + bytes.fromhex(OCTETS)[1:])


def test_batch_without_a_record_is_refused() -> None:
    """Nobody writes one: where it ends is where it begins."""
    with pytest.raises(CorruptRecordError, match="it has none"):
        decode_batch(bytes.fromhex(OCTETS)[:49] + bytes(4))


@given(st.integers(0, len(OCTETS) // 2 - 1))
def test_batch_that_is_cut_is_refused(size: int) -> None:
    """Never misread."""
    with pytest.raises(CorruptRecordError):
        decode_batch(bytes.fromhex(OCTETS)[:size])


@given(st.binary(max_size=120) | st.binary(max_size=80).map(lambda rest: bytes.fromhex(OCTETS)[:53] + rest))
@settings(max_examples=200)
def test_any_octets_are_a_batch_or_refused(octets: bytes) -> None:
    """No other error, whatever is stored."""
    try:
        decode_batch(octets)
    except CorruptRecordError:
        return
