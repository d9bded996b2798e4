"""What packages report while they work: counted for the metrics, and said in the log where a person should know.

Knows no source's inside and decides nothing. One object fulfils the observers of message plane, control plane, auth and quota.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iothub.base import log
from iothub.base.reasons import Drop, Reason
from iothub.records.events import Event
from iothub_services.auth.authenticator import Authenticated, Credentials, Refusal
from iothub_services.metrics import metrics
from iothub_services.metrics.alarms import AlarmName, Alarms
from iothub_services.metrics.exposition import Registry
from iothub_services.metrics.tallies import Tally
from iothub_services.quota.names import BY_NAME, Quota
from iothub_tenants.broker.traffic import PastTraffic

if TYPE_CHECKING:
    from iothub.engine.state import Session, TenantPlane

PROTOCOLS = {3: "3.1", 4: "3.1.1", 5: "5"}

PLANE_LIMITS = {
    "inbound_messages": Quota.PUBLISH_MESSAGES,
    "day_messages": Quota.PUBLISH_MESSAGES,
    "inbound_bytes": Quota.PUBLISH_BYTES,
    "day_bytes": Quota.PUBLISH_BYTES,
    "device_inbound_messages": Quota.DEVICE_PUBLISH_MESSAGES,
    "device_inbound_bytes": Quota.DEVICE_PUBLISH_BYTES,
    "inbound_maximum": Quota.RECEIVE_MAXIMUM,
    "persistent_fanout": Quota.PERSISTENT_FANOUT,
    "sink_messages": Quota.STREAM_MESSAGES,
    "sink_bytes": Quota.STREAM_BYTES,
    "packet_bytes": Quota.PACKET_BYTES,
    "topic_levels": Quota.TOPIC_LEVELS,
    "topic_bytes": Quota.TOPIC_BYTES,
    "topic_aliases": Quota.TOPIC_ALIASES,
    "user_properties": Quota.USER_PROPERTIES,
    "fanout": Quota.FANOUT,
    "fanout_bytes": Quota.FANOUT_BYTES,
}
"""The message plane names a limit by its own attribute; people know the quota behind it."""

_COUNTED_EVENTS = {f"session.{word}": word for word in metrics.SESSION_WORDS}


class ByTenant:
    """Counts by tenant and word. Words come from the program, tenants are known ones: both are bounded."""

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[int, dict[str, int]] = {}

    def add(self, tenant_id: int, word: str, count: int = 1) -> None:
        counts = self._counts.setdefault(tenant_id, {})
        counts[word] = counts.get(word, 0) + count

    def of(self, tenant_id: int) -> dict[str, int]:
        return dict(self._counts.get(tenant_id, {}))

    def forget(self, tenant_id: int) -> None:
        self._counts.pop(tenant_id, None)


class Telemetry:
    """All on the reactor thread, but `committed`."""

    def __init__(self, alarms: Alarms) -> None:
        self.alarms = alarms
        self.registry = Registry()
        self.reloaded_at = 0.0  # Unix time of the last good reload; the start counts as one
        self.is_reload_good = True
        self.lag_s = 0.0
        self.tenant_rejections = ByTenant()
        self.tenant_denials = ByTenant()
        self.tenant_trials = ByTenant()
        self.tenant_logins = ByTenant()
        self.past = PastTraffic()
        self.drops = Tally()  # for the events of a period
        self.refusals = Tally()
        self.failed_logins = Tally()
        self._connects = self.registry.tally(metrics.CONNECTS)
        self._disconnects = self.registry.tally(metrics.DISCONNECTS)
        self._denied = self.registry.tally(metrics.AUTHORIZATIONS_DENIED)
        self._rejections = self.registry.tally(metrics.QUOTA_REJECTIONS)
        self._logins = self.registry.tally(metrics.AUTHENTICATIONS)
        self._session_events = self.registry.tally(metrics.SESSION_EVENTS)
        self._ticks = self.registry.timing(metrics.REACTOR_TICK)
        self._commits = {store: self.registry.timing(metrics.STORE_COMMIT_DURATION, store) for store in metrics.STORES}
        self._malformed = 0
        self._protocol_errors = 0
        self.registry.feed(metrics.MALFORMED_PACKETS, lambda: self._malformed)
        self.registry.feed(metrics.PROTOCOL_ERRORS, lambda: self._protocol_errors)
        self._log = log.get(__name__)

    # --- the hub as a whole

    def ticked(self, late_s: float) -> None:
        self.lag_s = late_s
        self._ticks.observe(late_s)

    def committed(self, store: str, duration_s: float) -> None:
        """In the thread of that store: each has a histogram of its own, so nobody else writes to it."""
        self._commits[store].observe(duration_s)

    def commits(self) -> dict[str, int]:
        return {store: timing.count for store, timing in self._commits.items()}

    def reloaded(self, at: float, *, is_successful: bool) -> None:
        self.is_reload_good = is_successful
        if is_successful:
            self.reloaded_at = at

    def happened(self, event: Event) -> None:
        word = _COUNTED_EVENTS.get(event.type.word)
        if word is not None:
            self._session_events.add(word)

    def forget_tenant(self, tenant_id: int) -> None:
        for counts in (self.tenant_rejections, self.tenant_denials, self.tenant_trials, self.tenant_logins):
            counts.forget(tenant_id)
        self.past.forget(tenant_id)

    # --- message plane

    def dropped(self, tenant: TenantPlane, session: Session | None, drop: Drop, count: int) -> None:
        """The plane's own counters have it; here is whose it was, but for messages for nobody: those may be all that come."""
        if drop is not Drop.NO_SUBSCRIBERS:
            self.drops.add(tenant.tenant_id, "" if session is None else session.device, drop.value, count)

    def limited(self, tenant: TenantPlane, session: Session | None, limit: str, count: int) -> None:
        self.refused(tenant.tenant_id, PLANE_LIMITS[limit], count, "" if session is None else session.device)

    def queue_full(self, tenant: TenantPlane, quota: str) -> None:
        self.refused(tenant.tenant_id, BY_NAME[quota])

    # --- control plane

    def closed(self, reason: Reason) -> None:
        self._disconnects.add(reason.word)
        if reason is Reason.MALFORMED:
            self._malformed += 1
        elif reason is Reason.PROTOCOL_ERROR:
            self._protocol_errors += 1

    def connected(self, listener: str, version: int, result: str) -> None:
        self._connects.add(PROTOCOLS.get(version, "5"), "accepted" if result == "accepted" else "refused")

    def denied(self, tenant_id: int, action: str) -> None:
        self._denied.add(action)
        self.tenant_denials.add(tenant_id, action)

    # --- auth

    def proven(self, who: Authenticated) -> None:
        self._logins.add("accepted")
        self.tenant_logins.add(who.tenant.id, "accepted")

    def refused_login(self, credentials: Credentials, refusal: Refusal, *, is_ban: bool) -> None:
        self._logins.add(refusal.cause)
        is_known = refusal.tenant_id and refusal.cause != "unknown_device"
        self.failed_logins.add(refusal.tenant_id, credentials.device if is_known else "", refusal.cause)
        if refusal.tenant_id:
            self.tenant_logins.add(refusal.tenant_id, "refused")
        if is_ban:  # each refusal has its line in the connection log
            self._log.info(
                "device banned after failed logins",
                tenant=credentials.tenant,
                device=credentials.device,
                address=credentials.address,
            )

    def store_failed(self, call: str, error: Exception) -> None:
        self.alarms.raise_(AlarmName.ACCOUNTS_UNREACHABLE, detail=f"{call}: {error}")

    # --- quota

    def refused(self, tenant_id: int, quota: Quota, count: int = 1, device: str = "") -> None:
        self.refusals.add(tenant_id, device, quota.value, count)
        self._rejections.add(quota.value, amount=count)
        self.tenant_rejections.add(tenant_id, quota.value, count)

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        self.tenant_trials.add(tenant_id, quota.value)
        self._log.info("dry-run limit would have rejected", tenant_id=tenant_id, quota=quota.value)

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        self._log.error("quota count fell below zero", tenant_id=tenant_id, quota=quota.value)


class AuthTelemetry:
    """The authenticator's observer: its word for a refusal is the quota's as well, so it has an observer of its own."""

    def __init__(self, telemetry: Telemetry) -> None:
        self._telemetry = telemetry
        self.proven = telemetry.proven

    def refused(self, credentials: Credentials, refusal: Refusal, *, is_ban: bool) -> None:
        self._telemetry.refused_login(credentials, refusal, is_ban=is_ban)

    def store_failed(self, call: str, error: Exception) -> None:
        self._telemetry.store_failed(call, error)
