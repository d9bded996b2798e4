"""What each client has asked last of a file, and the answer, stored in the transaction that did it.

Knows no verb. A client whose answer was lost asks for it before it asks for anything else, so the last one is enough.

Invariant: the answer and what it answers are of one commit. Stored a moment later, a process that was killed between the two would say that
nothing was done, and the client would append the same once more.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub_services.sqlite.database import Database

_FORGOTTEN_S = 86_400  # a client that has asked nothing for so long has its answer, or is gone

# Beside the tables of the file's schema, and no part of its version: a hub without workers neither makes nor reads it.
_CREATE = """CREATE TABLE IF NOT EXISTS request (
    client BLOB PRIMARY KEY, number INTEGER NOT NULL, answer BLOB NOT NULL, at_s INTEGER NOT NULL) WITHOUT ROWID"""
_KEEP = "INSERT OR REPLACE INTO request VALUES (?, ?, ?, ?)"
_FIND = "SELECT answer FROM request WHERE client = ? AND number = ?"
_FORGET = "DELETE FROM request WHERE at_s < ?"


class KeptAnswer(NamedTuple):
    """One request that was done."""

    client: bytes
    number: int
    answer: bytes


class Requests:
    """In the thread that writes the file."""

    def __init__(self, database: Database, clock: Clock) -> None:
        """Make the table in a file that has none yet. Raises BackendError."""
        self._database = database
        self._clock = clock
        with database.transaction() as connection:
            connection.execute(_CREATE)
            connection.execute(_FORGET, (int(clock.wall()) - _FORGOTTEN_S,))

    def keep(self, answers: Iterable[KeptAnswer]) -> None:
        """Store answers with what was done for them: inside its transaction."""
        now = int(self._clock.wall())
        with self._database.transaction() as connection:
            connection.executemany(_KEEP, [(*each, now) for each in answers])

    def find(self, client: bytes, number: int) -> bytes | None:
        """Return the answer to this request, None if it was never done."""
        with self._database.transaction() as connection:
            found: sqlite3.Row | None = connection.execute(_FIND, (client, number)).fetchone()
        return None if found is None else bytes(found[0])
