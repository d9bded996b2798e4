"""A store on one SQLite file: what every such driver has, whatever it stores.

Knows no table and no port; the drivers add their verbs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iothub_services.sqlite.database import Database


class SqliteStore:
    """Belongs to the thread that writes, but for what its port says may be read elsewhere."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def close(self) -> None:
        self._database.close()

    def probe(self) -> None:
        """Commit something small. Raises BackendError: the file takes no writes now."""
        self._database.probe()

    @contextmanager
    def group(self) -> Iterator[None]:
        """Let everything inside share one commit."""
        with self._database.transaction():
            yield
