"""The webhooks of the accounts, as a hub delivers to them: which events are for whom, what was tried, and an alarm for what is lost.

Knows no HTTP: `iothub_services.webhooks` delivers.
"""

from __future__ import annotations

from collections.abc import Callable, Collection

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import UnavailableError
from iothub.config.sections.webhooks import Webhooks as Settings
from iothub.records.tenant_events import EventKind, TenantEvent
from iothub_services.auth.port import Run
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.webhooks.deliverer import Deliverer
from iothub_services.webhooks.outbox import Waiting
from iothub_services.webhooks.port import PLATFORM, Delivery, Result, Target
from iothub_tenants.accounts import webhooks
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import AccountStore, ChangeKind

LOOK_INTERVAL_S = 2.0
AGAIN_S = 60.0  # a replaced secret ends its day without a change in the accounts
ALARMED_S = 600.0  # after the last loss

log = logging.get(__name__)


class Webhooks:
    """Fulfils `EventSink`. On the reactor thread."""

    def __init__(
        self,
        deliverer: Deliverer,
        accounts: AccountStore,
        run: Run,
        alarms: Alarms,
        clock: Clock,
        node: int,
        *,
        has_left: Callable[[], bool],
    ) -> None:
        """`has_left`: events of an earlier run wait."""
        self.deliverer = deliverer
        self._accounts = accounts
        self._run = run
        self._alarms = alarms
        self._clock = clock
        self._node = node
        self._has_left = has_left
        self._by_tenant: dict[int, tuple[Target, ...]] = {}
        self._targets: tuple[Target, ...] = ()
        self._is_first = True
        self._is_stale = True
        self._looked_at = 0.0
        self._lost_at: dict[str, float] = {}

    # --- events

    def has(self, tenant_id: int) -> bool:
        """Fulfils `EventSink`."""
        return tenant_id in self._by_tenant or PLATFORM in self._by_tenant

    def wants(self, tenant_id: int, kind: EventKind) -> bool:
        return any(target.wants(tenant_id, kind.value) for target in self._of(tenant_id))

    def take(self, event: TenantEvent, event_id: str, body: bytes) -> None:
        for target in self._of(event.tenant_id):
            if target.wants(event.tenant_id, event.kind.value):
                self.deliverer.put(target, Waiting(0, target.id, event_id, event.kind.value, event.at_ms, body))

    def _of(self, tenant_id: int) -> tuple[Target, ...]:
        own = self._by_tenant.get(tenant_id, ()) if tenant_id != PLATFORM else ()
        return own + self._by_tenant.get(PLATFORM, ())

    # --- accounts

    def on_changes(self, changes: Collection[Change]) -> None:
        """The accounts have changed; `run_once` looks at what concerns webhooks."""
        self._is_stale |= any(
            change.kind in (ChangeKind.WEBHOOK, ChangeKind.TENANT, ChangeKind.UNKNOWN) for change in changes
        )

    async def run_once(self) -> None:
        """Read the webhooks if they have changed, write down what was tried, and look after the alarms. Raises UnavailableError."""
        now = self._clock.monotonic()
        if self._is_stale or now - self._looked_at >= AGAIN_S:
            self._is_stale = False
            self._looked_at = now
            try:
                self._use(tuple(await self._run("accounts.webhooks", webhooks.active, self._accounts)))
            except UnavailableError:
                self._is_stale = True
                raise
        self._clear_alarms(now)
        attempts = self.deliverer.take_attempts()
        if attempts:
            await self._run("accounts.webhook_attempts", webhooks.note_attempts, self._accounts, attempts, self._node)

    def _use(self, targets: tuple[Target, ...]) -> None:
        is_left_over, self._is_first = self._is_first and self._has_left(), False
        if targets == self._targets and not is_left_over:
            return
        self._targets = targets
        by_tenant: dict[int, list[Target]] = {}
        for target in targets:
            by_tenant.setdefault(target.tenant_id, []).append(target)
        self._by_tenant = {tenant_id: tuple(found) for tenant_id, found in by_tenant.items()}
        self.deliverer.set_targets(targets)

    # --- what is lost

    def on_lost(self, target: Target, result: Result, count: int) -> None:
        """Events of a webhook are lost."""
        self._lost_at[target.label] = self._clock.monotonic()
        log.warning("webhook events lost", webhook=target.label, reason=result.value, count=count)
        self._alarms.raise_(AlarmName.WEBHOOK_LOST, subject=target.label, detail=result.value, is_newest=True)

    def _clear_alarms(self, now: float) -> None:
        for label in [label for label, at in self._lost_at.items() if now - at >= ALARMED_S]:
            del self._lost_at[label]
            self._alarms.clear(AlarmName.WEBHOOK_LOST, subject=label)


def delivery_of(settings: Settings) -> Delivery:
    return Delivery(settings.allow_networks, settings.timeout_s, settings.give_up_s, settings.queue_bytes)
