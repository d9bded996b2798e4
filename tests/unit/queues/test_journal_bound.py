"""What a start has to do again is bounded, whatever the segments have: messages for many queues too."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub_services.queues.journal import tables
from iothub_services.queues.journal.decoding import scan
from iothub_services.queues.journal.records import AppendRecord, placed
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.port import Move, MoveKind
from tests.support.journaled_queues import Open, append, bodies, made
from tests.support.servers.losing_disk import LosingDisk, abandon

QUEUES = tuple(range(1, 101))
MESSAGES = 200
SEGMENT_BYTES = 16_384  # seven messages for a hundred queues
MOST_STEPS = 400
MOST_DELIVERIES = 8_000  # of 400 steps, and one segment


@pytest.fixture
def store(opened: Open, monkeypatch: pytest.MonkeyPatch) -> JournaledQueues:
    monkeypatch.setattr(tables, "JOURNAL_STEPS", MOST_STEPS)
    monkeypatch.setattr(tables, "SEGMENT_RECORDS", 100)
    store = opened(segment_bytes=SEGMENT_BYTES, journal_bytes=1 << 30)
    with store.group():
        made(store, *QUEUES)
    return store


def publish(store: JournaledQueues, *, readers: tuple[int, ...]) -> None:
    """Give messages to all queues; some are read, ten at a time."""
    for number in range(1, MESSAGES + 1):
        append(store, number.to_bytes(2), queue_ids=QUEUES)
        if number % 10 == 0:
            store.apply([Move(MoveKind.ACK, queue_id, 1, number) for queue_id in readers])


def deliveries(disk: LosingDisk, folder: Path) -> int:
    """Count what is in the segments."""
    found = 0
    for name in disk.names(folder):
        _, *mark, suffix = name.split(".")
        if not mark or suffix != "segment":
            continue
        records = [each.record for each in scan(disk.read(folder / name), bytes.fromhex(mark[0])).records]
        found += sum([len(placed(each.deliveries)) for each in records if isinstance(each, AppendRecord)])
    return found


@pytest.mark.parametrize("readers", [QUEUES[1:], ()], ids=["one stays away", "all stay away"])
def test_messages_for_many_queues_do_not_make_a_start_long(
    store: JournaledQueues, opened: Open, disk: LosingDisk, tmp_path: Path, readers: tuple[int, ...]
) -> None:
    """They take few bytes and few records, but a start looks at each queue's share: 20,000 there would be without a bound."""
    publish(store, readers=readers)
    abandon(store)
    disk.crash()

    assert deliveries(disk, tmp_path / "queues.journal") <= MOST_DELIVERIES
    again = opened(segment_bytes=SEGMENT_BYTES)
    expected = [number.to_bytes(2) for number in range(1, MESSAGES + 1)]
    assert bodies(again) == expected
    assert bodies(again, QUEUES[-1]) == ([] if readers else expected)


def test_start_counts_what_it_has_read(store: JournaledQueues, opened: Open, disk: LosingDisk) -> None:
    """So a hub that is killed again and again keeps within the bound."""
    for _ in range(6):
        append(store, b"x", queue_ids=QUEUES)
    steps = store._journal.steps_above(0)
    abandon(store)
    disk.crash()

    again = opened(segment_bytes=SEGMENT_BYTES)

    assert steps > 6 * len(QUEUES) // 16
    assert again._journal.steps_above(0) >= steps - 6 * 2  # without what ends a group
