"""Reads and writes the table of the hubs that share stores: which hubs there are, their heartbeats, who is gone, and who took over.

Knows no session, no link and no clock of another machine: a heartbeat is a counter, and a hub that sees it unchanged measures the time by its
own clock. When somebody is gone is decided by `iothub.peers.membership`.

Theory: a node number has one row. A hub starts by replacing the row that it has read with its own, with a higher incarnation, in state
`joining`; from then on only it raises the counter. Whoever is gone has `gone_by` in its row, for ever: neither a heartbeat nor anything else takes
it back, and only another incarnation replaces the row. What changes who there is moves `cluster_view.version`, and names the version that the
writer has seen: of two that decide by the same picture one is refused, so no two hubs declare each other gone.
"""

from __future__ import annotations

from dataclasses import dataclass

from sqlalchemy import ColumnElement, Connection, Row, insert, select, update

from iothub_tenants.accounts.servers import clock_of
from iothub_tenants.accounts.store import AccountStore, Writer
from iothub_tenants.accounts.tables import cluster_view
from iothub_tenants.accounts.tables import hub as table

NOBODY = -1  # has declared the row's hub gone, or is its successor

JOINING, UP, DRAINING = "joining", "up", "draining"  # `HubRow.state`
LEFT, ENDED, SILENT, CUT_OFF, EVICTED = "left", "ended", "silent", "cut_off", "evicted"  # `HubRow.gone_why`


class _RefusedError(Exception):
    """Undoes a transaction: nothing of a refused change stays."""


@dataclass(frozen=True, slots=True)
class HubRow:
    """One hub.

    `heartbeat`: rises while it lives. `successor`: the hub that took over its sessions. `address`: where other hubs connect to it; empty: nowhere.
    `links`: how many of its links were up at its last heartbeat. `gone_by`: the hub that wrote that it is gone, itself if it has left.
    """

    number: int
    incarnation: int
    name: str
    started_ms: int
    heartbeat: int
    successor: int = NOBODY
    address: str = ""
    version: str = ""
    state: str = UP
    links: int = 0
    gone_by: int = NOBODY
    gone_why: str = ""

    @property
    def is_gone(self) -> bool:
        """Whether this incarnation is over, for good."""
        return self.gone_by != NOBODY

    @property
    def has_left(self) -> bool:
        """Whether it has said so itself."""
        return self.gone_why == LEFT

    @property
    def is_over(self) -> bool:
        """Whether nothing of it is to come: it has left, or its supervisor saw its process end."""
        return self.gone_why in (LEFT, ENDED)


@dataclass(frozen=True, slots=True)
class View:
    """Every hub that was ever there, ascending by number, and the version of who there is."""

    version: int
    rows: list[HubRow]


def read(store: AccountStore) -> View:
    """Raises BackendError."""
    with store.read() as connection:
        return _view(connection)


def server_clock(store: AccountStore) -> float | None:
    """Return what time it is at the server, as Unix time; None: the accounts are in a file of this machine. Raises BackendError."""
    if not store.is_on_server:
        return None
    with store.read() as connection:
        return float(connection.execute(clock_of(store.engine)).scalar_one()) / 1000


def begin(
    store: AccountStore, number: int, name: str, before: HubRow | None, address: str = "", version: str = ""
) -> HubRow | None:
    """Become this number's hub, `joining`, if its counter has not changed since `before` was read; None: it has.

    Raises BackendError, ConflictError (another hub has just become it).
    """
    with store.write() as writer:
        found = next((row for row in _rows(writer.connection) if row.number == number), None)
        if _counter_of(found) != _counter_of(before):
            return None
        incarnation = max(writer.now_ms, 0 if before is None else before.incarnation + 1)
        row = HubRow(
            number, incarnation, name, writer.now_ms, heartbeat=1, address=address, version=version, state=JOINING
        )
        if before is None:
            writer.connection.execute(insert(table).values(_values(row)))
        else:
            writer.connection.execute(update(table).where(table.c.number == number).values(_values(row)))
        _move_view(writer)
        return row


def heartbeat(store: AccountStore, number: int, incarnation: int, links: int = 0) -> View:
    """Raise the own counter, unless this hub is gone, and return everything as it is then; a successor of a start that was held up is removed.

    Nothing is written when the number has another hub by now; the caller sees it in the answer. Raises BackendError.
    """
    with store.write() as writer:
        values = {"beat": table.c.beat + 1, "heir": NOBODY, "links": links}
        writer.connection.execute(update(table).where(_lives(number, incarnation)).values(values))
        return _view(writer.connection)


def set_up(store: AccountStore, number: int, incarnation: int, seen: int) -> bool:
    """Leave `joining`: from now on this hub serves clients. False: who there is has changed since version `seen`, or this hub is gone.

    Raises BackendError.
    """
    try:
        with store.write() as writer:
            _require(_moves_view(writer, seen) and _is_written(writer, _lives(number, incarnation), state=UP))
    except _RefusedError:
        return False
    return True


def declare_gone(
    store: AccountStore, number: int, incarnation: int, target: tuple[int, int], why: str, seen: int
) -> bool:
    """Write that a hub (number, incarnation) is gone. False: who there is has changed since version `seen`, or the writer itself is gone.

    Raises BackendError.
    """
    try:
        with store.write() as writer:
            _require(
                _moves_view(writer, seen)
                and _exists(writer, _lives(number, incarnation))
                and _is_written(writer, _lives(*target), gone_by=number, gone_why=why)
            )
    except _RefusedError:
        return False
    return True


def acknowledge_gone(store: AccountStore, number: int, incarnation: int) -> None:
    """Note that an administrator knows that a hub is gone: it counts as evicted. Nothing if it lives, or has left. Raises BackendError."""
    with store.write() as writer:
        was_declared = _is(number, incarnation) & table.c.gone_why.in_((SILENT, CUT_OFF))
        _is_written(writer, was_declared, gone_why=EVICTED)


def leave(store: AccountStore, number: int, incarnation: int) -> None:
    """Write that the own hub is gone; nothing if somebody has done so. Raises BackendError."""
    with store.write() as writer:
        if _is_written(writer, _lives(number, incarnation), gone_by=number, gone_why=LEFT):
            _move_view(writer)


def note_ended(store: AccountStore, number: int, incarnation: int, why: str = ENDED) -> bool:
    """Write that a hub's process has ended, as its supervisor saw; False: it has left, somebody has declared it gone, or another one has begun.

    `why`: LEFT: nobody starts it again.

    Raises BackendError.
    """
    with store.write() as writer:
        is_written = _is_written(writer, _lives(number, incarnation), gone_by=number, gone_why=why)
        if is_written:
            _move_view(writer)
        return is_written


def take_over(store: AccountStore, seen: HubRow, successor: int) -> bool:
    """Become the successor of a hub that is gone, or whose start is held up; False: its counter has risen, or another hub was quicker.

    Raises BackendError.
    """
    with store.write() as writer:
        is_same = _is(seen.number, seen.incarnation) & (table.c.beat == seen.heartbeat) & (table.c.heir == NOBODY)
        return _is_written(writer, is_same, heir=successor)


def _counter_of(row: HubRow | None) -> tuple[int, int] | None:
    return None if row is None else (row.incarnation, row.heartbeat)


def _is_written(writer: Writer, which: ColumnElement[bool], **values: object) -> bool:
    return int(writer.connection.execute(update(table).where(which).values(values)).rowcount) == 1


def _exists(writer: Writer, which: ColumnElement[bool]) -> bool:
    return writer.connection.execute(select(table.c.number).where(which)).first() is not None


def _moves_view(writer: Writer, seen: int) -> bool:
    moved = update(cluster_view).where(cluster_view.c.version == seen).values(version=seen + 1)
    return int(writer.connection.execute(moved).rowcount) == 1


def _move_view(writer: Writer) -> None:
    writer.connection.execute(update(cluster_view).values(version=cluster_view.c.version + 1))


def _require(is_written: bool) -> None:
    if not is_written:
        raise _RefusedError


def _is(number: int, incarnation: int) -> ColumnElement[bool]:
    return (table.c.number == number) & (table.c.incarnation == incarnation)


def _lives(number: int, incarnation: int) -> ColumnElement[bool]:
    return _is(number, incarnation) & (table.c.gone_by == NOBODY)


def _view(connection: Connection) -> View:
    rows = _rows(connection)
    return View(int(connection.execute(select(cluster_view.c.version)).scalar_one()), rows)


def _rows(connection: Connection) -> list[HubRow]:
    return [_row(row) for row in connection.execute(select(table).order_by(table.c.number))]


def _row(row: Row[tuple[object, ...]]) -> HubRow:
    return HubRow(
        number=row.number,
        incarnation=row.incarnation,
        name=row.name,
        started_ms=row.started_ms,
        heartbeat=row.beat,
        successor=row.heir,
        address=row.address,
        version=row.version,
        state=row.state,
        links=row.links,
        gone_by=row.gone_by,
        gone_why=row.gone_why,
    )


def _values(row: HubRow) -> dict[str, object]:
    return {
        "number": row.number,
        "incarnation": row.incarnation,
        "name": row.name,
        "started_ms": row.started_ms,
        "beat": row.heartbeat,
        "heir": row.successor,
        "address": row.address,
        "version": row.version,
        "state": row.state,
        "links": row.links,
        "gone_by": row.gone_by,
        "gone_why": row.gone_why,
    }
