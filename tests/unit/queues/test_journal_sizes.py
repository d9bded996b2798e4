"""How large segments of the journal are: what a start makes is small, and no disk is taken by them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from iothub.base.errors import BackendError
from iothub_services.queues.journal.records import AppendRecord, Placed, packed
from iothub_services.queues.journal.segments import Journal
from iothub_services.queues.journal.sizes import FIRST, LARGEST, SMALLEST, SegmentSizes, most_bytes
from tests.support.servers.losing_disk import LosingDisk

MUCH = 1 << 40
MIB = 1 << 20
FOLDER = Path("/journal")


@pytest.fixture
def disk() -> LosingDisk:
    return LosingDisk(random.Random(1))


@pytest.fixture
def journal(disk: LosingDisk) -> Journal:
    made = Journal(FOLDER, disk)
    list(made.load(0))
    return made


def fill(journal: Journal) -> None:
    """Write more than half of the segment."""
    group = journal.group()
    group.write(AppendRecord(b"", bytes(journal.size_bytes // 2 + 1), 0, packed((Placed(1, 1, 1, 0),))))
    journal.write(group)


def checkpoint(journal: Journal) -> None:
    journal.require_room()
    journal.delete(journal.next_segment())


def test_first_segment_is_small_and_those_that_are_used_grow() -> None:
    sizes = SegmentSizes()
    size = sizes.first(MUCH)
    grown = [size]

    while size < LARGEST:
        size = sizes.following(size, size, MUCH)
        grown.append(size)

    assert grown == [FIRST, 2 * FIRST, 4 * FIRST, LARGEST]
    assert sizes.following(LARGEST, LARGEST, MUCH) == LARGEST
    assert sizes.following(FIRST, FIRST // 2, MUCH) == FIRST


@pytest.mark.parametrize(("free_mib", "size_mib"), [(400, 32), (255, 16), (100, 8), (20, 2), (8, 1), (1, 1), (0, 1)])
def test_segment_is_a_small_part_of_what_is_free(free_mib: int, size_mib: int) -> None:
    assert SegmentSizes().following(LARGEST, LARGEST, free_mib * MIB) == size_mib * MIB


def test_segments_take_a_quarter_of_the_disk_at_most() -> None:
    """What is moved into the tables needs as much again; the newest segment and an older one always fit."""
    assert most_bytes(1024 * MIB, LARGEST, 100_000 * MIB) == 1024 * MIB
    assert most_bytes(1024 * MIB, 2 * MIB, 24 * MIB) == 6 * MIB
    assert most_bytes(1024 * MIB, 2 * MIB, 8 * MIB) == 4 * MIB


def test_sizes_below_the_smallest_are_as_they_are_asked_for() -> None:
    """As tests ask for them."""
    sizes = SegmentSizes(4_096)

    assert (sizes.first(MUCH), sizes.following(4_096, 4_096, 0)) == (4_096, 4_096)


def test_blocks_are_used_again_once_segments_grow_no_more(journal: Journal, disk: LosingDisk) -> None:
    made: list[int] = []
    create = disk.create

    def noted(path: Path, size_bytes: int) -> int:
        made.append(size_bytes)
        return create(path, size_bytes)

    disk.create = noted  # type: ignore[method-assign]
    for _ in range(6):
        fill(journal)
        checkpoint(journal)

    assert made == [2 * FIRST, 4 * FIRST, LARGEST, LARGEST]
    assert journal.disk_bytes == 2 * LARGEST


def test_spare_blocks_go_when_the_disk_fills(journal: Journal, disk: LosingDisk) -> None:
    """They are what another segment, and a checkpoint, find room in."""
    for _ in range(6):
        fill(journal)
        checkpoint(journal)
    disk.free = 10 * MIB
    fill(journal)

    checkpoint(journal)

    assert (journal.size_bytes, journal.disk_bytes) == (4 * MIB, 4 * MIB)
    assert len(disk.names(FOLDER)) == 1


def test_journal_begins_on_a_disk_with_hardly_any_room(disk: LosingDisk) -> None:
    disk.free = SMALLEST
    journal = Journal(FOLDER, disk)

    list(journal.load(0))

    assert (journal.size_bytes, journal.disk_bytes) == (SMALLEST, SMALLEST)
    with pytest.raises(BackendError, match="no room for another segment"):
        journal.require_room()


def test_spare_blocks_of_a_process_that_died_are_given_back(journal: Journal, disk: LosingDisk) -> None:
    checkpoint(journal)
    assert "next.spare" in disk.names(FOLDER)

    list(Journal(FOLDER, disk).load(journal.segment - 1))

    assert "next.spare" not in disk.names(FOLDER)


def test_segment_of_one_very_large_message_is_counted_and_not_used_again(journal: Journal, disk: LosingDisk) -> None:
    """The message made the file longer than the others: its blocks as a spare segment would be beyond every limit."""
    group = journal.group()
    group.write(AppendRecord(b"", bytes(9 * MIB), 0, packed((Placed(1, 1, 1, 0),))))
    journal.write(group)
    end = journal.at
    large = journal.disk_bytes, journal.bytes_above(0), journal.has_room(1)

    journal.require_room()
    ended = journal.next_segment()
    journal.delete(ended)

    assert large == (end, end, False)
    assert end > 9 * MIB
    assert journal.size_bytes == journal.disk_bytes == 2 * FIRST
    assert "next.spare" not in disk.names(FOLDER)
