"""Reads and writes the table of the hubs that share stores: which hubs there are, their heartbeats, and their successors.

Knows no session and no clock of another machine: a heartbeat is a counter, and a hub that sees it unchanged measures the time by its own clock.

Theory: a node number has one row. A hub starts by replacing the row that it has read with its own, with a higher incarnation; from then on only
it raises the counter. A hub that finds the counter unchanged for too long writes itself into the row as the successor: of several that try, one
succeeds, and none does once the counter has risen.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import hub as table

NO_SUCCESSOR = -1  # the row's hub lives, or no other hub has taken over yet


@dataclass(frozen=True, slots=True)
class HubRow:
    """One hub.

    `heartbeat`: rises while it lives. `is_ended`: it has deregistered. `successor`: the hub that took over its sessions. `address`: where other
    hubs connect to it; empty: nowhere.
    """

    number: int
    incarnation: int
    name: str
    started_ms: int
    heartbeat: int
    is_ended: bool = False
    successor: int = NO_SUCCESSOR
    address: str = ""
    version: str = ""

    @property
    def is_over(self) -> bool:
        """Whether it is gone, and comes back under this incarnation only if it was declared gone by mistake."""
        return self.is_ended or self.successor != NO_SUCCESSOR


def read(store: AccountStore) -> list[HubRow]:
    """Return every hub that was ever there, ascending by number. Raises BackendError."""
    with store.read() as connection:
        return _rows(connection)


def begin(
    store: AccountStore, number: int, name: str, before: HubRow | None, address: str = "", version: str = ""
) -> HubRow | None:
    """Become this number's hub if its counter has not changed since `before` was read; None: it has.

    Raises BackendError, ConflictError (another hub has just become it).
    """
    with store.write() as writer:
        found = next((row for row in _rows(writer.connection) if row.number == number), None)
        if _counter_of(found) != _counter_of(before):
            return None
        incarnation = max(writer.now_ms, 0 if before is None else before.incarnation + 1)
        row = HubRow(number, incarnation, name, writer.now_ms, heartbeat=1, address=address, version=version)
        if before is None:
            writer.connection.execute(insert(table).values(_values(row)))
        else:
            writer.connection.execute(update(table).where(table.c.number == number).values(_values(row)))
        return row


def heartbeat(store: AccountStore, number: int, incarnation: int) -> list[HubRow]:
    """Raise the own counter and return every row as it is then; the successor is removed from the own row, for its hub lives.

    Nothing is written when the number has another hub by now; the caller sees it in the answer. Raises BackendError.
    """
    with store.write() as writer:
        values = {"beat": table.c.beat + 1, "heir": NO_SUCCESSOR, "is_ended": False}
        writer.connection.execute(update(table).where(_is(number, incarnation)).values(values))
        return _rows(writer.connection)


def end(store: AccountStore, number: int, incarnation: int) -> None:
    """Deregister. Raises BackendError."""
    with store.write() as writer:
        writer.connection.execute(update(table).where(_is(number, incarnation)).values(is_ended=True))


def take_over(store: AccountStore, seen: HubRow, successor: int) -> bool:
    """Become the successor of a hub; False: its counter has risen, or another hub was quicker. Raises BackendError."""
    with store.write() as writer:
        is_same = _is(seen.number, seen.incarnation) & (table.c.beat == seen.heartbeat) & (table.c.heir == NO_SUCCESSOR)
        return _count(writer, update(table).where(is_same).values(heir=successor)) == 1


def _counter_of(row: HubRow | None) -> tuple[int, int] | None:
    return None if row is None else (row.incarnation, row.heartbeat)


def _count(writer: Writer, statement: object) -> int:
    return int(writer.connection.execute(statement).rowcount)  # type: ignore[call-overload]


def _is(number: int, incarnation: int) -> ColumnElement[bool]:
    return (table.c.number == number) & (table.c.incarnation == incarnation)


def _rows(connection: Connection) -> list[HubRow]:
    return [_row(row) for row in connection.execute(select(table).order_by(table.c.number))]


def _row(row: Row[tuple[object, ...]]) -> HubRow:
    return HubRow(
        row.number,
        row.incarnation,
        row.name,
        row.started_ms,
        row.beat,
        bool(row.is_ended),
        row.heir,
        row.address,
        row.version,
    )


def _values(row: HubRow) -> dict[str, object]:
    return {
        "number": row.number,
        "incarnation": row.incarnation,
        "name": row.name,
        "started_ms": row.started_ms,
        "beat": row.heartbeat,
        "is_ended": row.is_ended,
        "heir": row.successor,
        "address": row.address,
        "version": row.version,
    }
