"""The modules of the accounts, and of `iothub.admin`, each loaded when a verb first uses it: a help text waits for no database library.

Knows none of them. With `--context` their functions are done by the API of another machine (`iothub.cli.remote`).
At import time a noun's module may name functions of theirs only inside a lambda.
"""

from __future__ import annotations

import importlib
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from iothub.admin import apply as _apply
    from iothub.admin import issuers as _issuers
    from iothub.admin import runs as _runs
    from iothub.admin import tenants as _tenants
    from iothub.admin import usage as _usage
    from iothub.admin import webhooks as _webhooks
    from iothub.cli import stream_topics as stream_topics
    from iothub_tenants.accounts import (
        acl_import as acl_import,
    )
    from iothub_tenants.accounts import (
        acl_rules as acl_rules,
    )
    from iothub_tenants.accounts import (
        api_keys as api_keys,
    )
    from iothub_tenants.accounts import (
        audit as audit,
    )
    from iothub_tenants.accounts import (
        bans as bans,
    )
    from iothub_tenants.accounts import (
        devices as devices,
    )
    from iothub_tenants.accounts import (
        foreign_accounts as foreign_accounts,
    )
    from iothub_tenants.accounts import (
        groups as groups,
    )
    from iothub_tenants.accounts import (
        imports as imports,
    )
    from iothub_tenants.accounts import (
        installations as installations,
    )
    from iothub_tenants.accounts import (
        job_runs as job_runs,
    )
    from iothub_tenants.accounts import (
        limit_lines as limit_lines,
    )
    from iothub_tenants.accounts import (
        marks as marks,
    )
    from iothub_tenants.accounts import (
        plans as plans,
    )
    from iothub_tenants.accounts import (
        quotas as quotas,
    )
    from iothub_tenants.accounts import (
        registry as registry,
    )
    from iothub_tenants.accounts import (
        streams as streams,
    )
    from iothub_tenants.accounts import (
        tenants as tenants,
    )
    from iothub_tenants.accounts import (
        token_issuers as token_issuers,
    )
    from iothub_tenants.accounts import (
        transfer as transfer,
    )
    from iothub_tenants.accounts import (
        usage_hours as usage_hours,
    )
    from iothub_tenants.accounts import (
        users as users,
    )
    from iothub_tenants.accounts import (
        verdicts as verdicts,
    )
    from iothub_tenants.accounts import (
        webhooks as webhooks,
    )

    admin_tenants = _tenants
    admin_apply = _apply
    admin_issuers = _issuers
    admin_runs = _runs
    admin_usage = _usage
    admin_webhooks = _webhooks
    of_config: Any  # modules that import this one
    of_doctor: Any
    of_events: Any
else:

    def __getattr__(name: str) -> _Functions | ModuleType:
        return _Functions(importlib.import_module(_ELSEWHERE.get(name, f"iothub_tenants.accounts.{name}")))


_ELSEWHERE = {
    f"admin_{name}": f"iothub.admin.{name}" for name in ("apply", "issuers", "runs", "tenants", "usage", "webhooks")
}
_ELSEWHERE |= {f"of_{name}": f"iothub.cli.{name}" for name in ("config", "doctor", "events")}
_ELSEWHERE["stream_topics"] = "iothub.cli.stream_topics"


class _Functions:
    """A module whose functions are done where the store is: here, or by the REST API of another machine."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        if not isinstance(found, FunctionType):
            return found

        def call(*given: Any, **named: Any) -> Any:
            store = given[0] if given else None
            remotely = getattr(store, "call", None)
            return found(*given, **named) if remotely is None else remotely(found, given[1:], named)

        return call
