"""Records that are read back: the twin that runs reads what the plain one does, of whole, cut and broken ones."""

from __future__ import annotations

import random
import struct
import zlib

import pytest

from iothub_services.queues.fastest import fastest
from iothub_services.queues.journal import decoding
from iothub_services.queues.journal.decoding import Verdict, decode_common, end_of_whole, scan
from iothub_services.queues.journal.encoding import encode_group
from iothub_services.queues.journal.records import (
    AppendRecord,
    ClaimRecord,
    ClosedRecord,
    CreateRecord,
    EndRecord,
    KeptRecord,
    LimitsRecord,
    MoveRecord,
    Placed,
    RebuildRecord,
    Record,
    Type,
    packed,
    placed,
)

MARK = b"12345678"
LARGE = (1 << 64) - 1
SHARES = [Placed(LARGE, LARGE, 2, 255, (1, 0xFFFFFFFF)), Placed(7, 8, 0, 1)]
APPENDS: list[Record] = [
    AppendRecord(b"", b"", 0, b""),
    AppendRecord(b"", b"body", 0, packed((Placed(5, 1, 1, 0),))),
    AppendRecord(
        b"i" * 16,
        bytes(range(256)) * 20,
        (1 << 48) - 1,
        packed(SHARES),
        (9, 3, 65_535),
    ),
]
MOVES: list[Record] = [
    MoveRecord(kind, 1, LARGE)
    for kind in (Type.HEAD, Type.RELEASE, Type.RESERVE, Type.INBOUND, Type.INBOUND_DONE, Type.PURGE, Type.REMOVED)
]
OTHERS: list[Record] = [
    ClaimRecord(1, 2, b"reader"),
    CreateRecord(1, 2, 3, 4, 5, 1),
    LimitsRecord(1, 2, 3, 2),
    EndRecord(1),
    ClosedRecord(1, 2),
    KeptRecord(b"client", 1, b"answer", 2),
    RebuildRecord(7, ((1, 2, 3), (4, 5, 6))),
]


def group(*records: Record) -> bytes:
    return encode_group(MARK, 0, records)


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "fastest"])
def test_records_of_all_kinds_are_read_back(monkeypatch: pytest.MonkeyPatch, *, is_plain: bool) -> None:
    if is_plain:
        monkeypatch.setattr(decoding, "_end_of_whole", end_of_whole)
        monkeypatch.setattr(decoding, "_decode_common", decode_common)
    records = [*APPENDS, *MOVES, *OTHERS]
    data = group(*records) + bytes(100)

    found = scan(data, MARK)

    assert found.verdict is Verdict.WHOLE
    assert [each.record for each in found.records] == records
    assert [type(each.record) for each in found.records] == [type(record) for record in records]
    appended = found.records[2].record
    assert isinstance(appended, AppendRecord)
    assert placed(appended.deliveries) == SHARES
    assert isinstance(found.records[len(APPENDS)].record[0], Type)


@pytest.mark.parametrize("record", [*APPENDS, *MOVES, *OTHERS], ids=lambda record: type(record).__name__)
def test_twins_find_the_same_end_of_what_is_cut_or_broken(record: Record) -> None:
    """Of other marks, too; and no input makes one of them fail."""
    chance = random.Random(1)
    data = group(record)
    compiled = fastest("end_of_whole", end_of_whole, "journal.decoder")
    inputs = [data[:size] for size in range(min(len(data), 150))]
    for _ in range(300):
        broken = bytearray(data)
        broken[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        inputs.append(bytes(broken))

    for each in [data, *inputs]:
        for at in (0, 1, len(each) - 17, len(each) - 16, len(each), len(each) + 9):
            for mark in (MARK, b"87654321"):
                at = max(at, 0)
                assert compiled(each, at, mark) == end_of_whole(each, at, mark)
    assert compiled(data, 0, MARK) > 0


def sealed(record: bytes) -> bytes:
    """A record whose length and checksum hold, whatever is in it."""
    return struct.pack("<II", len(record) - 8, zlib.crc32(record[8:])) + record[8:]


@pytest.mark.parametrize("record", [*APPENDS, *MOVES], ids=lambda record: type(record).__name__)
def test_whole_records_whose_fields_do_not_fit_are_refused_by_both_twins(record: Record) -> None:
    """Nobody writes them; a reader that trusted their lengths would read beyond the end."""
    chance = random.Random(2)
    data = group(record)
    size = end_of_whole(data, 0, MARK)
    compiled = fastest("decode_common", decode_common, "journal.decoder")
    for _ in range(300):
        broken = bytearray(data[: chance.randrange(17, size + 1)])
        for _ in range(chance.randrange(3)):
            broken[chance.randrange(17, len(broken) + 1) - 1] = chance.choice((0, 1, 255))
        broken[16] = data[16]
        each = sealed(bytes(broken))
        assert result(compiled, each) == result(decode_common, each)


def result(decode: object, data: bytes) -> object:
    try:
        return decode(data, 0, len(data))  # type: ignore[operator]
    except (ValueError, struct.error):
        return "refused"


def test_zeros_and_what_an_earlier_segment_left_are_told_apart() -> None:
    """Only zeros behind the last group mean that nothing was cut there."""
    data = group(MoveRecord(Type.HEAD, 1, 1))

    assert scan(data + bytes((1 << 20) + 5), MARK).verdict is Verdict.WHOLE
    assert scan(data + bytes(1 << 20) + b"x", MARK).verdict is Verdict.CUT
    assert scan(data, MARK).verdict is Verdict.WHOLE
