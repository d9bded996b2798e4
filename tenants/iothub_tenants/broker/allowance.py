"""What one tenant may use: its limits in force, the exact counts, and the meters that the message plane takes from.

Knows no packets and gives no answers: it says which quota refuses; the caller reacts by the table of the tenancy page, section 4.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from iothub.base.clock import Clock
from iothub.engine.limits import DeviceMeters, TenantLimits
from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub_services.auth.port import DeviceRecord, TenantRecord
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import MOST_LEVELS, Quota
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.rates import RateBook
from iothub_services.quota.resolve import EffectiveLimits, resolve_texts
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.shared.tenant import SharedTenant
from iothub_services.quota.usage import Usage
from iothub_tenants.broker.place_time import PlaceTime

MANY = 1 << 30  # "unlimited" for the engine's counts
MUCH = 1 << 40  # "unlimited" for its bytes
LARGEST_PACKET = 268_435_460
BACKLOG_BYTES = 1 << 20  # in memory, per session


@dataclass(slots=True)
class Entry:
    """What one CONNECT has reserved of `sessions`. `inherits`: it takes over the unit of the session that is there."""

    client_id: str
    reserves: bool = False
    inherits: bool = False


class Allowance:
    """One tenant's quota state.

    Invariants: what is reserved is given back exactly once, by whoever ended. `own` holds the limits of each device that has any of
    its own, as text of the grammar: as last read from the accounts, or as its latest CONNECT brought them.
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
        backlog_bytes: int = BACKLOG_BYTES,
        shared: SharedQuota | None = None,
    ) -> None:
        """`shared`: where other hubs serve the tenant, too."""
        self.plane = plane
        self.own = dict(own or {})
        self.limits = EffectiveLimits()
        self._shared = None if shared is None else SharedTenant(record.id, self.limits, observer, shared, clock)
        self.ledger = LocalLedger(record.id, self.limits, observer) if self._shared is None else self._shared.ledger
        self._elsewhere: set[Session] = set()  # other hubs have them, and their units
        self.rates = RateBook(record.id, usage, clock, observer)
        self.places = PlaceTime(clock)  # of `connections`
        self._observer = observer
        self._resolved: dict[str, EffectiveLimits] = {}  # by the text of a device's own limits
        self._inherited: set[str] = set()
        self._record = record
        self._backlog_bytes = backlog_bytes  # in memory, per session
        self.obey(record, self.own)

    def obey(self, record: TenantRecord, own: Mapping[str, str]) -> None:
        """Put the record's limits, and those of its devices, in force; what is spent stays spent, what is reserved stays reserved."""
        self._record = record
        self.own = dict(own)
        self.limits = resolve_texts(record.plan_limits, record.limits)
        self._resolved.clear()
        self.ledger.set_limits(self.limits)
        rates, plane = self.rates.tenant, self.plane
        rates.set_limits(self.limits)
        if self._shared is not None:
            self._shared.obey(rates)
        plane.limits = _engine_limits(self.limits, record, self._backlog_bytes)
        plane.inbound_messages = rates.meter(Quota.PUBLISH_MESSAGES)
        plane.inbound_bytes = rates.meter(Quota.PUBLISH_BYTES)
        plane.day_messages = rates.day(Quota.PUBLISH_MESSAGES)
        plane.day_bytes = rates.day(Quota.PUBLISH_BYTES)
        plane.outbound_messages = rates.rate(Quota.DELIVER_MESSAGES)
        plane.outbound_bytes = rates.rate(Quota.DELIVER_BYTES)
        plane.persistent_fanout = rates.rate(Quota.PERSISTENT_FANOUT)

    def meter_streams(self) -> None:
        """Hold what goes to and from streams to its rates; a tenant without any needs no meters for them."""
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

    def learn(self, device: DeviceRecord) -> None:
        """A device has come: remember what its record says."""
        if device.limits:
            self.own[device.name] = device.limits
        else:
            self.own.pop(device.name, None)

    def refused(self, quota: Quota) -> None:
        """A bound that the control plane checks itself said no."""
        self._observer.refused(self.plane.tenant_id, quota)

    def take(self, quota: Quota, units: int = 1) -> bool:
        """Take units of a tenant rate that the control plane enforces: `connects`, `subscribes`."""
        is_taken = self.rates.tenant.take(quota, units) == 0.0
        if self._shared is not None:
            self._shared.spent(quota)
        return is_taken

    # --- other hubs

    @property
    def is_shared(self) -> bool:
        """Whether there may be room for more only after other hubs were asked for it (`room`)."""
        return self._shared is not None

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        """Wait until all fit, which holds until something else is waited for; False: the ledger says no, and so will the reservation.

        Raises UnavailableError: it does not fit, and nobody can be asked.
        """
        return self._shared is None or await self._shared.room(*wanted)

    async def room_to_enter(self, client_id: str, *, has_place: bool, is_persistent: bool) -> bool:
        """`room` for what `enter` would reserve."""
        present = self.plane.sessions.get(client_id)
        begins = is_persistent and (present is None or not present.is_persistent)
        return await self.room((Quota.CONNECTIONS, int(not has_place)), (Quota.SESSIONS, int(begins)))

    def moved(self, session: Session) -> None:
        """Another hub may have the session since, or this one: its units are with who has it."""
        if self._shared is None or not session.is_persistent or session.is_discarded:
            return
        is_elsewhere = session.control.is_elsewhere
        if is_elsewhere == (session in self._elsewhere):
            return
        if is_elsewhere:
            self._elsewhere.add(session)
        else:
            self._elsewhere.discard(session)
        ledger, sign = self._shared.ledger, 1 if is_elsewhere else -1
        ledger.moved(Quota.SESSIONS, sign)
        ledger.moved(Quota.SUBSCRIPTIONS, sign * len(session.subscriptions))

    def close(self) -> None:
        """The tenant's broker is put away."""
        if self._shared is not None:
            self._shared.close()

    def _moved_subscription(self, subscription: Subscription, count: int) -> None:
        if self._shared is not None and subscription.session in self._elsewhere:
            self._shared.ledger.moved(Quota.SUBSCRIPTIONS, count)

    # --- connections and sessions

    def enter(self, client_id: str, *, has_place: bool, is_persistent: bool) -> Entry | Quota:
        """Reserve what a CONNECT needs; or return the quota that refuses. `has_place`: it takes over a counted connection."""
        if not has_place:
            if not self.ledger.reserve(Quota.CONNECTIONS):
                return Quota.CONNECTIONS
            self.places.taken()
        present = self.plane.sessions.get(client_id)
        entry = Entry(client_id)
        if present is not None and present.is_persistent:
            entry.inherits = True
            self._inherited.add(client_id)
        elif is_persistent:
            if not self.ledger.reserve(Quota.SESSIONS):
                if not has_place:
                    self.release_connection()
                return Quota.SESSIONS
            entry.reserves = True
        return entry

    def entered(self, entry: Entry, session: Session | None) -> None:
        """The session is open (None: it could not be opened); settle who holds the unit of `sessions`."""
        has_unit = entry.reserves
        if entry.inherits:
            has_unit = entry.client_id not in self._inherited  # the old session has ended meanwhile
            self._inherited.discard(entry.client_id)
        if has_unit and (session is None or not session.is_persistent):
            self.ledger.release(Quota.SESSIONS)

    def release_connection(self) -> None:
        self.places.given_back()
        self.ledger.release(Quota.CONNECTIONS)

    def release_session(self, session: Session) -> None:
        """A session ends: its unit, its subscriptions (so they must still be there), its device's meters."""
        for subscription in session.subscriptions.values():
            self.release_subscription(subscription)
        self._unequip(session)
        if self._shared is not None and session in self._elsewhere:
            self._elsewhere.discard(session)
            self._shared.ledger.moved(Quota.SESSIONS, -1)
        if not session.is_persistent:
            return
        if session.client_id in self._inherited:
            self._inherited.discard(session.client_id)
        else:
            self.ledger.release(Quota.SESSIONS)

    # --- subscriptions

    def reserve_subscription(self, session: Session, subscription: Subscription, coming: int = 0) -> Quota | None:
        """Take the places of one new subscription; return the quota that refuses. `coming`: how many were granted and are not active yet."""
        if not self._fits_session(session, len(session.subscriptions) + coming + 1):
            return Quota.SESSION_SUBSCRIPTIONS
        if not self.ledger.reserve(Quota.SUBSCRIPTIONS):
            return Quota.SUBSCRIPTIONS
        refused = self._reserve_member(subscription)
        if refused is not None:
            self.ledger.release(Quota.SUBSCRIPTIONS)
        return refused

    def _fits_session(self, session: Session, count: int) -> bool:
        limits = self.limits_of(session.device)
        if limits.session_subscriptions and count > max(limits.session_subscriptions, 0):
            self.refused(Quota.SESSION_SUBSCRIPTIONS)
            return False
        on_trial = limits.dry_run.get(Quota.SESSION_SUBSCRIPTIONS, ())
        if any(window.limit is not None and count > window.limit for window in on_trial):
            self._observer.would_refuse(self.plane.tenant_id, Quota.SESSION_SUBSCRIPTIONS)
        return True

    def _reserve_member(self, subscription: Subscription) -> Quota | None:
        if subscription.group is None:
            return None
        key = (subscription.group, subscription.filter)
        is_first = self.ledger.used(Quota.GROUP_MEMBERS, subject=key) == 0
        if is_first and not self.ledger.reserve(Quota.SHARED_GROUPS):
            return Quota.SHARED_GROUPS
        if self.ledger.reserve(Quota.GROUP_MEMBERS, subject=key):
            return None
        if is_first:
            self.ledger.release(Quota.SHARED_GROUPS)
        return Quota.GROUP_MEMBERS

    def release_subscription(self, subscription: Subscription) -> None:
        self._moved_subscription(subscription, -1)
        self.ledger.release(Quota.SUBSCRIPTIONS)
        if subscription.group is not None:
            key = (subscription.group, subscription.filter)
            self.ledger.release(Quota.GROUP_MEMBERS, subject=key)
            if self.ledger.used(Quota.GROUP_MEMBERS, subject=key) == 0:
                self.ledger.release(Quota.SHARED_GROUPS)

    def restore(self, session: Session) -> None:
        """Count a persistent session that was loaded at start, whatever the limits say now."""
        self.ledger.restore(Quota.SESSIONS, 1)
        for subscription in session.subscriptions.values():
            self._count(subscription)

    def settle(self, subscription: Subscription, *, is_reserved: bool, was_there: bool) -> None:
        """A subscription has become active. Two connections may have asked for it one after the other: its places are counted once."""
        if is_reserved and was_there:
            self.release_subscription(subscription)
        elif not is_reserved and not was_there:
            self._count(subscription)

    def _count(self, subscription: Subscription) -> None:
        self._moved_subscription(subscription, 1)
        self.ledger.restore(Quota.SUBSCRIPTIONS, 1)
        if subscription.group is not None:
            key = (subscription.group, subscription.filter)
            if self.ledger.used(Quota.GROUP_MEMBERS, subject=key) == 0:
                self.ledger.restore(Quota.SHARED_GROUPS, 1)
            self.ledger.restore(Quota.GROUP_MEMBERS, 1, subject=key)

    # --- devices

    def equip(self, session: Session, device: DeviceRecord) -> None:
        """Give a session the rates of its device, as the device's limits are now; its live connection obeys them too."""
        self.learn(device)
        self._unequip(session)
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
        """They were deleted, and their sessions have ended: others of their names begin with nothing spent."""
        for name in names:
            self.rates.forget(name)

    def _unequip(self, session: Session) -> None:
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
