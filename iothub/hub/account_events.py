"""Changes of the accounts as events: of all hubs that read them, one publishes them.

Knows no topic and no webhook: `iothub_tenants.broker.event_topics` publishes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iothub.records.tenant_events import EventKind, Fact, TenantEvent
from iothub_services.webhooks.port import PLATFORM
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind

_GROUPS = {
    ChangeKind.DEVICE: "device",
    ChangeKind.DEVICE_DELETED: "device",
    ChangeKind.QUOTA: "device",  # an import of devices with limits; no other change of limits is an event
    ChangeKind.TENANT: "tenant",
    ChangeKind.JOB: "job",
}
_IMPORTED = "imported"


class AccountEvents:
    """On the reactor thread."""

    def __init__(self, publish: Callable[[TenantEvent], None], *, is_first: Callable[[], bool]) -> None:
        """`is_first`: this hub publishes, for it has the lowest number of those that serve clients."""
        self._publish = publish
        self._is_first = is_first

    def on_changes(self, changes: Iterable[Change]) -> None:
        """Changes of the accounts were read."""
        if self._is_first():
            for change in changes:
                event = event_of(change)
                if event is not None:
                    self._publish(event)


def event_of(change: Change) -> TenantEvent | None:
    """Return the event that a change is; None: none, or what was done is not known. Every hub gives it the same id."""
    if change.kind is ChangeKind.QUOTA and change.action != _IMPORTED:
        return None
    try:
        kind = EventKind(f"{_GROUPS[change.kind]}/{change.action}")
    except (KeyError, ValueError):
        return None
    event_id, facts = f"change-{change.id}", _facts(change)
    if change.kind in (ChangeKind.TENANT, ChangeKind.JOB):
        subject = change.subject.partition(":")[0]
        return TenantEvent(kind, PLATFORM, "", subject, change.at_ms, facts, event_id)
    return TenantEvent(kind, change.tenant_id, change.tenant, change.subject, change.at_ms, facts, event_id)


def _facts(change: Change) -> dict[str, Fact]:
    if change.kind is ChangeKind.TENANT:
        return {"name": change.subject, "number": change.tenant_id}
    if change.kind is ChangeKind.JOB:
        job, _, run = change.subject.partition(":")
        return {"job": job, "run": int(run)}
    return {} if change.action == _IMPORTED else {"device": change.subject}
