"""How far each job has the logs: no trimming goes past the least of these marks.

Knows no log and no job; a job writes its marks itself, in the transaction of its results or after them.
"""

from __future__ import annotations

from sqlalchemy import delete, func, select

from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_mark as table


def least(store: AccountStore, log: str) -> dict[int, int]:
    """Return for each partition of a log (`sessions` or `analytics`) the offset that every job with a mark has reached. Raises BackendError."""
    query = select(table.c.part, func.min(table.c.upto)).where(table.c.log == log).group_by(table.c.part)
    with store.read() as connection:
        return {int(part): int(upto) for part, upto in connection.execute(query)}


def of_job(store: AccountStore, job: str, log: str) -> dict[int, int]:
    """Return for each partition of a log the offset that one job has reached. Raises BackendError."""
    query = select(table.c.part, table.c.upto).where(table.c.log == log, table.c.job == job)
    with store.read() as connection:
        return {int(part): int(upto) for part, upto in connection.execute(query)}


def moved(store: AccountStore) -> dict[tuple[str, str], int]:
    """Return for each job and log when its mark was put where it is (Unix milliseconds). Raises BackendError."""
    query = select(table.c.job, table.c.log, func.min(table.c.at_ms).label("at")).group_by(table.c.job, table.c.log)
    with store.read() as connection:
        return {(str(row.job), str(row.log)): int(row.at) for row in connection.execute(query)}


def forget(store: AccountStore, job: str) -> list[str]:
    """Remove all marks of a job; returns the names of the logs that it had them in. Raises BackendError."""
    is_its = table.c.job == job
    with store.write() as writer:
        logs = (
            writer.connection.execute(select(table.c.log).where(is_its).distinct().order_by(table.c.log))
            .scalars()
            .all()
        )
        writer.connection.execute(delete(table).where(is_its))
    return list(logs)
