"""Bodies that the API takes, and the parts of paths and queries that many paths have, as strict types: what is not known is refused.

Knows no resource. What only the accounts know (reserved names, the grammar of limits) they check.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import Path, Query
from pydantic import BaseModel, ConfigDict, Discriminator, Field, Tag

from iothub.base.ids import TENANT_NAME
from iothub.records.tenant_events import TENANT_WANTED, WANTED
from iothub.rest.limit_values import WHOLE, DeviceLimitChanges, LimitChanges, Limits
from iothub.rest.texts import (
    BASE64,
    NETWORK,
    NO_NUL,
    OPTION,
    PRINTABLE,
    PUBLISHED_TOPIC,
    RESPONSE_TOPIC,
    Checked,
)
from iothub_services.webhooks.addresses import place_of
from iothub_tenants import identity
from iothub_tenants.accounts import webhooks


def _whole(pattern: str) -> str:
    return f"^{pattern}$"


def _name(check: Callable[[str], object], pattern: re.Pattern[str]) -> Checked:
    return Checked(check, _whole(pattern.pattern))


def _events(words: Sequence[str], tenant: str | None) -> Checked:
    return Checked(lambda word: webhooks.check_event(word, tenant), _whole(f"({'|'.join(map(re.escape, words))})"))


TenantName = Annotated[str, Path(description="Name of a tenant.")]
DeviceName = Annotated[str, Path(description="Name of a device.")]
Name = Annotated[str, Path(description="Its name.")]
Prefix = Annotated[str, Query(max_length=128, pattern=NO_NUL, description="Only names that begin so.")]

NewTenantName = Annotated[str, _name(partial(identity.check_tenant_name, reserved=frozenset()), TENANT_NAME)]
Plan = Annotated[str, _name(identity.check_plan_name, identity.PLAN_NAME)]
Group = Annotated[str, _name(identity.check_group_name, identity.GROUP_NAME)]
KeyName = Annotated[str, _name(identity.check_key_name, identity.GROUP_NAME)]
UserName = Annotated[str, _name(identity.check_user_name, identity.GROUP_NAME)]
IssuerName = Annotated[str, _name(identity.check_issuer_name, identity.GROUP_NAME)]
WebhookName = Annotated[str, _name(identity.check_webhook_name, identity.GROUP_NAME)]
StreamName = Annotated[str, _name(identity.check_stream_name, identity.STREAM_NAME)]
WebhookEvent = Annotated[str, _events(WANTED, None)]
TenantWebhookEvent = Annotated[str, _events(TENANT_WANTED, "")]
WebhookUrl = Annotated[str, Field(max_length=1024), Checked(place_of, "^https?://[!-~]+$")]
Device = Annotated[str, _name(identity.check_device_name, identity.DEVICE_NAME)]
Policy = Literal["owner", "equal", "prefix"]
Topic = Annotated[str, Field(min_length=1, max_length=65_535)]
TopicFilter = Annotated[str, Query(alias="filter", min_length=1, max_length=65_535, description="A Topic Filter.")]
DisplayName = Annotated[str, Field(max_length=200, pattern=PRINTABLE)]
UserProperty = Annotated[
    list[Annotated[str, Field(max_length=4096, pattern=NO_NUL)]], Field(min_length=2, max_length=2)
]
Networks = list[Annotated[str, Field(min_length=2, max_length=64, pattern=NETWORK)]]


class Body(BaseModel):
    """What a client sends: a field that is not known is a mistake, and a text is no number."""

    model_config = ConfigDict(extra="forbid", strict=True)


class NewTenant(Body):
    """A tenant that is to be."""

    name: NewTenantName
    plan: Annotated[Plan | None, Field(description="Default: the setting tenancy.default_plan.")] = None
    is_closed: Annotated[bool, Field(description="Without the rule that opens all topics to all devices.")] = False
    display_name: DisplayName = ""
    client_id_policy: Policy | None = None


class ExportedTenant(BaseModel):
    """What `:export` gave; the accounts check all of it."""

    model_config = ConfigDict(extra="allow")

    format: Literal["iothub-tenant"]
    version: Literal[1]
    tenant: dict[str, Any]


class WantedTenants(BaseModel):
    """What `iothub apply` reads, as JSON: one tenant as `:export` gives it, or `tenants` and `plans`; the accounts check all of it."""

    model_config = ConfigDict(extra="allow")

    tenants: list[dict[str, Any]] | None = None
    plans: list[dict[str, Any]] | None = None


class TenantChanges(Body):
    """What is not given stays. An empty list of networks lifts the restriction."""

    display_name: DisplayName | None = None
    plan: Plan | None = None
    client_id_policy: Policy | None = None
    is_closed_on_denied_publish: bool | None = None
    is_qos0_queued: bool | None = None
    allowed_networks: Networks | None = None
    denied_networks: Networks | None = None


class NewDevice(Body):
    """A device that logs in with a secret. Without a password one is generated, and returned once."""

    name: Device
    password: Annotated[str, Field(min_length=1, max_length=256, pattern=NO_NUL)] | None = None
    groups: Annotated[list[Group], Field(max_length=100)] = []


class NewTokenDevice(Body):
    """A device that logs in with a token (JWT)."""

    name: Device
    with_token: Literal[True]
    groups: Annotated[list[Group], Field(max_length=100)] = []


class Password(Body):
    """A chosen password."""

    password: Annotated[str, Field(min_length=1, max_length=256, pattern=NO_NUL)]


def _credential_of(given: object) -> str:
    """Return which of the two models of a new device a body is of: what is wrong with it is said once, of that one."""
    with_token = given.get("with_token") if isinstance(given, dict) else getattr(given, "with_token", None)
    return NewDevice.__name__ if with_token is None else NewTokenDevice.__name__


AnyNewDevice = Annotated[
    Annotated[NewDevice, Tag(NewDevice.__name__)] | Annotated[NewTokenDevice, Tag(NewTokenDevice.__name__)],
    Discriminator(_credential_of),
]


class CertificateSubject(Body):
    """The subject of a certificate."""

    subject: Annotated[
        str,
        Field(
            min_length=1,
            max_length=512,
            pattern=NO_NUL,
            description="A common name, or the whole subject in RFC 4514 form.",
        ),
    ]


class NewGroup(Body):
    """A group that is to be."""

    name: Group


class NewRule(Body):
    """A rule that is to be."""

    subject: Annotated[str, Field(min_length=1, max_length=128, description="A device, @GROUP, or * for all devices.")]
    effect: Literal["allow", "deny"]
    action: Literal["publish", "subscribe", "both"]
    filter: Topic


class _Ban(Body):
    for_s: Annotated[int, Field(ge=1, le=10**9, description="Seconds. Default: until removed."), WHOLE] | None = None
    reason: Annotated[str, Field(max_length=200, pattern=PRINTABLE)] = ""


class NewDeviceBan(_Ban):
    """A ban of a device that is to be."""

    kind: Literal["device"]
    value: Device


class NewClientBan(_Ban):
    """A ban of a Client Identifier that is to be."""

    kind: Literal["client_id"]
    value: Annotated[str, Field(min_length=1, max_length=64, pattern=NO_NUL)]


class NewAddressBan(_Ban):
    """A ban of an address or a network that is to be."""

    kind: Literal["address"]
    value: Annotated[str, Field(min_length=2, max_length=64, description="Such as 192.0.2.7 or 192.0.2.0/24.")]


class LimitsPatch(Body):
    """What to change of limits, by name; null removes one."""

    limits: Annotated[LimitChanges, Field(min_length=1)]


class DeviceLimitsPatch(Body):
    """What to change of a device's limits, by name; null removes one."""

    limits: Annotated[DeviceLimitChanges, Field(min_length=1)]


class NewPlan(Body):
    """A plan that is to be."""

    name: Plan
    parent: Plan = "standard"
    weight: Annotated[int, Field(ge=1, le=100), WHOLE] = 1
    limits: Limits = {}


class PlanChanges(Body):
    """What to change of a plan."""

    parent: Plan | None = None
    weight: Annotated[int, Field(ge=1, le=100), WHOLE] | None = None
    limits: Annotated[LimitChanges, Field(min_length=1)] | None = None


class NewPlatformKey(Body):
    """A key of the platform that is to be."""

    name: KeyName
    role: Literal["platform-admin", "operator", "viewer"]


class NewTenantKey(Body):
    """A key of one tenant that is to be."""

    name: KeyName
    role: Literal["tenant-admin", "tenant-viewer"]
    tenant: NewTenantName


class NewScrapeKey(Body):
    """A key for metrics that is to be: of the platform, or of one tenant."""

    name: KeyName
    role: Literal["scrape"]
    tenant: NewTenantName | None = None


class NewTrace(Body):
    """What is traced: a client id, a device, a Topic Filter or an address; for how long, and how much of it."""

    kind: Literal["client", "device", "topic", "ip"]
    value: Annotated[str, Field(min_length=1, max_length=1024, pattern=NO_NUL)]
    for_s: Annotated[int, Field(ge=1, le=86_400), WHOLE] = 600
    max_bytes: Annotated[int, Field(ge=65_536, le=67_108_864), WHOLE] = 16_777_216
    payload_bytes: Annotated[
        int, Field(ge=0, le=65_536, description="Of each payload; more than 0 needs the scope messages:read."), WHOLE
    ] = 0
    has_pings: bool = False


class MessageProperties(Body):
    """Properties of MQTT 5.0, which subscribers with 5.0 get."""

    content_type: Annotated[str, Field(max_length=4096, pattern=NO_NUL)] | None = None
    response_topic: Annotated[str, Field(min_length=1, max_length=4096, pattern=RESPONSE_TOPIC)] | None = None
    correlation_data: Annotated[str, Field(max_length=87_380, pattern=BASE64, description="Base64.")] | None = None
    payload_format_indicator: (
        Annotated[int, Field(ge=0, le=1, description="1: the payload is UTF-8."), WHOLE] | None
    ) = None
    user_properties: Annotated[list[UserProperty], Field(max_length=1000, description="Pairs of name and value.")] = []


class NewMessage(Body):
    """A message that is to be published. Its payload is a text, or Base64; without both it is empty."""

    topic: Annotated[str, Field(min_length=1, max_length=4096, pattern=PUBLISHED_TOPIC)]
    payload: Annotated[str, Field(description="As a text, which is sent in UTF-8.")] = ""
    payload_base64: Annotated[str, Field(pattern=BASE64)] | None = None
    qos: Annotated[int, Field(ge=0, le=2), WHOLE] = 0
    retain: bool = False
    expiry_s: Annotated[int, Field(ge=0, le=0xFFFF_FFFF, description="Message Expiry Interval."), WHOLE] | None = None
    properties: MessageProperties | None = None


UserSecret = Annotated[
    str, Field(min_length=12, max_length=1024, description="At least 12 characters, and no obvious ones.")
]


class NewWebhook(Body):
    """A webhook of the platform that is to be. Without `events` it gets all of them."""

    name: WebhookName
    url: WebhookUrl
    events: list[WebhookEvent] = Field(default=["*"], min_length=1, max_length=50)


class NewTenantWebhook(Body):
    """A webhook of a tenant that is to be. Without `events` it gets all of the tenant's."""

    name: WebhookName
    url: WebhookUrl
    events: list[TenantWebhookEvent] = Field(default=["*"], min_length=1, max_length=50)


class WebhookChanges(Body):
    """What to change of a webhook of the platform. What is not given stays; `events` replaces all of them."""

    url: WebhookUrl | None = None
    events: Annotated[list[WebhookEvent], Field(min_length=1, max_length=50)] | None = None
    is_enabled: bool | None = None


class TenantWebhookChanges(Body):
    """What to change of a webhook of a tenant. What is not given stays; `events` replaces all of them."""

    url: WebhookUrl | None = None
    events: Annotated[list[TenantWebhookEvent], Field(min_length=1, max_length=50)] | None = None
    is_enabled: bool | None = None


class NewPlatformUser(Body):
    """A user of the platform that is to be."""

    name: UserName
    role: Literal["platform-admin", "operator", "viewer"]
    password: UserSecret | None = None


class NewTenantUser(Body):
    """A user of one tenant that is to be."""

    name: UserName
    role: Literal["tenant-admin", "tenant-viewer"]
    tenant: NewTenantName
    password: UserSecret | None = None


class NewUserPassword(Body):
    """Another password of a user."""

    password: UserSecret | None = None


class Login(Body):
    """Who logs in."""

    name: Annotated[str, Field(min_length=1, max_length=128)]
    password: Annotated[str, Field(min_length=1, max_length=1024)]


class PasswordChange(Body):
    """Another password of the user who asks."""

    old: Annotated[str, Field(min_length=1, max_length=1024)]
    new: UserSecret


class NewRun(Body):
    """A run that is to be."""

    is_full: Annotated[bool, Field(description="Start from the beginning, not from where the last run ended.")] = False
    is_dry_run: Annotated[bool, Field(description="Show what would be done; change nothing.")] = False
    options: Annotated[
        dict[Annotated[str, Field(pattern=OPTION)], bool | int | Annotated[str, Field(max_length=200)]],
        Field(max_length=10, description="Other options of the job, by name."),
    ] = {}


class TokenKeys(Body):
    """What a token issuer signs with, and what its tokens must say."""

    public_key: Annotated[str, Field(max_length=16_384, description="Its public key in PEM.")] | None = None
    jwks: Annotated[dict[str, Any], Field(description="Its public keys as a JSON Web Key Set.")] | None = None
    secret: Annotated[str, Field(max_length=1024, description="The shared secret of HS256.")] | None = None
    algorithm: Literal["ES256", "RS256", "EdDSA", "HS256"] | None = None
    issuer: Annotated[str, Field(max_length=512, description="Required value of `iss`.")] | None = None
    audience: Annotated[str, Field(max_length=512, description="Required value in `aud`.")] | None = None
    leeway_s: Annotated[float, Field(ge=0, le=600, description="Maximum difference of clocks.")] | None = None


class NewTokenIssuer(TokenKeys):
    """A token issuer that is to be."""

    name: IssuerName


class TokenIssuerChanges(TokenKeys):
    """What is not given stays; an empty `issuer` or `audience` removes the check."""


class NewStream(Body):
    """A stream that is to be."""

    name: StreamName
    filter: Topic
    direction: Annotated[Literal["out", "in"], Field(description="out: devices to Kafka; in: Kafka to devices.")] = (
        "out"
    )
    partitions: Annotated[int, Field(ge=1, le=1000, description="Default: streams.partitions."), WHOLE] | None = None
    retention_s: Annotated[int, Field(ge=1, le=10**9, description="Default: streams.retention."), WHOLE] | None = None


class Drain(Body):
    """How a hub is drained."""

    rate_per_s: Annotated[int, Field(ge=1, le=1_000_000, description="How many clients are asked to go."), WHOLE] = 500


# --- answers, for the OpenAPI


class Item(BaseModel):
    """An object of the API; it may have more fields than are named."""

    model_config = ConfigDict(extra="allow")

    name: str


class Items(BaseModel):
    """A page of a list; the header `Link` has the next one."""

    items: list[dict[str, Any]]


class ItemsOfHubs(Items):
    """A page of what all hubs have in memory. `unanswered`: hubs whose part is missing, and why."""

    unanswered: list[str]


class Tenant(Item):
    """A tenant."""

    id: int
    display_name: str
    state: Literal["active", "suspended", "deleting"]
    plan: str
    is_protected: bool
    client_id_policy: Policy
    created: str


class DeviceShown(Item):
    """A device, without its secret."""

    tenant: str
    credential: str
    is_enabled: bool
    groups: list[str]


class DeviceWithSecret(DeviceShown):
    """A device, and the secret that was made for it."""

    secret: str | None = None


class RuleShown(BaseModel):
    """A rule of access."""

    id: int
    tenant: str
    subject: str
    effect: Literal["allow", "deny"]
    action: Literal["publish", "subscribe", "both"]
    filter: str


class KeyShown(Item):
    """A key, without its text."""

    role: str
    tenant: str | None
    prefix: str
    is_enabled: bool


class KeyWithText(KeyShown):
    """A key, and its text."""

    key: str


class UserShown(Item):
    """A user, without the password."""

    role: str
    tenant: str | None
    is_local: bool
    is_enabled: bool


class UserWithPassword(UserShown):
    """A user, and the password that was generated."""

    password: str | None = None


class Self(Item):
    """Who makes a request."""

    kind: Literal["key", "user"]
    role: str
    tenant: str | None
    scopes: list[str]


class Webhook(Item):
    """A webhook, without its secret."""

    tenant: str | None
    url: str
    events: list[str]
    is_enabled: bool


class WebhookWithSecret(Webhook):
    """A webhook, and the secret that was made for it."""

    secret: str


class WebhookTest(Item):
    """What came of a test."""

    is_delivered: bool
    status: int
    detail: str
    event_id: str


class Anything(BaseModel):
    """An object whose fields the command line's reference describes: the same as `-o json` prints."""

    model_config = ConfigDict(extra="allow")
