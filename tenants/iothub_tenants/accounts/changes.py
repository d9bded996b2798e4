"""Reads the change log, by which a running hub learns what other processes have changed in the accounts.

Knows no cache and no reaction: the hub clears what a change names and reads it again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from sqlalchemy import Row, bindparam, delete, func, select

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub_services.auth.change_watermark import MOST, NOBODY, ChangePosition, Line
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.accounts.tables import change_log as table

BATCH = 1000
KEEP_S = 86_400.0

log = logging.get(__name__)

_LINES_FROM = (  # made once: making it takes longer than running it
    select(table).where(table.c.id >= bindparam("first")).order_by(table.c.id).limit(bindparam("most"))
)

_unknown: set[str] = set()  # kinds that were logged


@dataclass(frozen=True, slots=True)
class Change:
    """One line of the change log; `ChangeKind` says what the subject names. `tenant_id` 0: the whole hub.

    `tenant`: its name. `action`: what was done, such as "created"; empty in a line of an older program.
    """

    id: int
    tenant_id: int
    kind: ChangeKind
    subject: str
    at_ms: int
    tenant: str = ""
    action: str = ""


class PlaceLostError(IotHubError):
    """The last line that a watcher has read is not in the log any more, or is another one: what it has missed is unknown."""


class ChangeWatcher:
    """Remembers how far it has read. Used by one thread at a time. `made_at`: monotonic seconds, before it looked where the log ends.

    Invariants: every change that is committed after the watcher was made is returned exactly once, in the order of commits; if that cannot be
    (accounts restored from a backup, a server's replica that is behind, a hub that slept for a day) every call says so.
    """

    def __init__(self, store: AccountStore) -> None:
        self._store = store
        self.made_at = store.clock.monotonic()
        self._last = self._end()

    @property
    def after(self) -> int:
        """The last change that was read, 0 if there was none."""
        return 0 if self._last is None else self._last.id

    def poll(self) -> list[Change]:
        """Return up to `BATCH` changes since the last call: one indexed query. Raises BackendError, PlaceLostError."""
        most = BATCH if self._last is None else BATCH + 1  # with the line that was read last
        with self._store.read() as connection:
            found = [_change(row) for row in connection.execute(_LINES_FROM, {"first": self.after, "most": most})]
        if self._last is not None:
            if found[:1] != [self._last]:
                raise PlaceLostError(f"the account change log no longer has line {self._last.id} as it was read")
            del found[0]
        if found:
            self._last = found[-1]
        return found

    def _end(self) -> Change | None:
        with self._store.read() as connection:
            row = connection.execute(select(table).order_by(table.c.id.desc()).limit(1)).first()
        return None if row is None else _change(row)


def lines(changes: Iterable[Change]) -> list[Line]:
    """Say of each change whose records it may have changed."""
    return [_line(change) for change in changes]


def _line(change: Change) -> Line:
    as_of = ChangePosition(change.id, change.at_ms)
    if change.kind is ChangeKind.JOB:
        return Line(as_of, NOBODY)
    tenant_name = change.subject if change.kind is ChangeKind.TENANT else ""
    return Line(as_of, change.tenant_id, device_of(change), tenant_name)


def device_of(change: Change) -> str | None:
    """Name the one device that a change concerns, None for the whole tenant."""
    if change.kind in (ChangeKind.DEVICE, ChangeKind.DEVICE_DELETED) and change.subject != "*":
        return change.subject
    if change.kind is ChangeKind.QUOTA and change.subject != "*":
        return change.subject
    if change.kind is ChangeKind.ACL and change.subject.startswith("device:"):
        return change.subject.removeprefix("device:")
    return None


def latest(store: AccountStore, upto: int, most: int = MOST) -> list[Change]:
    """Return the last changes up to one, ascending and without a gap."""
    query = select(table).where(table.c.id <= upto).order_by(table.c.id.desc()).limit(most)
    with store.read() as connection:
        rows = connection.execute(query).all()
    return [_change(row) for row in reversed(rows)]


def deleted_devices(store: AccountStore, after: int) -> list[Change]:
    """Return the deletions of devices behind a change, as far as the log reaches back: for a hub that comes back."""
    is_meant = (table.c.id > after) & (table.c.kind == ChangeKind.DEVICE_DELETED.value)
    with store.read() as connection:
        return [_change(row) for row in connection.execute(select(table).where(is_meant).order_by(table.c.id))]


def _change(row: Row[Any]) -> Change:
    return Change(row.id, row.tenant_id, _kind(row.kind), row.subject, row.at_ms, row.tenant, row.action)


def _kind(word: str) -> ChangeKind:
    """Return the kind of a change. What a later program has changed may concern anything of the tenant."""
    try:
        return ChangeKind(word)
    except ValueError:
        if word not in _unknown:
            _unknown.add(word)
            log.warning("account change of an unknown kind: a later program uses these accounts, too", kind=word)
        return ChangeKind.UNKNOWN


def trim(store: AccountStore, keep_s: float = KEEP_S) -> int:
    """Forget changes older than this, long after every watcher has seen them, and return how many. Ids go on.

    The newest of the old ones stays: it may be the last that a watcher has read, and how far the log goes is what records in a shared cache are
    compared with.
    """
    with store.write() as writer:
        is_old = table.c.at_ms < writer.now_ms - int(keep_s * 1000)
        newest = writer.connection.execute(select(func.max(table.c.id)).where(is_old)).scalar() or 0
        return writer.connection.execute(delete(table).where(is_old, table.c.id < newest)).rowcount
