"""The journal's calls of the operating system (`iothub_services.queues.journal.disk`), and work beside its groups (`journal.beside`)."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from iothub_services.queues.journal.beside import InThread
from iothub_services.queues.journal.disk import RealDisk

SIZE_BYTES = (4 << 20) + 5


def test_file_is_made_with_blocks_of_its_own_for_its_owner_alone(tmp_path: Path) -> None:
    disk, path = RealDisk(), tmp_path / "segment"

    descriptor = disk.create(path, SIZE_BYTES)
    disk.write(descriptor, b"body", SIZE_BYTES - 2)
    found = disk.read_at(descriptor, 100, SIZE_BYTES - 4)
    disk.close(descriptor)

    facts = path.stat()
    assert found == b"\0\0body"
    assert (facts.st_mode & 0o777, facts.st_size) == (0o600, SIZE_BYTES + 2)
    assert facts.st_blocks * 512 >= SIZE_BYTES
    with pytest.raises(FileExistsError):
        disk.create(path, 1)


def test_work_is_done_beside_whoever_has_started_it() -> None:
    beside, may_end = InThread("test"), threading.Event()
    assert beside.is_over

    beside.start(lambda: assert_set(may_end))
    assert not beside.is_over
    may_end.set()
    beside.wait()

    assert beside.is_over


def assert_set(event: threading.Event) -> None:
    assert event.wait(30)


def test_who_waits_gets_the_error_once() -> None:
    beside = InThread("test")

    def fail() -> None:
        raise OSError(28, "No space left on device")

    beside.start(fail)
    with pytest.raises(OSError, match="No space left"):
        beside.wait()

    beside.wait()
