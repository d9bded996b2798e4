"""One moment of a SQLite file in WAL mode, kept while others write on, and copied from there.

Knows no table. The file's log cannot be begun anew while a snapshot is open: it grows by whatever is written meanwhile.
"""

from __future__ import annotations

import contextlib
import sqlite3
from collections.abc import Callable
from pathlib import Path

from iothub.base.errors import BackendError
from iothub_services.sqlite.database import backend_error, check, connect, is_damage

_STEP_PAGES = 1_024  # 4 or 8 MiB between two reports

OnStep = Callable[[int], None]
"""Called with the bytes that a copy has so far; what it raises ends the copy."""


class Snapshot:
    """What was committed when it was opened. One thread at a time.

    Raises BackendError: the file cannot be read. OSError: it is not there.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._connection = connect(path, is_read_only=True)
        except sqlite3.Error as error:
            raise backend_error(error, path, is_committing=False) from error
        try:
            self._connection.execute("BEGIN")
            self.version = self._pragma("user_version")  # the first statement that reads makes it the snapshot
            self._page_bytes = self._pragma("page_size")
            self.size_bytes = self._pragma("page_count") * self._page_bytes
        except sqlite3.Error as error:
            self._connection.close()
            raise backend_error(error, path, is_committing=False) from error

    def log_bytes(self) -> int:
        """Return the size of the file's log just now."""
        with contextlib.suppress(OSError):
            return self.path.with_name(self.path.name + "-wal").stat().st_size
        return 0

    def copy_to(self, target: Path, on_step: OnStep) -> None:
        """Copy everything into an empty file. Raises BackendError: one of the two files fails, or is damaged."""

        def report(_status: int, left: int, total: int) -> None:
            on_step((total - left) * self._page_bytes)

        try:
            with contextlib.closing(sqlite3.connect(target, isolation_level=None)) as copy:
                copy.execute("PRAGMA journal_mode=OFF")  # a copy that is cut off is of no use to anybody
                copy.execute("PRAGMA synchronous=OFF")  # the caller syncs it once
                self._connection.backup(copy, pages=_STEP_PAGES, progress=report)
        except sqlite3.Error as error:
            raise backend_error(error, self.path if is_damage(error) else target, is_committing=False) from error
        self._require_sound(target)

    def close(self) -> None:
        self._connection.close()

    def _pragma(self, name: str) -> int:
        return int(self._connection.execute(f"PRAGMA {name}").fetchone()[0])

    def _require_sound(self, target: Path) -> None:
        """Raise BackendError when the file is damaged: so is the copy, and that nobody wants to find out later."""
        uri = target.absolute().as_uri() + "?immutable=1"  # no log beside it
        try:
            with contextlib.closing(sqlite3.connect(uri, uri=True)) as copy:
                check(copy, self.size_bytes)
        except sqlite3.Error as error:
            remedy = "restart the hub, whose start copies what can be read of it; then back up again"
            raise BackendError(f"{self.path} is damaged ({error})", retryable=False, remedy=remedy) from error
