"""What tenants have used, hour by hour, as the job `usage` has written it down.

Knows no log and no job: these rows are sums, and each run of the job replaces those of the hours that it has read.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

from sqlalchemy import func, select

from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import usage_hour as table

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class UsageHour:
    """One hour of one tenant. `hour_ms`: when it began, Unix time; `stored_byte_s`: bytes times seconds."""

    hour_ms: int
    messages_in: int
    messages_out: int
    blocks_in: int
    blocks_out: int
    bytes_in: int
    bytes_out: int
    connection_ms: int
    fanout: int
    stored_byte_s: int


_COLUMNS = tuple(table.c[field.name] for field in fields(UsageHour))


def hours(store: AccountStore, tenant: str, from_ms: int, to_ms: int) -> list[UsageHour]:
    """Return the hours that begin in a stretch of time, ascending. Raises NotFoundError, BackendError."""
    with store.read() as connection:
        tenant_id = tenants.find(connection, tenant).id
        is_in = (table.c.tenant_id == tenant_id) & (table.c.hour_ms >= from_ms) & (table.c.hour_ms < to_ms)
        rows = connection.execute(select(*_COLUMNS).where(is_in).order_by(table.c.hour_ms)).all()
    return [UsageHour(*row) for row in rows]


def ends(store: AccountStore, tenant: str) -> tuple[int, int] | None:
    """Return the first and the last hour that there are, None: there is none. Raises NotFoundError, BackendError."""
    with store.read() as connection:
        is_its = table.c.tenant_id == tenants.find(connection, tenant).id
        first, last = connection.execute(
            select(func.min(table.c.hour_ms), func.max(table.c.hour_ms)).where(is_its)
        ).one()
    return None if first is None else (first, last)
