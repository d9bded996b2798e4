"""What the auth service asks of the store of accounts: one Protocol, and the frozen records that cross it.

Knows no SQL, no cache and no MQTT: `iothub_tenants` fulfils `Accounts`; everything here is plain data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from typing import ParamSpec, Protocol, TypeVar

MOST_DEVICES = 200  # that one question names

P = ParamSpec("P")
T = TypeVar("T")


class Scope(Enum):
    """Whom a rule is for. Precedence: device, then group, then tenant."""

    DEVICE = "device"
    GROUP = "group"
    TENANT = "tenant"


class Effect(Enum):
    """What a rule says. Within one scope deny comes before allow."""

    ALLOW = "allow"
    DENY = "deny"


class Action(Enum):
    """What a rule is about. Receiving a message is `SUBSCRIBE`."""

    PUBLISH = "publish"
    SUBSCRIBE = "subscribe"
    BOTH = "both"


class TenantState(Enum):
    """Only devices of an `ACTIVE` tenant may connect. A device that proved its credential learns `SUSPENDED`; `DELETING` looks like unknown."""

    ACTIVE = "active"
    SUSPENDED = "suspended"
    DELETING = "deleting"


class CredentialKind(Enum):
    """How a device proves itself."""

    SECRET = "secret"  # noqa: S105  credential: text of `hash_generated` or `hash_password`
    X509 = "x509"  # credential: the common name, or the whole subject, that the listener must have verified
    JWT = "jwt"  # credential: "", a token of any of the tenant's issuers proves it


class TokenAlgorithm(Enum):
    """How an issuer signs. Pinned with its keys: never taken from a token. All others, `none` first of all, are refused."""

    ES256 = "ES256"  # ECDSA on P-256
    RS256 = "RS256"  # RSASSA-PKCS1-v1_5
    EDDSA = "EdDSA"  # Ed25519
    HS256 = "HS256"  # HMAC: the one with a shared secret


class ClientIdPolicy(Enum):
    """Which Client Identifiers a tenant's devices may use."""

    OWNER = "owner"  # any; the session belongs to the device that created it
    EQUAL = "equal"  # the device name itself
    PREFIX = "prefix"  # the device name, alone or followed by a character that no device name can hold (`/` is usual)

    def permits(self, device: str, client_id: str) -> bool:
        """Say whether `device` may connect as `client_id`; who owns an existing session is checked elsewhere."""
        if self is ClientIdPolicy.OWNER or client_id == device:
            return True
        rest = client_id.removeprefix(device)
        return self is ClientIdPolicy.PREFIX and len(rest) < len(client_id) and not _is_name_character(rest[0])


class BanKind(Enum):
    """What a ban names."""

    DEVICE = "device"
    CLIENT_ID = "client_id"
    ADDRESS = "address"  # one address or a CIDR range


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of an access list.

    `subject`: the device's or group's name, "" for the tenant. `filter`: a Topic Filter; a level that is exactly
    `{device}` or `{clientid}` stands for the caller's own name.
    """

    scope: Scope
    subject: str
    effect: Effect
    action: Action
    filter: str


@dataclass(frozen=True, slots=True)
class Ban:
    """A ban. `until`: Unix seconds, 0: for good."""

    kind: BanKind
    subject: str
    until: float = 0.0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class TokenKey:
    """One key of an issuer. `id`: what a token's `kid` names, "" for a key without a name.

    `material`: a public key in PEM; of HS256 the secret, sealed with the server's pepper.
    """

    id: str
    material: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """An issuer whose tokens (JWT) the tenant's devices may present. `issuer`, `audience`: what `iss` and `aud` must be; "": see `tokens`.

    `leeway_s`: how far the issuer's clock may differ from ours.
    """

    name: str
    algorithm: TokenAlgorithm
    keys: tuple[TokenKey, ...]
    issuer: str = ""
    audience: str = ""
    leeway_s: float = 0.0


@dataclass(frozen=True, slots=True)
class TenantRecord:
    """One tenant as auth and quota see it.

    `version` rises with every change to the tenant, its rules, groups, bans, token issuers, limits or plan.
    `rules`: those of tenant and group scope. `limits` and `plan_limits` are texts of the quota grammar: the tenant's
    override, and its plan with all that this inherits.
    """

    id: int
    name: str
    state: TenantState = TenantState.ACTIVE
    version: int = 1
    client_id_policy: ClientIdPolicy = ClientIdPolicy.OWNER
    plan: str = "standard"
    plan_limits: str = ""
    limits: str = ""
    weight: int = 1  # share of the plan in fair scheduling
    rules: tuple[Rule, ...] = ()
    bans: tuple[Ban, ...] = ()
    allowed_networks: tuple[str, ...] = ()  # CIDR; empty: every address
    denied_networks: tuple[str, ...] = ()
    is_closed_on_denied_publish: bool = False
    is_qos0_queued: bool = False  # keep QoS 0 for offline persistent sessions
    token_issuers: tuple[TokenIssuer, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceRecord:
    """One device. `rules`: those of device scope. `limits`: text of the quota grammar, the device's override.

    `id`: its number, which no other device ever has, not even one of the same name; 0: it has none.
    """

    name: str
    credential: str = field(repr=False)
    credential_kind: CredentialKind = CredentialKind.SECRET
    is_enabled: bool = True
    groups: tuple[str, ...] = ()
    rules: tuple[Rule, ...] = ()
    limits: str = ""
    id: int = 0


class Run(Protocol):
    """Runs a blocking call in a bounded pool of threads; `name` ("accounts.tenant") says which pool and what to call it."""

    def __call__(self, name: str, call: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Awaitable[T]: ...


class Accounts(Protocol):
    """The store of accounts. Its calls block and run in a thread pool; each is one consistent read.

    Raises:
        BackendError: the store cannot answer; no new connection is accepted until it can.
    """

    def find_tenant(self, name: str) -> TenantRecord | None:
        """Return the tenant with its tenant and group rules, its bans and its token issuers; None if there is none."""

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        """Return the device with its groups and own rules; None if there is none."""

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        """Return by name those devices that exist, each as `find_device` does. `names`: MOST_DEVICES at most."""


def _is_name_character(character: str) -> bool:
    return character.isascii() and (character.isalnum() or character in "._:@-")
