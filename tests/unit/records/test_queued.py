"""What queues on HBase store: golden bytes of version 1, and that everything else is refused by name."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.base.errors import CorruptRecordError
from iothub.records.queued import (
    Body,
    Intent,
    Record,
    Target,
    decode_intent,
    decode_record,
    encode_intent,
    record_head,
)

ID = bytes(range(16))
INLINE = Body(b"abc", 3)
APART = Body(b"", 1000, ID)

RECORDS = {
    "01010000" + "0000000000000000" + "00000003" + "0000" + "616263": Record(1, 0, (), 0, b"", INLINE),
    "01020102" + "000000000000004d" + "00000003" + "0002" + "00000005" + "0fffffff" + ID.hex() + "616263": Record(
        2, 1, (5, 268_435_455), 77, ID, INLINE
    ),
    "01000001" + "0000000000000000" + "000003e8" + "0000" + "01" + ID.hex(): Record(0, 0, (), 0, b"", APART),
}
INTENTS = {
    "0100" + "0000000000000000" + "00000000" + "00000000": Intent(0, (), Body(b"", 0)),
    "0100" + "000000000000004d" + "00000003" + "00000001" + "0000000000000009" + "02" + "01" + "0001" + "00000005"
    "616263": Intent(77, (Target(9, 2, 1, (5,)),), INLINE),
    "0101"
    + "0000000000000000"
    + "000003e8"
    + "00000001"
    + "0000000000000009"
    + "0200"
    + "0000"
    + "01"
    + ID.hex(): Intent(0, (Target(9, 2, 0, ()),), APART),
}


def encoded(record: Record) -> bytes:
    *fields, body = record
    return record_head(*fields, body.size, is_apart=bool(body.id)) + body.stored


@pytest.mark.parametrize("octets", RECORDS)
def test_record_has_these_bytes(octets: str) -> None:
    """Version 1, as the coprocessor reads it."""
    record = RECORDS[octets]

    assert encoded(record).hex() == octets
    assert decode_record(bytes.fromhex(octets)) == record


@pytest.mark.parametrize("octets", INTENTS)
def test_intent_has_these_bytes(octets: str) -> None:
    """Version 1: what is needed to finish an inbound QoS 2 message."""
    intent = INTENTS[octets]

    assert encode_intent(intent).hex() == octets
    assert decode_intent(bytes.fromhex(octets)) == intent


def test_many_identifiers_come_back() -> None:
    """More than those that are prepared for."""
    record = Record(1, 0, tuple(range(1, 40)), 0, b"", INLINE)

    assert decode_record(encoded(record)) == record


@pytest.mark.parametrize("read", [decode_record, decode_intent])
def test_record_of_another_version_is_damaged(read: object) -> None:
    """The store's own version refuses a newer store; a single record is never one of a newer program."""
    assert callable(read)
    with pytest.raises(CorruptRecordError, match="damaged"):
        read(b"\2" + bytes(40))
    with pytest.raises(CorruptRecordError, match="damaged"):
        read(b"")


def test_reference_of_another_version_is_damaged() -> None:
    """The record is whole, what it refers to is not."""
    octets = bytearray(encoded(RECORDS[list(RECORDS)[2]]))
    octets[18] = 2
    with pytest.raises(CorruptRecordError, match="damaged reference to a body"):
        decode_record(bytes(octets))


@settings(max_examples=60)
@given(st.sampled_from([*RECORDS, *INTENTS]), st.data())
def test_damage_is_found_or_reads_as_something_else(octets: str, data: st.DataObject) -> None:
    """Shortened, lengthened, changed: a value or CorruptRecordError, never another exception."""
    raw = bytearray.fromhex(octets)
    at = data.draw(st.integers(0, len(raw) - 1))
    raw[at] = data.draw(st.integers(0, 255))
    cut = bytes(raw[: data.draw(st.integers(0, len(raw)))]) + data.draw(st.binary(max_size=3))
    for read in (decode_record, decode_intent):
        try:
            read(cut)
        except CorruptRecordError:
            continue
