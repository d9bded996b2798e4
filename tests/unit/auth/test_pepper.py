"""The pepper file."""

from __future__ import annotations

from pathlib import Path

import pytest

from iothub.errors import ConfigError, ConflictError, UnavailableError
from iothub_services.auth.pepper import create_pepper, load_pepper


def test_pepper_is_created_for_its_owner_alone_and_read_back(tmp_path: Path) -> None:
    """Mode 0600 from the first moment."""
    path = tmp_path / "pepper"

    pepper = create_pepper(path)

    assert path.stat().st_mode & 0o777 == 0o600
    assert load_pepper(path) == pepper


def test_pepper_is_never_overwritten(tmp_path: Path) -> None:
    """A second one would lock every device out."""
    create_pepper(tmp_path / "pepper")
    with pytest.raises(ConflictError):
        create_pepper(tmp_path / "pepper")


def test_pepper_that_others_can_read_is_refused(tmp_path: Path) -> None:
    """The start stops and says what to run."""
    create_pepper(tmp_path / "pepper")
    (tmp_path / "pepper").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        load_pepper(tmp_path / "pepper")


def test_pepper_of_a_wrong_length_is_refused(tmp_path: Path) -> None:
    """A truncated file is damage, not a key."""
    path = tmp_path / "pepper"
    create_pepper(path)
    path.write_bytes(b"short")
    with pytest.raises(ConfigError, match="32 bytes"):
        load_pepper(path)


def test_missing_directory_or_file_is_one_clear_line(tmp_path: Path) -> None:
    """No traceback for a person."""
    with pytest.raises(UnavailableError, match="cannot create"):
        create_pepper(tmp_path / "none" / "pepper")
    with pytest.raises(UnavailableError, match="cannot read"):
        load_pepper(tmp_path / "pepper")
