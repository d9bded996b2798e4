"""Changes of the accounts as events: of all hubs that read them, one publishes them.

Knows no topic and no webhook: `iothub_tenants.broker.event_topics` publishes.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable

from iothub.base import log as logging
from iothub.base.clock import Clock
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
KEPT_S = 30.0  # a hub that was killed is noticed within 15
MOST_KEPT = 10_000

log = logging.get(__name__)


class AccountEvents:
    """On the reactor thread.

    Invariants: an event that this hub leaves to another one is kept for KEPT_S, longer than the death of a hub takes to be noticed, so the hub
    that publishes next has what a dead one may not have published. It comes late then, or twice, with the same id. At most MOST_KEPT are kept.
    """

    def __init__(
        self,
        publish: Callable[[TenantEvent], None],
        *,
        is_first: Callable[[], bool],
        clock: Clock,
        on_lost: Callable[[int], None],
    ) -> None:
        """`is_first`: this hub publishes, for it has the lowest number of those that serve clients. `on_lost`: so many were more than are kept."""
        self._publish = publish
        self._is_first = is_first
        self._clock = clock
        self._on_lost = on_lost
        self._kept: deque[tuple[float, TenantEvent]] = deque()  # with when the change was read
        self._cut = 0  # older than what is kept, and not yet too old

    def on_changes(self, changes: Iterable[Change]) -> None:
        """Changes of the accounts were read."""
        events = [event for change in changes if (event := event_of(change)) is not None]
        if self._is_first():
            self.on_view()
            for event in events:
                self._publish(event)
        else:
            self._keep(events)

    def on_view(self) -> None:
        """Other hubs serve clients than before: if this one has become the first, it publishes what the one before it may not have."""
        if not self._is_first():
            return
        self._forget_old(self._clock.monotonic())
        kept, cut = self._kept, self._cut
        self._kept, self._cut = deque(), 0
        if kept:
            log.info("publishing changes of accounts that another hub may not have published", count=len(kept))
        if cut:
            log.warning("changes of accounts not published: too many while another hub was to", count=cut)
            self._on_lost(cut)
        for _, event in kept:
            self._publish(event)

    def _keep(self, events: Iterable[TenantEvent]) -> None:
        now = self._clock.monotonic()
        self._kept.extend((now, event) for event in events)
        self._forget_old(now)
        while len(self._kept) > MOST_KEPT:
            self._kept.popleft()
            self._cut += 1

    def _forget_old(self, now: float) -> None:
        while self._kept and now - self._kept[0][0] > KEPT_S:
            self._kept.popleft()
            self._cut = 0


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
