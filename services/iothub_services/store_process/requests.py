"""What each client has asked last of a file, and the answer, stored in the transaction that did it.

Knows no verb. A client whose answer was lost asks for it before it asks for anything else, so the last one is enough.

Invariant: the answer and what it answers are of one commit. Stored a moment later, a process that was killed between the two would say that
nothing was done, and the client would append the same once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub_services.sqlite import request_table
from iothub_services.sqlite.database import Database

_FORGOTTEN_S = 86_400  # a client that has asked nothing for so long has its answer, or is gone


Row = tuple[bytes, int, bytes, int]


class KeptAnswer(NamedTuple):
    """One request that was done."""

    client: bytes
    number: int
    answer: bytes


class Requests:
    """In the thread that writes the file."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Make the table in a file that has none yet. Raises BackendError."""
        self._do_keep: Callable[[Sequence[Row]], None] = self._keep_rows
        self._database = database
        self._clock = clock
        with database.transaction() as connection:
            connection.execute(request_table.CREATE)
            connection.execute(request_table.FORGET, (int(clock.wall()) - _FORGOTTEN_S,))

    def keep_with(self, keep: Callable[[Sequence[Row]], None]) -> None:
        """Let a store with a journal keep them, in a group of its own making."""
        self._do_keep = keep

    def keep(self, answers: Iterable[KeptAnswer]) -> None:
        """Store answers with what was done for them: inside its transaction."""
        now = int(self._clock.wall())
        self._do_keep([(*each, now) for each in answers])

    def find(self, client: bytes, number: int) -> bytes | None:
        """Return the answer to this request, None if it was never done."""
        with self._database.transaction() as connection:
            found: sqlite3.Row | None = connection.execute(request_table.FIND, (client, number)).fetchone()
        return None if found is None else bytes(found[0])

    def _keep_rows(self, rows: Sequence[Row]) -> None:
        with self._database.transaction() as connection:
            connection.executemany(request_table.KEEP, rows)
