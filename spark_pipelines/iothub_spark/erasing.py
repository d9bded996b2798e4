"""Whom the job `erase` may remove: a tenant that is named by its number, and is gone.

Knows the accounts' names of tenants alone.
"""

from __future__ import annotations

from iothub.base.errors import ConfigError, ConflictError
from iothub_spark.spec import Spec
from iothub_spark.stores.accounts import Accounts


def tenant_of(spec: Spec) -> int:
    """Return the number that the tenant had. Raises ConfigError: there is none."""
    tenant_id = spec.options.get("tenant_id")
    if not isinstance(tenant_id, int) or isinstance(tenant_id, bool) or tenant_id <= 0:
        raise ConfigError("options.tenant_id: is missing, expected the number that the deleted tenant had")
    return tenant_id


def require_gone(accounts: Accounts, tenant_id: int) -> None:
    """Raises ConflictError: the tenant is not deleted."""
    name = accounts.tenants().get(tenant_id)
    if name is not None:
        raise ConflictError(
            f"tenant {name} has the number {tenant_id} and is there: delete it first, then erase what it left"
        )
