"""What a key or a user may do: scopes, of which each path has exactly one, and the scopes of each role.

Knows no path: `iothub.rest.routes` gives each one its scope, and a test holds that.
"""

from __future__ import annotations

from enum import StrEnum

from iothub_tenants.accounts.roles import Role


class Scope(StrEnum):
    """One thing that a role has or has not."""

    OPEN = "open"  # to log in: of paths that take whoever comes
    SELF_READ = "self:read"  # who am I, and what is there
    SELF_LOGIN = "self:login"  # a user's own login and password
    TENANTS_READ = "tenants:read"
    TENANTS_WRITE = "tenants:write"
    TENANTS_LIST = "tenants:list"  # of all tenants
    DEVICES_READ = "devices:read"
    DEVICES_WRITE = "devices:write"
    RULES_READ = "rules:read"
    RULES_WRITE = "rules:write"
    ISSUERS_READ = "issuers:read"
    ISSUERS_WRITE = "issuers:write"
    STREAMS_READ = "streams:read"
    STREAMS_WRITE = "streams:write"  # of the platform: a stream takes its Kafka
    WEBHOOKS_READ = "webhooks:read"
    WEBHOOKS_WRITE = "webhooks:write"
    BANS_READ = "bans:read"
    BANS_WRITE = "bans:write"
    QUOTAS_READ = "quotas:read"
    QUOTAS_WRITE = "quotas:write"
    PLANS_READ = "plans:read"
    PLANS_WRITE = "plans:write"
    USAGE_READ = "usage:read"
    CLIENTS_READ = "clients:read"
    CLIENTS_WRITE = "clients:write"
    SESSIONS_READ = "sessions:read"
    SESSIONS_WRITE = "sessions:write"
    RETAINED_READ = "retained:read"
    RETAINED_WRITE = "retained:write"
    MESSAGES_READ = "messages:read"  # payloads
    MESSAGES_WRITE = "messages:write"  # publish
    REJECTED_READ = "rejected:read"
    TRACES_READ = "traces:read"
    TRACES_WRITE = "traces:write"
    STATUS_READ = "status:read"
    NODES_WRITE = "nodes:write"
    JOBS_READ = "jobs:read"
    JOBS_WRITE = "jobs:write"
    CONFIG_READ = "config:read"
    CONFIG_WRITE = "config:write"
    KEYS_READ = "keys:read"
    KEYS_WRITE = "keys:write"
    USERS_READ = "users:read"
    USERS_WRITE = "users:write"
    AUDIT_READ = "audit:read"
    TENANT_AUDIT_READ = "tenant-audit:read"
    METRICS_READ = "metrics:read"
    TENANT_METRICS_READ = "tenant-metrics:read"


_ALL = frozenset(Scope) - {Scope.OPEN}
_KEYS = frozenset(
    {Scope.KEYS_READ, Scope.KEYS_WRITE, Scope.USERS_READ, Scope.USERS_WRITE}
)  # whoever has these can be anybody
_TENANT_ADMIN = frozenset(
    {
        Scope.SELF_READ,
        Scope.SELF_LOGIN,
        Scope.TENANTS_READ,
        Scope.DEVICES_READ,
        Scope.DEVICES_WRITE,
        Scope.RULES_READ,
        Scope.RULES_WRITE,
        Scope.ISSUERS_READ,
        Scope.ISSUERS_WRITE,
        Scope.STREAMS_READ,
        Scope.WEBHOOKS_READ,
        Scope.WEBHOOKS_WRITE,
        Scope.BANS_READ,
        Scope.BANS_WRITE,
        Scope.QUOTAS_READ,
        Scope.USAGE_READ,
        Scope.CLIENTS_READ,
        Scope.CLIENTS_WRITE,
        Scope.SESSIONS_READ,
        Scope.SESSIONS_WRITE,
        Scope.RETAINED_READ,
        Scope.RETAINED_WRITE,
        Scope.MESSAGES_READ,
        Scope.MESSAGES_WRITE,
        Scope.REJECTED_READ,
        Scope.TRACES_READ,
        Scope.TRACES_WRITE,
        Scope.TENANT_AUDIT_READ,
        Scope.TENANT_METRICS_READ,
    }
)


def _reading(scopes: frozenset[Scope]) -> frozenset[Scope]:
    """Return those that change nothing and show no payload."""
    return frozenset(scope for scope in scopes if not scope.endswith(":write")) - {Scope.MESSAGES_READ}


SCOPES_OF: dict[Role, frozenset[Scope]] = {
    Role.PLATFORM_ADMIN: _ALL,
    Role.OPERATOR: _ALL - _KEYS,
    Role.VIEWER: _reading(_ALL - _KEYS),
    Role.TENANT_ADMIN: _TENANT_ADMIN,
    Role.TENANT_VIEWER: _reading(_TENANT_ADMIN),
    Role.SCRAPE: frozenset({Scope.SELF_READ, Scope.METRICS_READ, Scope.TENANT_METRICS_READ}),
}
