"""Says what would become of a CONNECT, PUBLISH or SUBSCRIBE, step by step in the order in which the broker decides, and why.

Decides nothing by itself: it calls what the packet handlers call to decide. It takes no unit of a quota, counts no attempt and notifies nobody.
No secret is asked for: a step that would test one says so.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from iothub.engine.filters import check_topic_filter, split_share
from iothub.hooks import Client
from iothub.mqtt.constants import MQTT_5_0
from iothub_services.auth import acl
from iothub_services.auth.authenticator import Credentials, Examined
from iothub_services.auth.port import Action, CredentialKind, DeviceRecord, Rule, TenantRecord
from iothub_services.quota.names import Quota
from iothub_services.quota.rates import Rates
from iothub_services.sessions.port import NEVER_EXPIRES
from iothub_tenants.broker.broker import MANY_BYTES, MANY_LEVELS, TenantBroker
from iothub_tenants.broker.hub import Hub, Rights
from iothub_tenants.control.connect import assigned_client_id, refused_client_id, rule_of

_ADDRESS_OF_NOBODY = "127.0.0.1"
_CHECKS = (
    ("failures", ("failure_ban",), "not banned after failed logins from this address"),
    ("tenant", ("unknown_tenant",), "the tenant exists"),
    ("device", ("unknown_device",), "the device exists"),
    ("credential", ("wrong_certificate",), ""),
    ("device_enabled", ("device_disabled",), "the device is enabled"),
    ("tenant_active", ("tenant_suspended",), "the tenant is active"),
    ("address", ("address_denied",), "the tenant's networks permit the address"),
    ("bans", ("banned",), "no ban names the device, the client id or the address"),
)
"""The steps of `Authenticator`: their names, the causes of their refusals, and what is true when they pass."""

_WHY = {
    "failure_ban": "too many failed logins from this address: `iothub ban list` shows until when, `iothub ban remove` ends it",
    "unknown_tenant": "there is no such tenant: `iothub tenant list` shows them",
    "unknown_device": "the tenant has no such device: `iothub device list` shows them",
    "wrong_certificate": "the device proves itself with a certificate, which this listener does not ask for: use a TLS listener with client_ca_file",
    "device_disabled": "the device is disabled: `iothub device enable` changes that",
    "tenant_suspended": "the tenant is suspended: `iothub tenant resume` changes that",
    "address_denied": "the tenant's allowed and denied networks refuse the address: `iothub tenant show` lists them",
    "banned": "a ban names the device, the client id or the address: `iothub ban list` shows it",
    "client_id_of_another_device": "a session with this client id belongs to another device, or to a later one of the same name",
}
_OF_THE_CONNECTION = frozenset({"failures", "credential", "address", "bans"})


class Outcome(StrEnum):
    """What became of a step."""

    PASSED = "pass"
    FAILED = "fail"
    NO_MATCH = "no match"  # a rule that does not decide
    UNTESTED = "not tested"  # only a real attempt shows it


class Step(NamedTuple):
    """`rule`: what decided, as `iothub rejected` names it; empty: nothing did."""

    name: str
    outcome: Outcome
    reason: str
    rule: str = ""


@dataclass(frozen=True, slots=True)
class WouldConnect:
    """A CONNECT of 5.0. `client_id` empty: the hub assigns one. `is_persistent`: its session outlives the connection."""

    tenant: str
    device: str
    client_id: str
    address: str
    has_certificate: bool
    is_persistent: bool


@dataclass(frozen=True, slots=True)
class WouldPublish:
    """A PUBLISH of 5.0 without properties, by a client that is connected. `size`: of its payload in bytes."""

    tenant: str
    device: str
    client_id: str
    topic: str
    qos: int
    is_retained: bool
    size: int


@dataclass(frozen=True, slots=True)
class WouldSubscribe:
    """A SUBSCRIBE with one Topic Filter, by a client that is connected."""

    tenant: str
    device: str
    client_id: str
    topic_filter: str
    qos: int


class Explain:
    """On the reactor thread. The last step of an answer decides; those behind a failed one are not reached."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub

    async def connect(self, asked: WouldConnect) -> list[Step]:
        """Raises UnavailableError: the accounts or the shared ledger do not answer."""
        hub, client_id = self._hub, asked.client_id or assigned_client_id()
        if hub.is_short_of_memory():
            return [_failed("memory", "the hub is short of memory and refuses every CONNECT", "overload")]
        subject = "a certificate" if asked.has_certificate else None
        shown = Credentials(asked.tenant, asked.device, None, asked.address, subject, client_id)
        examined = await hub.authenticator.examine(shown)
        steps = [_passed("memory", "the hub has memory for it"), *_of_accounts(examined, is_connected=False)]
        if _is_refused(steps) or examined.tenant is None or examined.device is None:
            return steps
        if hub.hooks.authenticate is not None:
            steps.append(_untested("plug_in", "a plug-in is asked before the credential is tested, and may decide"))
        broker = await hub.brokers.broker(examined.tenant)
        for step in (
            _of_client_id(broker, examined.tenant, examined.device, client_id, is_assigned=not asked.client_id),
            _of_rate(broker.allowance.rates.tenant, Quota.CONNECTS, 1, is_refusing=True),
        ):
            steps.append(step)
            if step.outcome is Outcome.FAILED:
                return steps
        asked_s = NEVER_EXPIRES if asked.is_persistent else 0
        is_persistent = broker.expiry_of(asked.device, asked_s) > 0
        units = broker.units_of_connect(client_id, is_persistent=is_persistent)
        return steps + await _of_counts(broker, [(quota, count, None) for quota, count in units])

    async def publish(self, asked: WouldPublish) -> list[Step]:
        """Raises UnavailableError."""
        steps, found = await self._connected(asked.tenant, asked.device)
        if found is None:
            return steps
        tenant, device, broker = found
        topic = asked.topic.encode()
        length = 2 + len(topic) + (2 if asked.qos else 0) + 1 + asked.size  # what follows the fixed header, §3.3
        size = length + 1 + (1 + (length > 0x7F) + (length > 0x3FFF) + (length > 0x1FFFFF))
        steps += _until_failed(
            _of_packet_size(broker, device, size),
            _of_topic(broker, topic),
            *self._of_publish_rates(broker, device, size),
        )
        if _is_refused(steps):
            return steps
        policy = self._rights(tenant, device, asked.client_id)
        steps += self._of_rights(
            policy.may_publish(topic), tenant, device, asked.client_id, Action.PUBLISH, asked.topic
        )
        if asked.is_retained and not _is_refused(steps):
            steps += await _of_counts(
                broker, [(quota, count, None) for quota, count in broker.retained.units_of(topic, asked.size)]
            )
        return steps

    async def subscribe(self, asked: WouldSubscribe) -> list[Step]:
        """Raises UnavailableError."""
        steps, found = await self._connected(asked.tenant, asked.device)
        if found is None:
            return steps
        tenant, device, broker = found
        raw = asked.topic_filter.encode()
        group, topic_filter = split_share(raw)
        steps.append(_of_filter(broker, device, raw))
        if _is_refused(steps):
            return steps
        policy = self._rights(tenant, device, asked.client_id)
        is_allowed = policy.may_subscribe(topic_filter)
        steps += self._of_rights(is_allowed, tenant, device, asked.client_id, Action.SUBSCRIBE, topic_filter.decode())
        if _is_refused(steps):
            return steps
        steps.append(_of_rate(broker.allowance.rates.tenant, Quota.SUBSCRIBES, 1, is_refusing=True))
        session = broker.plane.sessions.get(asked.client_id)
        known = {} if session is None or session.device != device.name else session.subscriptions
        if _is_refused(steps):
            return steps
        if (group, topic_filter) in known:
            return [*steps, _passed("quota", "the client has this subscription already: no quota is needed")]
        steps.append(_of_session_subscriptions(broker, device, len(known)))
        if _is_refused(steps):
            return steps
        units = broker.allowance.units_of_subscription(group, topic_filter)
        return steps + await _of_counts(broker, [(quota, 1, subject) for quota, subject in units])

    async def _connected(
        self, tenant: str, device: str
    ) -> tuple[list[Step], tuple[TenantRecord, DeviceRecord, TenantBroker] | None]:
        """Look at the accounts of a client that is connected."""
        shown = Credentials(tenant, device, None, _ADDRESS_OF_NOBODY)
        examined = await self._hub.authenticator.examine(shown, is_connected=True)
        steps = _of_accounts(examined, is_connected=True)
        if examined.cause or examined.tenant is None or examined.device is None:
            return steps, None
        broker = await self._hub.brokers.broker(examined.tenant)
        return steps, (examined.tenant, examined.device, broker)

    def _rights(self, tenant: TenantRecord, device: DeviceRecord, client_id: str) -> Rights:
        policy = self._hub.policies.policy(tenant, device, client_id)
        return self._hub.behind_hooks(policy, Client(tenant.name, device.name, client_id, "", "", MQTT_5_0))

    def _of_rights(
        self, is_allowed: bool, tenant: TenantRecord, device: DeviceRecord, client_id: str, action: Action, topic: str
    ) -> list[Step]:
        """Return the rules that were asked, and the verdict, which is the policy's."""
        passed, decision = acl.explain_rules(
            (*tenant.rules, *device.rules),
            device=device.name,
            groups=device.groups,
            client_id=client_id,
            action=action,
            topic=topic,
        )
        steps = [Step("acl", Outcome.NO_MATCH, _words(rule)) for rule in passed]
        if self._hub.hooks.authorise is not None:
            steps.insert(0, _untested("plug_in", "a plug-in is asked before the rules, and may decide"))
        if is_allowed is not decision.is_allowed:
            return [*steps, _verdict(is_allowed, "a plug-in decides, not the rules")]
        rule = "" if decision.rule is None else f": {_words(decision.rule)}"
        return [*steps, _verdict(is_allowed, f"{decision.reason}{rule}")]

    def _of_publish_rates(self, broker: TenantBroker, device: DeviceRecord, size: int) -> list[Step]:
        rates = broker.allowance.rates
        own = rates.of_device(device.name)
        steps = []
        if own is not None:
            steps.append(_of_rate(own, Quota.DEVICE_PUBLISH_MESSAGES, 1))
            steps.append(_of_rate(own, Quota.DEVICE_PUBLISH_BYTES, size))
        steps.append(_of_rate(rates.tenant, Quota.PUBLISH_MESSAGES, 1))
        steps.append(_of_rate(rates.tenant, Quota.PUBLISH_BYTES, size))
        return steps


def _passed(name: str, reason: str) -> Step:
    return Step(name, Outcome.PASSED, reason)


def _failed(name: str, reason: str, rule: str) -> Step:
    return Step(name, Outcome.FAILED, reason, rule)


def _untested(name: str, reason: str) -> Step:
    return Step(name, Outcome.UNTESTED, reason)


def _is_refused(steps: list[Step]) -> bool:
    return steps[-1].outcome is Outcome.FAILED


def _until_failed(*steps: Step) -> list[Step]:
    """Return the steps up to the first that fails."""
    taken: list[Step] = []
    for step in steps:
        taken.append(step)
        if step.outcome is Outcome.FAILED:
            break
    return taken


def _of_accounts(examined: Examined, *, is_connected: bool) -> list[Step]:
    steps: list[Step] = []
    for name, causes, truth in _CHECKS:
        if is_connected and name in _OF_THE_CONNECTION:
            continue
        if examined.cause in causes:
            return [*steps, _failed(name, _WHY[examined.cause], examined.cause)]
        if name == "credential" and examined.device is not None:
            steps.append(_of_credential(examined.device))
        else:
            steps.append(_passed(name, truth))
    return steps


def _of_credential(device: DeviceRecord) -> Step:
    kinds = {
        CredentialKind.SECRET: "the device proves itself with a secret: the password of CONNECT is not tested here",
        CredentialKind.X509: f"the device proves itself with a certificate of {device.credential}: the certificate is not tested here",
        CredentialKind.JWT: "the device proves itself with a token of one of the tenant's issuers: the token is not tested here",
    }
    return _untested("credential", kinds[device.credential_kind])


def _of_client_id(
    broker: TenantBroker, tenant: TenantRecord, device: DeviceRecord, client_id: str, *, is_assigned: bool
) -> Step:
    rule = refused_client_id(broker, tenant, device, client_id, is_assigned)
    policy = f"the tenant's client-id policy is {tenant.client_id_policy.value}"
    if rule:
        return _failed("client_id", _WHY.get(rule, f"{policy}, which refuses this client id"), rule)
    return _passed("client_id", policy)


def _of_rate(rates: Rates, quota: Quota, units: int, *, is_refusing: bool = False) -> Step:
    """`is_refusing`: what is above the rate is refused at once, not held back."""
    wait = rates.wait(quota, units)
    if wait == 0.0:
        return _passed(quota.value, "within the rate, or there is no limit")
    if wait < 0.0:
        return _failed(quota.value, "the allowance is used up until its window ends", rule_of(quota))
    if is_refusing:
        return _failed(quota.value, f"above the rate; there is room again in {wait:.1f} s", rule_of(quota))
    return _passed(quota.value, f"above the rate: the publisher is held back for {wait:.1f} s")


def _of_packet_size(broker: TenantBroker, device: DeviceRecord, size: int) -> Step:
    most = broker.allowance.limits_of(device.name).packet_bytes
    if most and size > most:
        reason = f"the packet has {size} bytes; the limit is {most}"
        return _failed(Quota.PACKET_BYTES.value, reason, rule_of(Quota.PACKET_BYTES))
    return _passed(Quota.PACKET_BYTES.value, f"the packet has {size} bytes; {_limit(most)}")


def _of_topic(broker: TenantBroker, topic: bytes) -> Step:
    code, quota = broker.judge_topic(topic)
    if quota is not None:
        most = broker.limits.figure(quota)
        return _failed("topic", f"the topic is beyond the limit {quota.value}={most}", rule_of(quota))
    if code:
        return _failed(
            "topic", "this is no topic name: expected 1 to 65,535 bytes without +, # and NUL", "topic_name_invalid"
        )
    return _passed("topic", "the topic name is valid")


def _of_filter(broker: TenantBroker, device: DeviceRecord, raw: bytes) -> Step:
    if check_topic_filter(raw, MANY_LEVELS, MANY_BYTES):
        reason = "this is no topic filter: + must be alone in its level, # alone in the last one"
        return _failed("topic_filter", reason, "malformed")
    quota = broker.judge_filter(device.name, raw)
    if quota is not None:
        most = broker.allowance.limits_of(device.name).figure(quota)
        return _failed("topic_filter", f"the topic filter is beyond the limit {quota.value}={most}", rule_of(quota))
    return _passed("topic_filter", "the topic filter is valid")


def _of_session_subscriptions(broker: TenantBroker, device: DeviceRecord, has: int) -> Step:
    quota = Quota.SESSION_SUBSCRIPTIONS
    reason = f"the session has {has}; {_limit(broker.allowance.limits_of(device.name).session_subscriptions)}"
    if broker.allowance.may_have_subscriptions(device.name, has + 1):
        return _passed(quota.value, reason)
    return _failed(quota.value, reason, rule_of(quota))


async def _of_counts(broker: TenantBroker, units: list[tuple[Quota, int, Hashable]]) -> list[Step]:
    """Look at counts in the order in which they are reserved. What this hub was not granted it asks for, as before a real attempt."""
    steps: list[Step] = []
    ledger = broker.allowance.ledger
    for quota, count, subject in units:
        if not count:
            steps.append(_passed(quota.value, "no further one is needed"))
            continue
        if not ledger.fits(quota, count, subject=subject):
            await broker.allowance.wait_for_room((quota, count))
        reason = f"{ledger.used(quota, subject=subject)} in use here; {_limit(broker.limits.figure(quota))}"
        if not ledger.fits(quota, count, subject=subject):
            return [*steps, _failed(quota.value, reason, rule_of(quota))]
        steps.append(_passed(quota.value, reason))
    return steps


def _verdict(is_allowed: bool, reason: str) -> Step:
    return _passed("acl", reason) if is_allowed else _failed("acl", reason, "denied")


def _limit(figure: int) -> str:
    return "no limit" if figure == 0 else f"the limit is {max(figure, 0)}"


def _words(rule: Rule) -> str:
    subject = f" {rule.subject}" if rule.subject else ""
    return f"{rule.effect.value} {rule.scope.value}{subject} to {_ACTIONS[rule.action]} {rule.filter}"


_ACTIONS = {Action.PUBLISH: "publish", Action.SUBSCRIBE: "subscribe", Action.BOTH: "publish and subscribe"}
