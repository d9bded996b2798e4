"""The events that wait for their webhooks, in a file of each hub's own: they are there after a restart.

Knows no HTTP. All verbs belong to one thread.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from iothub_services.sqlite.database import Database, Schema

ROW_BYTES = 200  # of a row beside its body, about

SCHEMA = Schema(
    name="webhooks",
    version=1,
    tables={"outbox": "events that wait for a webhook"},
    statements=(
        """CREATE TABLE outbox (
            id INTEGER PRIMARY KEY AUTOINCREMENT, webhook INTEGER NOT NULL, event_id TEXT NOT NULL, event TEXT NOT NULL,
            made_ms INTEGER NOT NULL, body BLOB NOT NULL, tries INTEGER NOT NULL, due_ms INTEGER NOT NULL)""",
        "CREATE INDEX outbox_due ON outbox (webhook, due_ms)",
    ),
)


class Waiting(NamedTuple):
    """One event for one webhook. `id`: 0 before it is stored; `tries`: how often it has failed."""

    id: int
    webhook_id: int
    event_id: str
    event: str
    made_ms: int
    body: bytes
    tries: int = 0

    @property
    def size(self) -> int:
        return len(self.body) + ROW_BYTES


class Outbox:
    """Raises BackendError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def add(self, events: Iterable[Waiting]) -> None:
        """One commit for all."""
        with self._database.transaction() as connection:
            connection.executemany(
                """INSERT INTO outbox (webhook, event_id, event, made_ms, body, tries, due_ms)
                    VALUES (?, ?, ?, ?, ?, ?, ?)""",
                [(*each[1:], each.made_ms) for each in events],
            )

    def due(self, webhook_id: int, now_ms: int, most: int) -> list[Waiting]:
        """Return the events of a webhook that may be tried now, those first that are due longest."""
        query = """SELECT id, webhook, event_id, event, made_ms, body, tries FROM outbox
            WHERE webhook = ? AND due_ms <= ? ORDER BY due_ms LIMIT ?"""
        with self._database.reading() as connection:
            return [Waiting(*row) for row in connection.execute(query, (webhook_id, now_ms, most))]

    def next_due_ms(self, webhook_id: int) -> int | None:
        """Return when the next event of a webhook may be tried; None: it has none."""
        query = "SELECT min(due_ms) FROM outbox WHERE webhook = ?"
        with self._database.reading() as connection:
            found: int | None = connection.execute(query, (webhook_id,)).fetchone()[0]
        return found

    def finish(self, done: Sequence[int], deferred: Sequence[tuple[int, int]]) -> None:
        """Remove events, and put others off: (time, id). One commit."""
        with self._database.transaction() as connection:
            connection.executemany("DELETE FROM outbox WHERE id = ?", [(each,) for each in done])
            connection.executemany("UPDATE outbox SET due_ms = ?, tries = tries + 1 WHERE id = ?", deferred)

    def forget(self, webhook_id: int) -> int:
        """Remove all events of a webhook; return how many there were."""
        with self._database.transaction() as connection:
            return connection.execute("DELETE FROM outbox WHERE webhook = ?", (webhook_id,)).rowcount

    def sizes(self) -> dict[int, int]:
        """Return the bytes that wait, by webhook."""
        query = f"SELECT webhook, sum(length(body) + {ROW_BYTES}) FROM outbox GROUP BY webhook"  # noqa: S608
        with self._database.reading() as connection:
            return {webhook: int(size) for webhook, size in connection.execute(query)}

    def close(self) -> None:
        self._database.close()
