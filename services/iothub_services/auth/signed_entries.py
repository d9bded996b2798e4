"""Records of tenants and devices as octets for a cache that others can read and write: signed, so that only our hubs can make one.

Knows no cache. The signature is an HMAC with a key of its own, derived from the server's pepper; it covers the key of the entry, so that one device's
record cannot be stored as another's. The content is what SQL holds: no plain secret, but names, rules and hashes can be read.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from typing import Any, Generic, TypeVar

from iothub_services.auth.change_watermark import ChangePosition
from iothub_services.auth.port import (
    Action,
    Ban,
    BanKind,
    ClientIdPolicy,
    CredentialKind,
    DeviceRecord,
    Effect,
    Rule,
    Scope,
    TenantRecord,
    TenantState,
    TokenAlgorithm,
    TokenIssuer,
    TokenKey,
)
from iothub_services.auth.secrets import mac

Record = TypeVar("Record", TenantRecord, DeviceRecord)

MOST_BYTES = 256 << 10
_PURPOSE = b"iothub: seal of records in a shared cache, 1"
_MAC_BYTES = 32

_SHAPE = [(kind.__name__, [each.name for each in fields(kind)]) for kind in (
    TenantRecord, DeviceRecord, Rule, Ban, TokenIssuer, TokenKey,
)]  # fmt: skip
FORM = hashlib.sha256(repr(_SHAPE).encode()).hexdigest()[:8]
"""Another program's records, whose fields are others, have another one; it belongs into the place of a record."""


class ForgedError(Exception):
    """The signature does not match: the entry was forged, changed, or copied from another key."""


@dataclass(frozen=True, slots=True)
class SignedEntry(Generic[Record]):
    """A record (None: there is no such tenant, no such device) and the change as of which it is true."""

    as_of: ChangePosition
    record: Record | None


class EntrySigner:
    """Signs entries of the cache, and reads those whose signature is ours."""

    def __init__(self, pepper: bytes) -> None:
        self._key = mac(_PURPOSE, pepper)

    def sign_tenant(self, place: bytes, entry: SignedEntry[TenantRecord]) -> bytes:
        return self._signed_bytes(place, entry.as_of, None if entry.record is None else _tenant_row(entry.record))

    def sign_device(self, place: bytes, entry: SignedEntry[DeviceRecord]) -> bytes:
        return self._signed_bytes(place, entry.as_of, None if entry.record is None else _device_row(entry.record))

    def open_tenant(self, place: bytes, octets: bytes) -> SignedEntry[TenantRecord]:
        """Raises ForgedError."""
        return self._open(place, octets, _tenant)

    def open_device(self, place: bytes, octets: bytes) -> SignedEntry[DeviceRecord]:
        """Raises ForgedError."""
        return self._open(place, octets, _device)

    def _signed_bytes(self, place: bytes, as_of: ChangePosition, row: list[object] | None) -> bytes:
        text = json.dumps([as_of, row], ensure_ascii=False, separators=(",", ":")).encode()
        return self._mac(place, text) + text

    def _open(self, place: bytes, octets: bytes, made: Callable[[list[Any]], Record]) -> SignedEntry[Record]:
        signature, text = octets[:_MAC_BYTES], octets[_MAC_BYTES:]
        if not hmac.compare_digest(signature, self._mac(place, text)):
            raise ForgedError
        as_of, row = json.loads(text.decode())
        return SignedEntry(ChangePosition(*as_of), None if row is None else made(row))

    def _mac(self, place: bytes, text: bytes) -> bytes:
        """The place's length goes first, so that place and text cannot be read in two ways."""
        return mac(len(place).to_bytes(4, "big") + place + text, self._key)


def _tenant_row(tenant: TenantRecord) -> list[object]:
    return [
        tenant.id,
        tenant.name,
        tenant.state.value,
        tenant.version,
        tenant.client_id_policy.value,
        tenant.plan,
        tenant.plan_limits,
        tenant.limits,
        tenant.weight,
        _rule_rows(tenant.rules),
        [[ban.kind.value, ban.subject, ban.until, ban.reason] for ban in tenant.bans],
        tenant.allowed_networks,
        tenant.denied_networks,
        tenant.is_closed_on_denied_publish,
        tenant.is_qos0_queued,
        [_issuer_row(issuer) for issuer in tenant.token_issuers],
    ]


def _tenant(row: list[Any]) -> TenantRecord:
    number, name, state, version, policy, plan, plan_limits, limits, weight, rules, bans, *rest = row
    allowed, denied, is_closed, is_queued, issuers = rest
    return TenantRecord(
        number,
        name,
        TenantState(state),
        version,
        ClientIdPolicy(policy),
        plan,
        plan_limits,
        limits,
        weight,
        _rules(rules),
        tuple(Ban(BanKind(kind), subject, until, reason) for kind, subject, until, reason in bans),
        tuple(allowed),
        tuple(denied),
        is_closed,
        is_queued,
        tuple(_issuer(issuer) for issuer in issuers),
    )


def _device_row(device: DeviceRecord) -> list[object]:
    return [
        device.name,
        device.credential,
        device.credential_kind.value,
        device.is_enabled,
        device.groups,
        _rule_rows(device.rules),
        device.limits,
        device.id,
    ]


def _device(row: list[Any]) -> DeviceRecord:
    name, credential, kind, is_enabled, groups, rules, limits, number = row
    return DeviceRecord(
        name, credential, CredentialKind(kind), is_enabled, tuple(groups), _rules(rules), limits, number
    )


def _rule_rows(rules: Iterable[Rule]) -> list[list[str]]:
    return [[rule.scope.value, rule.subject, rule.effect.value, rule.action.value, rule.filter] for rule in rules]


def _rules(rows: Iterable[list[str]]) -> tuple[Rule, ...]:
    return tuple(
        Rule(Scope(scope), subject, Effect(effect), Action(action), text)
        for scope, subject, effect, action, text in rows
    )


def _issuer_row(issuer: TokenIssuer) -> list[object]:
    keys = [[key.id, key.material] for key in issuer.keys]
    return [issuer.name, issuer.algorithm.value, keys, issuer.issuer, issuer.audience, issuer.leeway_s]


def _issuer(row: list[Any]) -> TokenIssuer:
    name, algorithm, keys, issuer, audience, leeway_s = row
    known = tuple(TokenKey(number, material) for number, material in keys)
    return TokenIssuer(name, TokenAlgorithm(algorithm), known, issuer, audience, leeway_s)
