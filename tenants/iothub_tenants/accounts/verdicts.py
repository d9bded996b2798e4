"""Would this device be allowed to? The answer of the access rules as they are stored, with the rule that decides.

Knows no session and no cache: it asks the same `explain` that the rules' tests hold against what a running hub does.
"""

from __future__ import annotations

from dataclasses import dataclass

from iothub.base.errors import ConfigError, NotFoundError
from iothub.engine.filters import check_topic_filter, check_topic_name, split_share
from iothub_services.auth import acl
from iothub_services.auth.port import Action, Rule, Scope
from iothub_tenants.accounts import acl_rules
from iothub_tenants.accounts.acl_rules import AclRule
from iothub_tenants.accounts.registry import Registry
from iothub_tenants.accounts.store import AccountStore
from iothub_tenants.identity import invalid_filter, shown

_MOST_LEVELS, _MOST_BYTES = 65_536, 65_535


@dataclass(frozen=True, slots=True)
class Verdict:
    """An answer; `rule` is None when no rule decides."""

    is_allowed: bool
    rule: AclRule | None
    reason: str


def verdict(
    store: AccountStore, tenant: str, device: str, action: str, topic: str, *, client_id: str | None = None
) -> Verdict:
    """Say what the rules say to `publish` to a Topic Name, or to `subscribe` to a Topic Filter.

    Raises:
        ConfigError: the topic is malformed, or holds wildcards for a PUBLISH.
        NotFoundError: no such tenant or device.
    """
    asked = acl_rules.parse_action(action)
    topic = _checked(asked, topic)
    registry = Registry(store)
    owner = registry.find_tenant(tenant)
    if owner is None:
        raise NotFoundError(f"there is no tenant {shown(tenant)}: `iothub tenant list` shows them")
    found = registry.find_device(owner.id, device)
    if found is None:
        raise NotFoundError(f"tenant {tenant} has no device {shown(device)}: `iothub device list {tenant}` shows them")
    decision = acl.explain(
        (*owner.rules, *found.rules),
        device=device,
        groups=found.groups,
        client_id=client_id if client_id is not None else device,
        action=asked,
        topic=topic,
    )
    rule = None if decision.rule is None else _stored(store, tenant, decision.rule)
    return Verdict(decision.is_allowed, rule, decision.reason)


def _checked(action: Action, topic: str) -> str:
    """Return the Topic Name, or the Topic Filter without its `$share` part."""
    octets = topic.encode("utf-8", "surrogatepass")
    if action is Action.PUBLISH:
        if check_topic_name(octets, _MOST_LEVELS, _MOST_BYTES):
            raise ConfigError(f"{shown(topic)} is not a topic name: expected 1 to 65,535 bytes without +, # and NUL")
        return topic
    if check_topic_filter(octets, _MOST_LEVELS, _MOST_BYTES):
        raise invalid_filter(topic)
    return split_share(octets)[1].decode()


def _stored(store: AccountStore, tenant: str, rule: Rule) -> AclRule | None:
    for known in acl_rules.list_all(store, tenant):
        if (known.scope, known.effect, known.action, known.filter) == (
            rule.scope,
            rule.effect,
            rule.action,
            rule.filter,
        ) and (rule.scope is Scope.TENANT or known.subject.removeprefix(acl_rules.GROUP_SIGN) == rule.subject):
            return known
    return None
