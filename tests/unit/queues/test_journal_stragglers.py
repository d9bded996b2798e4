"""Few messages do not keep old segments on the disk, nor for the next start."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub_services.queues.journal import flush
from iothub_services.queues.port import Move, MoveKind
from tests.support.journaled_queues import Open, append, bodies, made, rows
from tests.support.servers.losing_disk import LosingDisk, abandon

BODY = bytes(8_192)
SEGMENTS = 12


def segments(disk: LosingDisk, tmp_path: Path) -> int:
    return len([name for name in disk.names(tmp_path / "queues.journal") if name.endswith(".segment")])


def test_client_that_stays_away_does_not_keep_what_others_have_read(
    opened: Open, disk: LosingDisk, tmp_path: Path
) -> None:
    """Its messages are moved into the tables, and are there at the next start, once."""
    store = opened()
    made(store, 1, 2)
    append(store, b"first", queue_ids=(2,))
    append(store, b"second", queue_ids=(1, 2))
    for number in range(2, SEGMENTS * 7):
        append(store, BODY)
        store.apply([Move(MoveKind.ACK, 1, 1, number)])

    assert store._journal.segment >= SEGMENTS
    assert segments(disk, tmp_path) <= 6
    assert rows(tmp_path, "ref") == 2
    assert bodies(store, 2) == [b"first", b"second"]
    abandon(store)
    disk.crash()
    assert bodies(opened(), 2) == [b"first", b"second"]


@pytest.mark.parametrize(("name", "most"), [("STRAGGLERS", 1), ("_STRAGGLER_BYTES", 3)])
def test_what_is_more_than_a_moment_stays(
    opened: Open, disk: LosingDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, most: int
) -> None:
    monkeypatch.setattr(flush, name, most)
    store = opened()
    made(store, 1, 2)
    append(store, b"ab", b"cd", queue_ids=(2,))
    for number in range(1, SEGMENTS * 7):
        append(store, BODY)
        store.apply([Move(MoveKind.ACK, 1, 1, number)])

    assert segments(disk, tmp_path) >= SEGMENTS
    assert rows(tmp_path, "ref") == 0
    assert bodies(store, 2) == [b"ab", b"cd"]
    store.close()
