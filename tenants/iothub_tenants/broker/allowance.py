# cython: annotation_typing=False
"""One tenant's quotas: its limits in force, the exact counts, and the meters that the message plane takes units from.

Knows no packets: it says which quota refuses, and the caller chooses the answer (`docs/guide/quotas.md`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from dataclasses import replace

from iothub.base.clock import Clock
from iothub.engine.limits import DeviceMeters, TenantLimits
from iothub.engine.router import Subscription
from iothub.engine.state import Place, Session, TenantPlane
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import MOST_LEVELS, Quota
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.rates import RateRegistry
from iothub_services.quota.resolve import EffectiveLimits, resolve_texts
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.shared.tenant import SharedTenant
from iothub_services.quota.usage import Usage
from iothub_tenants.broker.connection_time import ConnectionTime

MANY = 1 << 30  # "unlimited" for the engine's counts
MUCH = 1 << 40  # "unlimited" for its bytes
LARGEST_PACKET = 268_435_460
BACKLOG_BYTES = 1 << 20  # in memory, per session


class ConnectReservation:
    """What one CONNECT holds of `sessions`. `is_new`: a unit of its own; `takes_over`: the unit of the session that is there."""

    __slots__ = ("client_id", "is_new", "takes_over")

    def __init__(self, client_id: str) -> None:
        self.client_id = client_id
        self.is_new = False
        self.takes_over = False


class Allowance:
    """One tenant's quota state.

    Invariants: every reserved unit is released exactly once, by what ended. `own` holds the limits of each device that has any of its own,
    as text of the grammar: as last read from the accounts, or as found by its latest CONNECT.
    """

    def __init__(
        self,
        record: TenantRecord,
        plane: TenantPlane,
        clock: Clock,
        observer: QuotaObserver,
        usage: Usage,
        own: Mapping[str, str] | None = None,
        *,
        shared: SharedQuota | None = None,
    ) -> None:
        """`shared`: given where other hubs serve the tenant too."""
        self.plane = plane
        self.own = dict(own or {})
        self.limits = EffectiveLimits()
        self._shared = None if shared is None else SharedTenant(record.id, self.limits, observer, shared, clock)
        self.ledger = LocalLedger(record.id, self.limits, observer) if self._shared is None else self._shared.ledger
        self.rates = RateRegistry(record.id, usage, clock, observer)
        self.connection_time = ConnectionTime(clock)  # of `connections`
        self._observer = observer
        self._resolved: dict[str, EffectiveLimits] = {}  # by the text of a device's own limits
        self._taken_over: set[str] = set()
        self._record = record
        self._backlog_bytes = BACKLOG_BYTES
        self.apply_limits(record, self.own)

    def apply_limits(self, record: TenantRecord, own: Mapping[str, str]) -> None:
        """Put the limits of the tenant and of its devices in force; units that are spent or reserved stay so."""
        self._record = record
        self.own = dict(own)
        self.limits = resolve_texts(record.plan_limits, record.limits)
        self._resolved.clear()
        self.ledger.set_limits(self.limits)
        rates, plane = self.rates.tenant, self.plane
        rates.set_limits(self.limits)
        if self._shared is not None:
            self._shared.apply_limits(rates)
        plane.limits = _engine_limits(self.limits, record, self._backlog_bytes)
        plane.inbound_messages = rates.meter(Quota.PUBLISH_MESSAGES)
        plane.inbound_bytes = rates.meter(Quota.PUBLISH_BYTES)
        plane.day_messages = rates.day(Quota.PUBLISH_MESSAGES)
        plane.day_bytes = rates.day(Quota.PUBLISH_BYTES)
        plane.outbound_messages = rates.rate(Quota.DELIVER_MESSAGES)
        plane.outbound_bytes = rates.rate(Quota.DELIVER_BYTES)
        plane.persistent_fanout = rates.rate(Quota.PERSISTENT_FANOUT)

    def apply_backlog(self, backlog_bytes: int) -> None:
        """Let so much wait in memory for the window of one session."""
        self._backlog_bytes = backlog_bytes
        self.plane.limits = replace(self.plane.limits, backlog_bytes=backlog_bytes)

    def meter_streams(self) -> None:
        """Meter what goes to and from streams; a tenant without streams needs no such meters."""
        rates = self.rates.tenant
        self.plane.sink_messages = rates.rate(Quota.STREAM_MESSAGES)
        self.plane.sink_bytes = rates.rate(Quota.STREAM_BYTES)

    def limits_of(self, device: str) -> EffectiveLimits:
        """Return what is in force for one device: plan, then the tenant's override, then its own."""
        own = self.own.get(device)
        if not own:
            return self.limits
        known = self._resolved.get(own)
        if known is None:
            known = self._resolved[own] = resolve_texts(self._record.plan_limits, self._record.limits, own)
        return known

    def note_device(self, device: DeviceRecord) -> None:
        """A device connects: keep the limits that its record says."""
        if device.limits:
            self.own[device.name] = device.limits
        elif self.own:
            self.own.pop(device.name, None)

    def count_refusal(self, quota: Quota) -> None:
        """Count a refusal by a limit that the control plane checks itself."""
        self._observer.refused(self.plane.tenant_id, quota)

    def take_rate(self, quota: Quota, units: int = 1) -> bool:
        """Take units of a tenant rate that the control plane enforces: `connects`, `subscribes`."""
        is_taken = self.rates.tenant.take(quota, units) == 0.0
        if self._shared is not None:
            self._shared.spent(quota)
        return is_taken

    # --- other hubs

    @property
    def is_shared(self) -> bool:
        """Whether a reservation may first need units of the shared ledger (`wait_for_room`)."""
        return self._shared is not None

    async def wait_for_room(self, *wanted: tuple[Quota, int]) -> bool:
        """Wait until the wanted units fit; valid until the next await. False: they do not, and a reservation will be refused.

        Raises UnavailableError: they do not fit, and the shared ledger does not answer.
        """
        return self._shared is None or await self._shared.room(*wanted)

    async def wait_for_connect_room(self, client_id: str, *, has_place: bool, is_persistent: bool) -> bool:
        """`wait_for_room` for what `reserve_connect` would reserve."""
        return await self.wait_for_room(
            *self.units_of_connect(client_id, has_place=has_place, is_persistent=is_persistent)
        )

    def units_of_connect(
        self, client_id: str, *, has_place: bool, is_persistent: bool
    ) -> tuple[tuple[Quota, int], ...]:
        """Return what `reserve_connect` would reserve."""
        present = self.plane.sessions.get(client_id)
        begins = is_persistent and (present is None or not present.is_persistent)
        return (Quota.CONNECTIONS, int(not has_place)), (Quota.SESSIONS, int(begins))

    def session_moved(self, session: Session) -> None:
        """The session may have moved to or from another hub: count its units at the hub that has it."""
        if self._shared is None or not session.is_persistent or session.is_discarded:
            return
        place: Place | None = session.control.place
        is_elsewhere = session.control.is_elsewhere
        if place is None or is_elsewhere == place.is_counted:
            return
        place.is_counted = is_elsewhere
        ledger, sign = self._shared.ledger, 1 if is_elsewhere else -1
        ledger.moved(Quota.SESSIONS, sign)
        ledger.moved(Quota.SUBSCRIPTIONS, sign * len(session.subscriptions))

    def close(self) -> None:
        """The tenant's broker is dropped."""
        if self._shared is not None:
            self._shared.close()

    def _moved_subscription(self, subscription: Subscription, count: int) -> None:
        if self._shared is not None and _is_counted_elsewhere(subscription.session):
            self._shared.ledger.moved(Quota.SUBSCRIPTIONS, count)

    # --- connections and sessions

    def reserve_connect(self, client_id: str, has_place: bool, is_persistent: bool) -> ConnectReservation | Quota:
        """Reserve what a CONNECT needs, or return the quota that refuses. `has_place`: it takes over a counted connection."""
        if not has_place:
            if not self.ledger.reserve(Quota.CONNECTIONS):
                return Quota.CONNECTIONS
            self.connection_time.on_reserved()
        present = self.plane.sessions.get(client_id)
        reservation = ConnectReservation(client_id)
        if present is not None and present.is_persistent:
            reservation.takes_over = True
            self._taken_over.add(client_id)
        elif is_persistent:
            if not self.ledger.reserve(Quota.SESSIONS):
                if not has_place:
                    self.release_connection()
                return Quota.SESSIONS
            reservation.is_new = True
        return reservation

    def settle_connect(self, reservation: ConnectReservation, session: Session | None) -> None:
        """The session is open (None: it could not be opened); keep or release the unit of `sessions`."""
        has_unit = reservation.is_new
        if reservation.takes_over:
            has_unit = reservation.client_id not in self._taken_over  # the old session has ended meanwhile
            self._taken_over.discard(reservation.client_id)
        if has_unit and (session is None or not session.is_persistent):
            self.ledger.release(Quota.SESSIONS)

    def release_connection(self) -> None:
        self.connection_time.on_released()
        self.ledger.release(Quota.CONNECTIONS)

    def release_session(self, session: Session) -> None:
        """A session ends: release its unit, its subscriptions (they must still be there) and its device's meters."""
        for subscription in session.subscriptions.values():
            self.release_subscription(subscription)
        self._remove_device_meters(session)
        if self._shared is not None and _is_counted_elsewhere(session):
            session.control.place.is_counted = False
            self._shared.ledger.moved(Quota.SESSIONS, -1)
        if not session.is_persistent:
            return
        if session.client_id in self._taken_over:
            self._taken_over.discard(session.client_id)
        else:
            self.ledger.release(Quota.SESSIONS)

    # --- subscriptions

    def reserve_subscription(self, session: Session, subscription: Subscription, coming: int = 0) -> Quota | None:
        """Reserve the units of one new subscription; return the quota that refuses. `coming`: how many are granted and not active yet."""
        if not self._fits_session(session, len(session.subscriptions) + coming + 1):
            return Quota.SESSION_SUBSCRIPTIONS
        reserved: list[tuple[Quota, Hashable]] = []
        for quota, subject in self.units_of_subscription(subscription.group, subscription.filter):
            if not self.ledger.reserve(quota, 1, subject):
                for held, owner in reserved:
                    self.ledger.release(held, 1, owner)
                return quota
            reserved.append((quota, subject))
        return None

    def units_of_subscription(self, group: bytes | None, topic_filter: bytes) -> list[tuple[Quota, Hashable]]:
        """Return what one new subscription reserves, in this order: each quota with its subject."""
        units: list[tuple[Quota, Hashable]] = [(Quota.SUBSCRIPTIONS, None)]
        if group is not None:
            key = (group, topic_filter)
            if self.ledger.used(Quota.GROUP_MEMBERS, key) == 0:
                units.append((Quota.SHARED_GROUPS, None))
            units.append((Quota.GROUP_MEMBERS, key))
        return units

    def may_have_subscriptions(self, device: str, count: int) -> bool:
        """Say whether a session of the device may have so many subscriptions."""
        most = self.limits_of(device).session_subscriptions
        return not most or count <= max(most, 0)

    def _fits_session(self, session: Session, count: int) -> bool:
        limits = self.limits_of(session.device)
        if not self.may_have_subscriptions(session.device, count):
            self.count_refusal(Quota.SESSION_SUBSCRIPTIONS)
            return False
        on_trial = limits.dry_run.get(Quota.SESSION_SUBSCRIPTIONS, ())
        if any(window.limit is not None and count > window.limit for window in on_trial):
            self._observer.would_refuse(self.plane.tenant_id, Quota.SESSION_SUBSCRIPTIONS)
        return True

    def release_subscription(self, subscription: Subscription) -> None:
        self._moved_subscription(subscription, -1)
        self.ledger.release(Quota.SUBSCRIPTIONS)
        if subscription.group is not None:
            key = (subscription.group, subscription.filter)
            self.ledger.release(Quota.GROUP_MEMBERS, 1, key)
            if self.ledger.used(Quota.GROUP_MEMBERS, key) == 0:
                self.ledger.release(Quota.SHARED_GROUPS)

    def restore_session(self, session: Session) -> None:
        """Count a persistent session that was loaded at start, even above the limits."""
        self.ledger.restore(Quota.SESSIONS, 1)
        for subscription in session.subscriptions.values():
            self._count(subscription)

    def settle_subscription(self, subscription: Subscription, *, is_reserved: bool, was_there: bool) -> None:
        """A subscription is active. Two connections may have asked for it one after the other: its units are counted once."""
        if is_reserved and was_there:
            self.release_subscription(subscription)
        elif not is_reserved and not was_there:
            self._count(subscription)

    def _count(self, subscription: Subscription) -> None:
        self._moved_subscription(subscription, 1)
        self.ledger.restore(Quota.SUBSCRIPTIONS, 1)
        if subscription.group is not None:
            key = (subscription.group, subscription.filter)
            if self.ledger.used(Quota.GROUP_MEMBERS, key) == 0:
                self.ledger.restore(Quota.SHARED_GROUPS, 1)
            self.ledger.restore(Quota.GROUP_MEMBERS, 1, key)

    # --- devices

    def set_device_meters(self, session: Session, device: DeviceRecord) -> None:
        """Set the session's meters by the limits of its device, as they are now, and its live connection's packet size."""
        self.note_device(device)
        self._remove_device_meters(session)
        limits = self.limits_of(device.name)
        if session.connection is not None:
            session.connection.packet_bytes = limits.packet_bytes or LARGEST_PACKET
        rates = self.rates.join(device.name, limits)
        if rates is not None:
            session.meters = DeviceMeters(
                rates.rate(Quota.DEVICE_PUBLISH_MESSAGES),
                rates.rate(Quota.DEVICE_PUBLISH_BYTES),
                rates.rate(Quota.DEVICE_DELIVER_MESSAGES),
                rates.rate(Quota.DEVICE_DELIVER_BYTES),
            )

    def forget_devices(self, names: Iterable[str]) -> None:
        """Forget the rates of deleted devices whose sessions have ended: a new device of the same name begins with full rates."""
        for name in names:
            self.rates.forget(name)

    def _remove_device_meters(self, session: Session) -> None:
        if session.meters is not None:
            self.rates.leave(session.device)
            session.meters = None


def _engine_limits(limits: EffectiveLimits, record: TenantRecord, backlog_bytes: int) -> TenantLimits:
    return TenantLimits(
        packet_bytes=limits.packet_bytes or LARGEST_PACKET,
        topic_levels=limits.topic_levels or MOST_LEVELS,
        topic_bytes=limits.topic_bytes or 65_535,
        user_properties=limits.user_properties or 65_535,
        fanout=limits.fanout or MANY,
        fanout_bytes=limits.fanout_bytes or MUCH,
        backlog_bytes=backlog_bytes,
        store_qos0=record.is_qos0_queued,
        close_on_denied=record.is_closed_on_denied_publish,
    )


def _is_counted_elsewhere(session: Session) -> bool:
    """Whether its units are counted at the hub that has it."""
    place: Place | None = None if session.control is None else session.control.place
    return place is not None and place.is_counted
