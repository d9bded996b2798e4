"""The table of the hubs that share stores: who there is, who still lives, and who took over from whom.

Knows no session and no clock of another machine: a heartbeat is a counter, and whoever sees it stand still judges by the own clock.

Theory: a node number has one row. A hub begins by swapping the row that it has seen for its own, with a higher incarnation; from then on only
it moves the counter. Whoever finds the counter standing still swaps in itself as the heir: of several that try, one succeeds, and none does
once the counter has moved.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import hub as table

NOBODY = -1  # as heir: the row's hub lives, or nobody has taken over yet


@dataclass(frozen=True, slots=True)
class HubRow:
    """One hub. `beat`: rises while it lives. `is_ended`: it has said goodbye. `heir`: who took over its sessions."""

    number: int
    incarnation: int
    name: str
    started_ms: int
    beat: int
    is_ended: bool = False
    heir: int = NOBODY

    @property
    def is_over(self) -> bool:
        """It will not come back under this incarnation, unless it was taken for dead by mistake."""
        return self.is_ended or self.heir != NOBODY


def read(store: AccountStore) -> list[HubRow]:
    """Return every hub that was ever there, ascending by number. Raises BackendError."""
    with store.read() as connection:
        return _rows(connection)


def begin(store: AccountStore, number: int, name: str, before: HubRow | None) -> HubRow | None:
    """Become this number's hub if its counter stands where it was seen; None: it does not.

    Raises BackendError, ConflictError (somebody else has just begun).
    """
    with store.write() as writer:
        found = next((row for row in _rows(writer.connection) if row.number == number), None)
        if _stand(found) != _stand(before):
            return None
        incarnation = max(writer.now_ms, 0 if before is None else before.incarnation + 1)
        row = HubRow(number, incarnation, name, writer.now_ms, beat=1)
        if before is None:
            writer.connection.execute(insert(table).values(_values(row)))
        else:
            writer.connection.execute(update(table).where(table.c.number == number).values(_values(row)))
        return row


def beat(store: AccountStore, number: int, incarnation: int) -> list[HubRow]:
    """Move the own counter and return every row as it is then. A row that an heir has taken becomes its hub's again: it lives.

    Nothing is moved when the number has another hub by now; the caller sees it in the answer. Raises BackendError.
    """
    with store.write() as writer:
        values = {"beat": table.c.beat + 1, "heir": NOBODY, "is_ended": False}
        writer.connection.execute(update(table).where(_is(number, incarnation)).values(values))
        return _rows(writer.connection)


def end(store: AccountStore, number: int, incarnation: int) -> None:
    """Say goodbye. Raises BackendError."""
    with store.write() as writer:
        writer.connection.execute(update(table).where(_is(number, incarnation)).values(is_ended=True))


def inherit(store: AccountStore, seen: HubRow, heir: int) -> bool:
    """Become the heir of a hub whose counter stands still; False: it has moved, or another one was quicker. Raises BackendError."""
    with store.write() as writer:
        is_same = _is(seen.number, seen.incarnation) & (table.c.beat == seen.beat) & (table.c.heir == NOBODY)
        return _count(writer, update(table).where(is_same).values(heir=heir)) == 1


def _stand(row: HubRow | None) -> tuple[int, int] | None:
    return None if row is None else (row.incarnation, row.beat)


def _count(writer: Writer, statement: object) -> int:
    return int(writer.connection.execute(statement).rowcount)  # type: ignore[call-overload]


def _is(number: int, incarnation: int) -> ColumnElement[bool]:
    return (table.c.number == number) & (table.c.incarnation == incarnation)


def _rows(connection: Connection) -> list[HubRow]:
    return [_row(row) for row in connection.execute(select(table).order_by(table.c.number))]


def _row(row: Row[tuple[object, ...]]) -> HubRow:
    return HubRow(row.number, row.incarnation, row.name, row.started_ms, row.beat, bool(row.is_ended), row.heir)


def _values(row: HubRow) -> dict[str, object]:
    return {
        "number": row.number,
        "incarnation": row.incarnation,
        "name": row.name,
        "started_ms": row.started_ms,
        "beat": row.beat,
        "is_ended": row.is_ended,
        "heir": row.heir,
    }
