"""`iothub_services.metrics.disk_room`: publishers wait while the disk has only what is reserved for those who make room."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from iothub.testing.clock import ManualClock
from iothub_services.metrics.alarms import Alarms
from iothub_services.metrics.disk_room import DiskRoom
from iothub_services.metrics.probes import disk_free_and_size

MIB = 1 << 20


class Disk:
    """A disk whose figures the test decides, and who waits because of them."""

    def __init__(self, size: int = 600 * MIB) -> None:
        self.size = size
        self.free: int | None = size
        self.reusable = 0
        self.held: list[bool] = []
        self.alarms = Alarms(ManualClock())
        self.room = DiskRoom(Path("/data"), self.held.append, lambda: self.reusable, self.alarms, self._figures)

    def look(self, free: int | None, reusable: int = 0) -> bool:
        """Return whether publishers wait after a look."""
        self.free, self.reusable = free, reusable
        with suppress(StopIteration):
            self.room.look().send(None)
        assert bool(self.alarms.active()) == self.held[-1]
        return self.held[-1]

    def _figures(self, _path: Path) -> tuple[int, int]:
        if self.free is None:
            raise FileNotFoundError
        return self.free, self.size


def test_publishers_wait_while_only_the_reserve_is_left() -> None:
    disk = Disk()
    assert not disk.look(200 * MIB)
    assert disk.look(200 * MIB - 1)
    (alarm,) = disk.alarms.active()
    assert (alarm.name.word, alarm.name.severity) == ("disk_short", "critical")
    assert alarm.detail == "200.0 MiB free, 200.0 MiB are reserved for consumers"

    assert disk.look(210 * MIB), "it does not flicker"
    assert not disk.look(230 * MIB)


@pytest.mark.parametrize(("size", "reserved"), [(64 * MIB, 64 * MIB // 3), (100 << 30, 256 * MIB)])
def test_reserve_is_a_third_of_the_disk_or_256_mib(size: int, reserved: int) -> None:
    disk = Disk(size)

    assert not disk.look(reserved)
    assert disk.look(reserved - 1)


def test_what_is_empty_in_the_file_is_room_unless_logs_have_none() -> None:
    disk = Disk()

    assert not disk.look(100 * MIB, reusable=100 * MIB)
    assert disk.look(100 * MIB, reusable=99 * MIB)
    assert not disk.look(60 * MIB, reusable=1 << 30)
    assert disk.look(49 * MIB, reusable=1 << 30)


def test_folder_that_is_gone_changes_nothing() -> None:
    disk = Disk()
    assert disk.look(1 * MIB)

    assert disk.look(None)
    assert disk.held == [True]


def test_figures_are_those_of_the_file_system(tmp_path: Path) -> None:
    free, size = disk_free_and_size(tmp_path)

    assert 0 < free <= size
