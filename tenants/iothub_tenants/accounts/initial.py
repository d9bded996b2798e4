"""Makes an accounts database ready for its first tenant: the tables, and the two plans that every hub has.

Knows no data directory and no configuration file: the CLI's `init` makes those.
"""

from __future__ import annotations

from iothub.base.clock import Clock, SystemClock
from iothub_services.quota.grammar import standard_limits
from iothub_tenants.accounts import plans
from iothub_tenants.accounts.store import AccountStore, create_schema

_SYSTEM_CLOCK = SystemClock()


def init_store(url: str, *, pepper: bytes = b"", clock: Clock = _SYSTEM_CLOCK) -> AccountStore:
    """Create what is missing and return the open store; plans that exist already keep their limits. Idempotent.

    Raises:
        ConfigError, ConflictError (schema of the future), BackendError.
    """
    create_schema(url)
    store = AccountStore(url, pepper=pepper, clock=clock)
    try:
        _create_plans(store)
    except BaseException:
        store.close()
        raise
    return store


def _create_plans(store: AccountStore) -> None:
    present = {plan.name for plan in plans.list_all(store)}
    with store.write() as writer:
        for name, limits in (("standard", standard_limits()), ("unlimited", {})):
            if name not in present:
                plans.insert_plan(writer, name, limits, parent=None)
