"""The mapped file of counters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from iothub.base.errors import UnavailableError
from iothub_services.quota.slots import SLOTS, SlotFile


def test_counters_are_there_when_the_file_is_opened_again(tmp_path: Path) -> None:
    """Without any close, as after kill -9."""
    first = SlotFile(tmp_path / "usage.map")
    slot = first.take_slot(11, 2**32 - 1, 86_400, 1000, 5)
    first.set_used(slot, 2**63)

    (record,) = SlotFile(tmp_path / "usage.map").records()

    assert (record.digest, record.tenant_id, record.seconds, record.start, record.used) == (
        11,
        2**32 - 1,
        86_400,
        1000,
        2**63,
    )
    assert record.slot == slot
    first.close()


def test_released_slots_are_used_again(tmp_path: Path) -> None:
    """And only free ones are given away after a restart."""
    first = SlotFile(tmp_path / "usage.map")
    kept, gone = first.take_slot(1, 1, 1, 1, 1), first.take_slot(2, 1, 1, 1, 1)
    first.release(gone)
    first.close()
    second = SlotFile(tmp_path / "usage.map")

    assert second.take_slot(3, 1, 1, 1, 1) != kept
    assert {record.digest for record in second.records()} == {1, 3}
    second.close()


def test_full_file_says_so(tmp_path: Path) -> None:
    """Slot 0 is no slot."""
    slots = SlotFile(tmp_path / "usage.map")
    taken = {slots.take_slot(number + 1, 1, 1, 1, 0) for number in range(SLOTS)}

    assert 0 not in taken
    assert len(taken) == SLOTS
    assert slots.take_slot(99_999, 1, 1, 1, 0) == 0
    slots.close()


@pytest.mark.parametrize("content", [b"", b"short", b"x" * (SLOTS + 1) * 32])
def test_file_of_another_form_is_begun_anew(tmp_path: Path, content: bytes) -> None:
    """It is only a mirror; the database knows the rest."""
    (tmp_path / "usage.map").write_bytes(content)
    slots = SlotFile(tmp_path / "usage.map")

    assert list(slots.records()) == []
    assert slots.take_slot(1, 1, 1, 1, 0)
    slots.close()


def test_full_disk_is_an_error_at_the_start_and_never_later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No half-made file is mapped: writing to it would end in a signal."""

    def refuse(*_: int) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(
        UnavailableError,
        match=r"usage\.map: No space left on device \(.* free in .*; the file takes 512.0 KiB\); free some disk space first",
    ):
        SlotFile(tmp_path / "usage.map")


def test_unwritable_directory_is_one_clear_line(tmp_path: Path) -> None:
    """No traceback for a person."""
    with pytest.raises(UnavailableError, match="cannot use"):
        SlotFile(tmp_path / "none" / "usage.map")
