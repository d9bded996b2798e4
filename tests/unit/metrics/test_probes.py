"""Looks at the machine: memory, disk, certificates."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub_services.metrics import probes


def test_resident_memory_is_that_of_a_python_process() -> None:
    assert 1 << 20 < probes.resident_bytes() < 1 << 40


def test_free_disk_space_is_a_size(tmp_path: Path) -> None:
    assert probes.disk_free_bytes(tmp_path) >= 0


def test_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="No such file"):
        probes.disk_free_bytes(tmp_path / "gone")


def test_file_without_certificate_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "x.pem").write_text("nothing")

    with pytest.raises(ValueError, match=r"^contains no certificate; expected a PEM file$"):
        probes.certificate_end(tmp_path / "x.pem")
