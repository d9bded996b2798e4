"""What the holder of a key, or a user, is: the roles, and which of them are for one tenant.

Knows no scope: what a role may do is the API's.
"""

from __future__ import annotations

from enum import StrEnum

from iothub.base.errors import ConfigError
from iothub_tenants.identity import shown


class Role(StrEnum):
    """Those of a tenant see nothing of any other."""

    PLATFORM_ADMIN = "platform-admin"
    OPERATOR = "operator"
    VIEWER = "viewer"
    TENANT_ADMIN = "tenant-admin"
    TENANT_VIEWER = "tenant-viewer"
    SCRAPE = "scrape"  # of the platform or of one tenant; for keys alone


OF_TENANT = frozenset({Role.TENANT_ADMIN, Role.TENANT_VIEWER})
OF_EITHER = frozenset({Role.SCRAPE})
OF_USERS = tuple(role for role in Role if role is not Role.SCRAPE)  # a person has no use for the others


def checked_role(word: str, tenant: str | None, *, is_user: bool = False) -> Role:
    """Return the role of a new key or user. Raises ConfigError: it is unknown, or it needs a tenant, or may have none."""
    known = OF_USERS if is_user else tuple(Role)
    holder = "user" if is_user else "key"
    if word not in known:
        raise ConfigError(f"{shown(word)} is not a role of a {holder}: expected one of {', '.join(known)}")
    role = Role(word)
    if role in OF_TENANT and tenant is None:
        raise ConfigError(f"a {holder} with the role {role.value} is for one tenant: name it (--tenant)")
    if role not in OF_TENANT | OF_EITHER and tenant is not None:
        raise ConfigError(f"a {holder} with the role {role.value} is for the whole platform: leave out the tenant")
    return role
