"""What brokers and the control plane say to whoever publishes events to tenants, and who else gets these.

Knows no topic: `iothub_tenants.broker.event_topics` publishes them.
"""

from __future__ import annotations

from typing import Protocol

from iothub.base.reasons import Reason
from iothub.engine.state import Session
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub_services.connections.rejected import Client


class TenantEvents(Protocol):
    """On the reactor thread; nothing waits for it."""

    def connect_refused(self, client: Client, reason: Reason, rule: str) -> None:
        """A CONNECT was answered with a refusal."""

    def disconnected(self, session: Session, reason: Reason) -> None:
        """A session has lost its connection; the next one that takes it is not admitted yet."""


class NoEvents:
    """Fulfils `TenantEvents` where nobody publishes them."""

    def connect_refused(self, client: Client, reason: Reason, rule: str) -> None: ...

    def disconnected(self, session: Session, reason: Reason) -> None: ...


class EventSink(Protocol):
    """Gets events beside the subscribers. On the reactor thread."""

    def has(self, tenant_id: int) -> bool:
        """Say whether it may want an event of this tenant; 0: of the platform."""

    def wants(self, tenant_id: int, kind: EventKind) -> bool: ...

    def take(self, event: TenantEvent, event_id: str, body: bytes) -> None: ...


class NoSink:
    """Fulfils `EventSink` where subscribers are all."""

    def has(self, tenant_id: int) -> bool:
        del tenant_id
        return False

    def wants(self, tenant_id: int, kind: EventKind) -> bool:
        del tenant_id, kind
        return False

    def take(self, event: TenantEvent, event_id: str, body: bytes) -> None: ...
