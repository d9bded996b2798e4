"""Queues whose own row was lost with a damaged page: made anew from what the sessions say and what was saved of their messages.

Knows the tables; knows no session but where its queue was.

Theory. A session's state says its queue, its tenant and its reader epoch. Head and tail come from the positions that were saved: what is in
the tables was not acknowledged, so the head lies before the first. Positions that were ever sent lie less than a window's span above the head,
so nothing more than `_GAP` above the last saved one can have been sent. With no position saved the tail is the time in microseconds: no queue
was ever that long, whatever it held.

Invariant: the new tail is above every position that was ever sent: a position issued twice would look acknowledged, and its message be lost.
`reserved` is the new tail: everything up to it may have been sent before, so what was saved goes out with DUP=1.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import NamedTuple

from iothub_services.queues.port import Place, QueueLimits, Rebuilt
from iothub_services.queues.sqlite import schema
from iothub_services.queues.sqlite.row_cache import QueueRow, QueueRowCache

_GAP = 1 << 17  # twice the span of a window: 65,535 Packet Identifiers
_CLAIMS = 1_000  # claims that may have been made without the session's state knowing it


class _Saved(NamedTuple):
    """What the tables have of one queue without a row."""

    first: int
    last: int
    messages: int = 0
    bytes: int = 0
    qos0: int = 0


def rebuild(connection: sqlite3.Connection, rows: QueueRowCache, places: Iterable[Place], now_us: int) -> Rebuilt:
    """Make the rows that are missing, inside the caller's transaction; what belongs to no session is marked for removal.

    Limits are the port's defaults: whoever knows the tenant's sets them before anything is appended.
    """
    known = {queue_id for (queue_id,) in connection.execute("SELECT id FROM queue")}
    saved = _saved(connection)
    queues = messages = empty = 0
    for place in places:
        if place.queue_id in known:
            continue
        known.add(place.queue_id)
        found = saved.get(place.queue_id)
        row = _row(place, found, now_us)
        rows.insert_full(row)
        queues += 1
        messages += row.messages
        empty += not row.messages
    for statement in schema.CLEAR_LOST:
        connection.execute(statement)
    return Rebuilt(queues, messages, empty)


def _row(place: Place, saved: _Saved | None, now_us: int) -> QueueRow:
    row = QueueRow(place.queue_id, place.tenant_id, place.epoch + _CLAIMS, QueueLimits())
    if saved is None:
        row.head = row.tail = now_us
    else:
        row.head = saved.first - 1
        row.tail = saved.last + _GAP
        row.messages, row.bytes, row.qos0 = saved.messages, saved.bytes, saved.qos0
    row.reserved = row.tail
    return row


def _saved(connection: sqlite3.Connection) -> dict[int, _Saved]:
    saved = {queue_id: _Saved(*rest) for queue_id, *rest in connection.execute(schema.SUM_OF_LOST)}
    for queue_id, first, last in connection.execute(schema.RELEASED_OF_LOST):
        before = saved.get(queue_id, _Saved(first, last))
        saved[queue_id] = before._replace(first=min(first, before.first), last=max(last, before.last))
    return saved
