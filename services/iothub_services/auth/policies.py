"""Compiled policies, one object for all who may do the same.

Knows no store: it is given records. Thousands of devices whose rules have no template share one Policy; a rule with `{device}` or
`{clientid}` splits them only by the name that it uses. A policy lives as long as a session holds it: nothing to bound here.
"""

from __future__ import annotations

from typing import TypeAlias
from weakref import WeakValueDictionary

from iothub_services.auth.acl import (
    CLIENT_ID_LEVEL,
    DEVICE_LEVEL,
    CompiledPolicy,
    compile_policy,
    rules_for,
    templates_of,
)
from iothub_services.auth.port import DeviceRecord, Rule, TenantRecord

_MOST_SHAPES = 1024  # ways of being ruled: by tenant, its version, the device's groups and its own rules
_Shape: TypeAlias = tuple[int, int, tuple[str, ...], tuple[Rule, ...]]
_Key: TypeAlias = tuple[int, int, tuple[object, ...], str | None, str | None]


class PolicyCache:
    """Finds or compiles the Policy of a device. One thread."""

    def __init__(self) -> None:
        self._policies: WeakValueDictionary[_Key, CompiledPolicy] = WeakValueDictionary()
        self._shared: dict[_Shape, CompiledPolicy] = {}  # at hand: those that no name splits

    def __len__(self) -> int:
        return len(self._policies)

    def policy(self, tenant: TenantRecord, device: DeviceRecord, client_id: str) -> CompiledPolicy:
        """Return what `device` may do as `client_id` under the tenant's present version."""
        shape = (tenant.id, tenant.version, device.groups, device.rules)
        shared = self._shared.get(shape)
        if shared is not None:
            return shared
        rules = rules_for((*tenant.rules, *device.rules), device.name, device.groups)
        templates = {template for rule in rules for template in templates_of(rule)}
        key = (
            tenant.id,
            tenant.version,
            tuple((rule.scope, rule.effect, rule.action, rule.filter) for rule in rules),
            device.name if DEVICE_LEVEL in templates else None,
            client_id if CLIENT_ID_LEVEL in templates else None,
        )
        policy = self._policies.get(key)
        if policy is None:
            policy = compile_policy(
                rules, device=device.name, groups=device.groups, client_id=client_id, version=tenant.version
            )
            self._policies[key] = policy
        if not templates:
            self._share(shape, policy)
        return policy

    def _share(self, shape: _Shape, policy: CompiledPolicy) -> None:
        if len(self._shared) >= _MOST_SHAPES:
            self._shared.clear()
        self._shared[shape] = policy
