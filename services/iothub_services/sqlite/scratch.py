"""Working copies of a damaged SQLite file: as it is, or with another first page; and how to open one at all.

Knows the file format's header only, and no table.

Theory: the first page says where each table begins. All files of one schema are made by the same statements in the same order, so a fresh
one says what the damaged one said. Which pages are free cannot be known any more, but no table leads there.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sqlite3
from pathlib import Path

_PRIVATE = 0o600
_PAGE_BYTES = slice(16, 18)  # of the header; 1 means 65,536
_CHANGES = slice(24, 28)
_PAGES = slice(28, 32)
_VALID_FOR = slice(92, 96)  # the number of changes when the number of pages was written: else that is not believed


def open_damaged(path: Path) -> sqlite3.Connection:
    """Open a file that may be shorter than it says, which a usual connection refuses to read."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA writable_schema=ON")
    return connection


def copy(path: Path, scratch: Path) -> None:
    """Copy a database with its log, and put the log's pages into their places. Raises OSError."""
    for suffix in ("", "-wal"):
        with contextlib.suppress(FileNotFoundError):
            _copy_private(path.with_name(path.name + suffix), scratch.with_name(scratch.name + suffix))
    with (
        contextlib.suppress(sqlite3.DatabaseError),
        contextlib.closing(open_damaged(scratch)) as connection,
    ):
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def copy_and_replace(path: Path, scratch: Path, template: Path) -> None:
    """Copy, and take the first page from `template`. Raises OSError."""
    copy(path, scratch)
    page = bytearray(template.read_bytes()[: page_bytes(template)])
    page[_PAGES] = (scratch.stat().st_size // len(page)).to_bytes(4)
    page[_VALID_FOR] = page[_CHANGES]
    with scratch.open("r+b") as file:
        file.write(page)


def page_bytes(path: Path) -> int:
    """Return the size of a page, as the header says it."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(18)[_PAGE_BYTES])
    return 65_536 if size == 1 else size


def _copy_private(path: Path, copied: Path) -> None:
    descriptor = os.open(copied, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, _PRIVATE)
    with path.open("rb") as source, os.fdopen(descriptor, "wb") as target:
        shutil.copyfileobj(source, target, 1 << 20)
