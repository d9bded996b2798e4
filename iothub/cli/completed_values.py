"""What the shell completes beside commands and options: names of tenants, devices, groups, plans, limits and settings.

Knows no shell: click speaks to it. What cannot be read is not completed: a completion prints nothing, and waits a second at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

import click
from click.shell_completion import CompletionItem

from iothub.base.errors import IotHubError, NotFoundError
from iothub.config.loader import sections
from iothub_services.quota.names import Quota

if TYPE_CHECKING:
    from iothub_tenants.accounts.store import AccountStore

OpenStore = Callable[[], "AccountStore"]
Names = Callable[[OpenStore], Iterable[str]]


_MOST = 1000  # more names help nobody, and have to be read


def complete(parameter: str, context: click.Context, incomplete: str, open_store: OpenStore) -> list[CompletionItem]:
    """Return what may be meant by the beginning of a parameter's value."""
    names = _names_of_tenant(parameter, context, incomplete) or _names_for(parameter, context)
    if names is None:
        return []
    try:
        found = list(names(open_store))
    except (IotHubError, OSError):
        return []
    return [CompletionItem(name) for name in found if name.startswith(incomplete)]


def _names_for(parameter: str, context: click.Context) -> Names | None:
    """Return who knows the values. A parameter `name` is of the noun; a new one's name is nobody's yet."""
    if parameter != "name":
        return _OF_PARAMETER.get(parameter)
    noun = "" if context.parent is None else context.parent.info_name or ""
    return None if context.info_name == "create" else _OF_NOUN.get(noun)


def _names_of_tenant(parameter: str, context: click.Context, incomplete: str) -> Names | None:
    """Return who knows a tenant's devices or groups: the tenant stands before them in the line."""
    noun = "" if context.parent is None else context.parent.info_name or ""
    tenant = context.params.get("tenant")
    wanted = noun if parameter == "name" else parameter
    if not isinstance(tenant, str) or wanted not in ("device", "group") or context.info_name == "create":
        return None
    return partial(_devices, tenant, incomplete) if wanted == "device" else partial(_groups, tenant)


def _devices(tenant: str, incomplete: str, open_store: OpenStore) -> list[str]:
    from iothub_tenants.accounts import devices

    with closing(open_store()) as store:
        found = [device.name for device in devices.page(store, tenant, incomplete, _MOST)]  # those behind the beginning
        with suppress(NotFoundError):  # the beginning may be a name itself, beside longer ones
            found.insert(0, devices.show(store, tenant, incomplete).name)
        return found


def _groups(tenant: str, open_store: OpenStore) -> list[str]:
    from iothub_tenants.accounts import groups

    with closing(open_store()) as store:
        return [group.name for group in groups.list_all(store, tenant)]


def _tenants(open_store: OpenStore) -> list[str]:
    from iothub_tenants.accounts import tenants

    with closing(open_store()) as store:
        return [tenant.name for tenant in tenants.list_all(store)]


def _plans(open_store: OpenStore) -> list[str]:
    from iothub_tenants.accounts import plans

    with closing(open_store()) as store:
        return [plan.name for plan in plans.list_all(store)]


def _limits(_open_store: OpenStore) -> list[str]:
    return [quota.value for quota in Quota]


def _limits_to_set(_open_store: OpenStore) -> list[str]:
    return [f"{quota.value}=" for quota in Quota]


def _settings_to_set(_open_store: OpenStore) -> list[str]:
    return [f"{setting.name}=" for section in sections() for setting in section.settings]


_OF_PARAMETER: dict[str, Names] = {
    "tenant": _tenants,
    "plan": _plans,
    "parent": _plans,
    "limits": _limits_to_set,
    "quotas": _limits,
    "names": _limits,
    "flags": _settings_to_set,
}
_OF_NOUN: dict[str, Names] = {"tenant": _tenants, "plan": _plans, "quota": _limits}
