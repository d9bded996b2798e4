"""The journal's files on a disk that loses what is not synced, tears sectors, and fails a sync and then lies: no group is lost, doubled or halved."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub_services.queues.journal.encoding import encode_group
from iothub_services.queues.journal.records import (
    HEADER_BYTES,
    AppendRecord,
    MoveRecord,
    Placed,
    Record,
    Type,
    Verdict,
    encode_header,
    salvage,
    scan,
)
from iothub_services.queues.journal.segments import Journal, Loaded
from tests.support.losing_disk import LosingDisk

SECTOR = 512
SEGMENT_BYTES = 16_384
FOLDER = Path("/journal")


def group_of(number: int, chance: random.Random) -> list[Record]:
    """Return a group that says its number in each of its records."""
    records: list[Record] = [MoveRecord(Type.HEAD, 1, number)]
    for _ in range(chance.randrange(4)):
        body = chance.randbytes(chance.randrange(900))
        records.append(AppendRecord(b"", body, 0, (Placed(number, 1, 1, 0), Placed(number, 2, 2, 1, (7, 8)))))
    return records


def groups_in(loaded: list[Loaded]) -> list[int]:
    assert not any(segment.is_damaged for segment in loaded)
    found = [each.record for segment in loaded for each in segment.records]
    return [record.value for record in found if isinstance(record, MoveRecord)]


@pytest.mark.parametrize("seed", range(150))
def test_what_was_acknowledged_is_there_once_after_any_crash(seed: int) -> None:
    """What failed for certain is not there; what was under way is there as a whole, or not at all."""
    chance = random.Random(seed)
    disk = LosingDisk(chance)
    acknowledged: list[int] = []
    uncertain: set[int] = set()
    number = 0
    for _ in range(6):
        disk.failures = 0.0
        journal = Journal(FOLDER, disk, SEGMENT_BYTES)
        there = groups_in(journal.load(0))
        assert there == sorted(set(there))
        assert set(acknowledged) <= set(there) <= set(acknowledged) | uncertain
        acknowledged, uncertain = there, set()
        disk.failures = chance.choice((0.0, 0.1, 0.4))
        for _ in range(chance.randrange(20)):
            number += 1
            records = group_of(number, chance)
            for _ in range(chance.randrange(1, 4)):  # tries, as the thread with the group commit makes them
                try:
                    group = journal.group()
                    uncertain.clear()
                    for record in records:
                        group.write(record)
                    if not journal.has_room(len(group) + 64):
                        journal.next_segment()
                        continue
                    journal.write(group)
                except BackendError as error:
                    if error.is_written:
                        uncertain.add(number)
                    continue
                acknowledged.append(number)
                break
        disk.crash()


def test_group_with_a_hole_is_a_cut_and_not_damage() -> None:
    """A disk writes sectors in any order: the end of the last group may be there without its middle."""
    data = bytearray(SEGMENT_BYTES)
    data[:HEADER_BYTES] = encode_header(5)
    first = encode_group(5, HEADER_BYTES, [MoveRecord(Type.HEAD, 1, 1)])
    at = HEADER_BYTES + len(first)
    second = encode_group(5, at, [MoveRecord(Type.HEAD, 1, value) for value in range(2, 9)])
    data[HEADER_BYTES:at] = first
    data[at : at + len(second)] = second
    data[at + 20] ^= 0xFF

    found = scan(bytes(data), 5)

    assert (len(found.records), found.end, found.verdict) == (1, at, Verdict.CUT)


def test_broken_record_before_a_later_group_is_damage() -> None:
    """A later group was written after this one was synced: what is whole is kept, on both sides."""
    data = bytearray(SEGMENT_BYTES)
    data[:HEADER_BYTES] = encode_header(5)
    at = HEADER_BYTES
    for value in range(1, 4):
        group = encode_group(5, at, [MoveRecord(Type.HEAD, value, value), MoveRecord(Type.RESERVE, value, 9)])
        data[at : at + len(group)] = group
        at += len(group)
    data[HEADER_BYTES + len(group) + 20] ^= 0xFF

    found = scan(bytes(data), 5)

    assert (len(found.records), found.verdict) == (2, Verdict.DAMAGED)
    assert [each.record[:2] for each in salvage(bytes(data), 5)] == [
        (Type.HEAD, 1),
        (Type.RESERVE, 1),
        (Type.RESERVE, 2),
        (Type.HEAD, 3),
        (Type.RESERVE, 3),
    ]
