"""The version in a cell's first byte: known, of a newer program, or none."""

from __future__ import annotations

import pytest

from iothub.errors import CorruptRecordError, FutureRecordError
from iothub_services.hbase.cells import require_version


@pytest.mark.parametrize("value", [b"\1", b"\1x", b"\2x"])
def test_known_versions_pass(value: bytes) -> None:
    require_version(value, 2, "here")


def test_newer_version_is_told_from_damage() -> None:
    """One is whole and must not be skipped, the other is refused by name."""
    with pytest.raises(FutureRecordError, match="here: format version 3, this program knows 2: upgrade it"):
        require_version(b"\3", 2, "here")
    for value, shown in ((b"", "empty"), (b"\0\1", "0001")):
        with pytest.raises(CorruptRecordError, match=f"here: a damaged cell \\({shown}\\)") as caught:
            require_version(value, 2, "here")
        assert not isinstance(caught.value, FutureRecordError)
