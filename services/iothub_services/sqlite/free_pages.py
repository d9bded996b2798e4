"""What nothing is in of a SQLite file: it is used again, or given back to the disk when nearly all of the file is like that.

Knows no table.

Theory: SQLite keeps pages that became free in the file. `VACUUM` writes what is left into the log once more, so it is worth its while where that
is little; a file of which much is left keeps its size, and whoever asks how much room there is must count what it has free.
"""

from __future__ import annotations

import sqlite3
from contextlib import suppress
from functools import partial
from pathlib import Path

from iothub.base import log as logging
from iothub_services.metrics.probes import disk_free_bytes

GIVEN_BACK_BYTES = 64 << 20  # less is not worth it, unless the disk has less
_LEAST_BYTES = 4 << 20
_MOST_LEFT_BYTES = 16 << 20  # that are written anew: a tenth of a second
_LOG_ROOM_BYTES = 2 << 20  # that the disk must have beside what is written anew

log = logging.get(__name__)


class FreePages:
    """As of the last look. `size_bytes`: any thread may read it."""

    def __init__(self, connection: sqlite3.Connection, file: Path) -> None:
        """`connection` is used also while it is lent to the thread that commits."""
        self._file = file
        self._execute = partial(sqlite3.Connection.execute, connection)
        (self._page_bytes,) = self._execute("PRAGMA page_size").fetchone()
        self._free_bytes = self._left_bytes = 0
        self._kept_bytes = 0  # by an attempt that failed
        self.size_bytes = 0
        self.look()

    def look(self) -> None:
        """Count them; what the transaction has freed too. Raises sqlite3.Error."""
        (free,), (pages,) = (self._execute(f"PRAGMA {name}").fetchone() for name in ("freelist_count", "page_count"))
        self._free_bytes, self._left_bytes = free * self._page_bytes, (pages - free) * self._page_bytes
        self._kept_bytes = min(self._kept_bytes, self._free_bytes)
        try:  # what was given back while somebody read is in the file still
            self.size_bytes = max(self._free_bytes, self._file.stat().st_size - self._left_bytes)
        except OSError:
            self.size_bytes = self._free_bytes

    @property
    def are_most(self) -> bool:
        """Whether it is worth the while to give them back, and the disk has room for what that writes."""
        found = self._free_bytes - self._kept_bytes
        if found < _LEAST_BYTES or self._left_bytes > _MOST_LEFT_BYTES:
            return False
        try:
            free = disk_free_bytes(self._file.parent)
        except OSError:
            return False  # the folder is gone
        return found >= min(GIVEN_BACK_BYTES, free) and free >= self._left_bytes + _LOG_ROOM_BYTES

    def give_back(self) -> None:
        """Write the file anew, outside of a transaction; what fails is left for when there are more."""
        try:
            self._execute("VACUUM")
        except sqlite3.Error as error:
            log.warning("free pages of a file could not be given back to the disk", why=str(error))
            self._kept_bytes = self._free_bytes
        self._empty_log()
        with suppress(sqlite3.Error):  # whoever looks next meets it again
            self.look()

    def _empty_log(self) -> None:
        """Copy the log into the file, also what a failed attempt has written; not while somebody reads: a later commit does it."""
        (timeout_ms,) = self._execute("PRAGMA busy_timeout").fetchone()
        try:
            self._execute("PRAGMA busy_timeout=0")
            self._execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        except sqlite3.Error as error:
            log.warning("the log of a file could not be copied into it", why=str(error))
        finally:
            self._execute(f"PRAGMA busy_timeout={timeout_ms}")
