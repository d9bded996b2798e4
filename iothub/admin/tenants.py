"""A new tenant as both the command line and the REST API make it: what is not given comes from the settings.

Knows neither of them.
"""

from __future__ import annotations

from iothub.config.sections import Tenancy
from iothub_tenants.accounts import tenants
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.accounts.tenants import Tenant


def create_tenant(
    store: AccountStore,
    tenancy: Tenancy,
    name: str,
    *,
    plan: str | None,
    is_closed: bool,
    display_name: str,
    client_id_policy: str | None,
) -> Tenant:
    """Create a tenant. Raises as `iothub_tenants.accounts.tenants.create` does."""
    return tenants.create(
        store,
        name,
        plan=plan or tenancy.default_plan,
        is_closed=is_closed,
        display_name=display_name,
        client_id_policy=client_id_policy or tenancy.client_id_policy,
        reserved=frozenset(tenancy.reserved),
    )
