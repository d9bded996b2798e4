"""Leases of runs, as if time had passed: the clock by which they expire is a server's where the accounts are on one."""

from __future__ import annotations

from sqlalchemy import update

from iothub_tenants.accounts.job_runs import LEASE_S
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tables import job_run


def let_expire(store: AccountStore, run_id: int, *, but_for_s: float = 0.0) -> None:
    """Set a run's last heartbeat back by the time of a lease, but for some seconds."""
    earlier = job_run.c.heartbeat_ms - int((LEASE_S - but_for_s) * 1000)
    with store.write() as writer:
        writer.connection.execute(update(job_run).where(job_run.c.id == run_id).values(heartbeat_ms=earlier))
