"""Whom the job `erase` may remove: a tenant that is named by its number, and is gone.

Knows only the accounts' names of tenants.
"""

from __future__ import annotations

from iothub.base.errors import ConfigError, ConflictError
from iothub.records.job_spec import Spec
from iothub_spark.stores.accounts import Accounts


def tenant_of(spec: Spec) -> int:
    """Return the number that the tenant had. Raises ConfigError: there is none."""
    tenant_id = spec.options.get("tenant_id")
    if not isinstance(tenant_id, int) or isinstance(tenant_id, bool) or tenant_id <= 0:
        raise ConfigError("options.tenant_id is missing: expected the number of the deleted tenant")
    return tenant_id


def require_gone(accounts: Accounts, tenant_id: int) -> None:
    """Raises ConflictError: the tenant is not deleted."""
    name = accounts.tenants().get(tenant_id)
    if name is not None:
        raise ConflictError(f"tenant {name} (number {tenant_id}) still exists: delete it first, then run erase again")
