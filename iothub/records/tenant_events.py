"""Events as tenants and operators get them, below `$events` and through webhooks: their kinds, their Topic Names and their bodies.

Knows no subscriber, no webhook and no hub. The events of the log are `iothub.records.events`; some of them are shown as these.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum

ROOT = "$events"
VERSION = 1
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)

Fact = str | int | float | bool | None


class EventKind(StrEnum):
    """What happened. The value is the middle of the Topic Name, and the field `event` of the body."""

    CLIENT_CONNECTED = "client/connected"
    CLIENT_DISCONNECTED = "client/disconnected"
    CLIENT_CONNECT_FAILED = "client/connect_failed"
    SESSION_CREATED = "session/created"
    SESSION_RESUMED = "session/resumed"
    SESSION_TAKEN_OVER = "session/taken_over"
    SESSION_EXPIRED = "session/expired"
    SESSION_DISCARDED = "session/discarded"
    SUBSCRIPTION_ADDED = "subscription/added"
    SUBSCRIPTION_REMOVED = "subscription/removed"
    MESSAGE_DROPPED = "message/dropped"
    QUOTA_WARNING = "quota/warning"
    QUOTA_EXCEEDED = "quota/exceeded"
    QUOTA_CLEARED = "quota/cleared"
    EVENT_LEFT_OUT = "event/left_out"
    DEVICE_CREATED = "device/created"
    DEVICE_IMPORTED = "device/imported"  # several at once
    DEVICE_CHANGED = "device/changed"
    DEVICE_ROTATED = "device/rotated"
    DEVICE_ENABLED = "device/enabled"
    DEVICE_DISABLED = "device/disabled"
    DEVICE_DELETED = "device/deleted"
    # Of the platform: for the operator alone.
    TENANT_CREATED = "tenant/created"
    TENANT_CHANGED = "tenant/changed"
    TENANT_SUSPENDED = "tenant/suspended"
    TENANT_RESUMED = "tenant/resumed"
    TENANT_DELETING = "tenant/deleting"
    TENANT_DELETED = "tenant/deleted"
    JOB_STARTED = "job/started"
    JOB_SUCCEEDED = "job/succeeded"
    JOB_FAILED = "job/failed"
    ALARM_RAISED = "alarm/raised"
    ALARM_CLEARED = "alarm/cleared"
    NODE_UP = "node/up"
    NODE_UNREACHABLE = "node/unreachable"
    NODE_EXPELLED = "node/expelled"
    NODE_DOWN = "node/down"


PLATFORM_KINDS = frozenset(kind for kind in EventKind if kind.startswith(("alarm/", "node/", "tenant/", "job/")))


def _wanted(kinds: Iterable[EventKind]) -> tuple[str, ...]:
    found = sorted(kinds)
    return ("*", *sorted({f"{kind.partition('/')[0]}/*" for kind in found}), *found)


WANTED = _wanted(EventKind)
"""What a webhook of the platform may be for: everything, a group of events, or one."""

TENANT_WANTED = _wanted(frozenset(EventKind) - PLATFORM_KINDS)
"""What a webhook of a tenant may be for."""


@dataclass(frozen=True, slots=True)
class TenantEvent:
    """One event. `subject`: the last level of its Topic Name (a Client Identifier, a reason, a quota), as it is; `facts`: flat.

    `id`: of what several hubs hear of; empty: the hub that publishes it numbers it.
    """

    kind: EventKind
    tenant_id: int
    tenant: str
    subject: str
    at_ms: int
    facts: Mapping[str, Fact] = field(default_factory=dict)
    id: str = ""

    @property
    def topic(self) -> bytes:
        return topic_of(self.kind, self.subject)

    def body(self, number: int, node: int) -> dict[str, Fact]:
        """Return what is published. `number`: unlike any other event's of this node, and higher than that of every earlier one."""
        return {
            "v": VERSION,
            "id": self.id_of(number, node),
            "event": self.kind.value,
            "tenant": self.tenant,
            "seq": number,
            "ts": self.at_ms,
            "node": node,
            **self.facts,
        }

    def id_of(self, number: int, node: int) -> str:
        return self.id or f"{node}-{number}"


def topic_of(kind: EventKind, subject: str) -> bytes:
    """Return the Topic Name of an event. A subject is one level: what no level may have is escaped as in a URL."""
    return f"{ROOT}/{kind.value}/{escaped(subject)}".encode("utf-8", "replace")


def escaped(subject: str) -> str:
    """Return a subject as one level of a Topic Name: `%`, `/`, `+`, `#` and control characters as `%XX`."""
    if not any(character in "%/+#" or not character.isprintable() for character in subject):
        return subject
    return "".join(
        "".join(f"%{octet:02X}" for octet in character.encode("utf-8", "replace"))
        if character in "%/+#" or not character.isprintable()
        else character
        for character in subject
    )


def encode_body(body: Mapping[str, Fact]) -> bytes:
    return _JSON.encode(dict(body)).encode("utf-8", "replace")
