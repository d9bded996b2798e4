"""The journal's files on a disk that loses what is not synced, tears sectors, and fails a sync and then lies: no group is lost, doubled or halved."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub_services.queues.journal.decoding import Verdict, salvage, scan
from iothub_services.queues.journal.encoding import encode_group
from iothub_services.queues.journal.records import AppendRecord, MoveRecord, Placed, Record, Type, packed
from iothub_services.queues.journal.segments import MISSING, Journal, Loaded
from tests.support.servers.losing_disk import LosingDisk

SECTOR = 512
SEGMENT_BYTES = 16_384
FOLDER = Path("/journal")
MARK = b"12345678"


def group_of(number: int, chance: random.Random) -> list[Record]:
    """Return a group that says its number in each of its records."""
    records: list[Record] = [MoveRecord(Type.HEAD, 1, number)]
    for _ in range(chance.randrange(4)):
        body = chance.randbytes(chance.randrange(900))
        records.append(AppendRecord(b"", body, 0, packed((Placed(number, 1, 1, 0), Placed(number, 2, 2, 1, (7, 8))))))
    return records


def groups_in(loaded: list[Loaded]) -> list[int]:
    assert not any(segment.is_damaged for segment in loaded)
    found = [each.record for segment in loaded for each in segment.records]
    return [record.value for record in found if isinstance(record, MoveRecord)]


def written(journal: Journal, record: Record) -> None:
    group = journal.group()
    group.write(record)
    journal.write(group)


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
        there = groups_in(list(journal.load(0)))
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
    first = encode_group(MARK, 0, [MoveRecord(Type.HEAD, 1, 1)])
    at = len(first)
    second = encode_group(MARK, at, [MoveRecord(Type.HEAD, 1, value) for value in range(2, 9)])
    data[:at] = first
    data[at : at + len(second)] = second
    data[at + 20] ^= 0xFF

    found = scan(bytes(data), MARK)

    assert (len(found.records), found.end, found.verdict) == (1, at, Verdict.CUT)


def test_broken_record_before_a_later_group_is_damage() -> None:
    """A later group was written after this one was synced: what is whole is kept, on both sides."""
    data = bytearray(SEGMENT_BYTES)
    at = 0
    for value in range(1, 4):
        group = encode_group(MARK, at, [MoveRecord(Type.HEAD, value, value), MoveRecord(Type.RESERVE, value, 9)])
        data[at : at + len(group)] = group
        at += len(group)
    data[len(group) + 20] ^= 0xFF

    found = scan(bytes(data), MARK)

    assert (len(found.records), found.verdict) == (2, Verdict.DAMAGED)
    assert [each.record[:2] for each in salvage(bytes(data), MARK)] == [
        (Type.HEAD, 1),
        (Type.RESERVE, 1),
        (Type.RESERVE, 2),
        (Type.HEAD, 3),
        (Type.RESERVE, 3),
    ]


def test_body_is_no_record_whatever_it_holds() -> None:
    """Blocks are used again with the bodies of the segment before: a client may have written what looks like a group behind a broken one."""
    disk = LosingDisk(random.Random(1))
    journal = Journal(FOLDER, disk, SEGMENT_BYTES)
    list(journal.load(0))
    numbers = [number.to_bytes(8, "little") for number in range(6)]
    forged = [encode_group(mark, SEGMENT_BYTES, [MoveRecord(Type.HEAD, 7, 7)]) for mark in numbers]
    written(journal, AppendRecord(b"", b"".join(forged) * 20, 0, packed((Placed(1, 1, 1, 0),))))
    for _ in range(2):  # the blocks are used again by the next but one
        journal.delete(journal.next_segment())
    written(journal, MoveRecord(Type.HEAD, 1, 1))
    disk.crash()

    (loaded,) = Journal(FOLDER, disk, SEGMENT_BYTES).load(journal.segment - 1)

    assert (loaded.is_damaged, [each.record for each in loaded.records]) == (False, [MoveRecord(Type.HEAD, 1, 1)])


def test_segment_that_another_one_names_and_is_not_there_is_missing() -> None:
    disk = LosingDisk(random.Random(1))
    journal = Journal(FOLDER, disk, SEGMENT_BYTES)
    list(journal.load(0))
    written(journal, MoveRecord(Type.HEAD, 1, 1))
    (name,) = disk.names(FOLDER)
    journal.next_segment()
    written(journal, MoveRecord(Type.HEAD, 1, 2))
    disk.remove(FOLDER / name)

    loaded = list(Journal(FOLDER, disk, SEGMENT_BYTES).load(0))

    assert [(each.segment, each.damage, len(each.records)) for each in loaded] == [(1, MISSING, 0), (2, "", 1)]
    assert [each.segment for each in Journal(FOLDER, disk, SEGMENT_BYTES).load(1)] == [2, 3]
    assert [each.segment for each in Journal(FOLDER, disk, SEGMENT_BYTES).load(None)] == [2, 3, 4]


def test_segments_of_a_start_can_be_read_back() -> None:
    """As a start does it whose commit fails: two, after a checkpoint that was cut."""
    disk = LosingDisk(random.Random(1))
    journal = Journal(FOLDER, disk, SEGMENT_BYTES)
    list(journal.load(0))
    written(journal, MoveRecord(Type.HEAD, 1, 1))
    journal.next_segment()
    written(journal, MoveRecord(Type.HEAD, 1, 2))
    again = Journal(FOLDER, disk, SEGMENT_BYTES)
    list(again.load(0))

    assert [
        each.record.value
        for loaded in again.read_back(0)
        for each in loaded.records
        if isinstance(each.record, MoveRecord)
    ] == [1, 2]


def test_nothing_is_written_behind_an_attempt_that_ended_in_any_way(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = LosingDisk(random.Random(1))
    journal = Journal(FOLDER, disk, SEGMENT_BYTES)
    list(journal.load(0))

    def fail(_descriptor: int) -> None:
        raise MemoryError

    monkeypatch.setattr(disk, "sync", fail)
    with pytest.raises(MemoryError):
        written(journal, MoveRecord(Type.HEAD, 1, 1))

    assert journal.is_poisoned
