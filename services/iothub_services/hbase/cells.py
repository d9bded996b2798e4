"""What the cells of our stores on HBase have in common: a version in their first byte.

Knows no table.
"""

from __future__ import annotations

from iothub.errors import CorruptRecordError, FutureRecordError


def require_version(value: bytes, known: int, where: str) -> None:
    """Raise CorruptRecordError for a cell without a version, FutureRecordError for one of a newer program, naming `where` it is."""
    if not value or not value[0]:
        raise CorruptRecordError(f"{where}: a damaged cell ({value[:16].hex() or 'empty'})")
    if value[0] > known:
        raise FutureRecordError(f"{where}: format version {value[0]}, this program knows {known}: upgrade it")
