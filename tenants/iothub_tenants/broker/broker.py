# cython: annotation_typing=False
"""One tenant's broker: its own rights, sessions, queues, retained messages, router and quota, over what all tenants share (B65, B66).

Knows no packets, no sockets and no SQL. Everything here belongs to exactly one tenant, so nothing can leak into another.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Protocol

from iothub.base.clock import Clock
from iothub.base.reasons import Reason
from iothub.config.sections import Config, Mqtt
from iothub.engine.filters import TOPIC_FILTER_INVALID, check_topic_filter, check_topic_name
from iothub.engine.limits import ConnectionSettings
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.ports import Policy
from iothub.engine.router import Subscription
from iothub.engine.state import Connection, Session, TenantPlane
from iothub.mqtt.constants import MQTT_5_0, Limits
from iothub.mqtt.packets import Connect
from iothub.records import events
from iothub.records.events import Subject
from iothub_services.auth.port import DeviceRecord, Run, TenantRecord
from iothub_services.queues.port import Overflow, QueueLimits
from iothub_services.quota.names import MOST_LEVELS, Quota
from iothub_services.sessions.manager import SessionManager
from iothub_services.sessions.port import NEVER_EXPIRES, Journal, SessionControl, SessionRequest, Will
from iothub_tenants.accounts.generator import QueueIds
from iothub_tenants.broker.allowance import LARGEST_PACKET, Allowance, ConnectReservation
from iothub_tenants.broker.peer_routes import NoPeerRoutes, PeerRoutes, until_opened, until_unchanging
from iothub_tenants.broker.retaining import Retaining
from iothub_tenants.broker.tenant_events import NoEvents, TenantEvents
from iothub_tenants.broker.traffic import NO_TRAFFIC, Traffic
from iothub_tenants.broker.until_read import Later
from iothub_tenants.broker.wills import Wills

MANY_LEVELS, MANY_BYTES = 65_536, 65_535  # what MQTT itself allows

OVERFLOWS = {overflow.word: overflow for overflow in Overflow}


class ClientConnection(Protocol):
    """The client context of a connection, as far as its broker uses it: `connection.control`."""

    broker: TenantBroker | None
    is_counted: bool

    def detach(self, reason: Reason) -> None:
        """Detach its session and release its quota unit."""


class TenantFigures(Protocol):
    """Publishes a tenant's figures to its own devices."""

    def subscribed(
        self, broker: TenantBroker, session: Session, subscription: Subscription, *, is_replayed: bool
    ) -> None:
        """A subscription is active; `is_replayed`: it asks for the present figures."""


@dataclass(slots=True)
class Shared:
    """What the brokers of one worker share: the plane, the services, clock and settings."""

    settings: Config
    clock: Clock
    plane: Plane
    sessions: SessionManager
    journal: Journal
    counters: Any
    run: Run
    sys_topics: TenantFigures
    later: Later
    rights: Callable[[TenantRecord, Session], Awaitable[Policy | None]]  # of a device that is not connected
    routes: PeerRoutes = field(default_factory=NoPeerRoutes)
    events: TenantEvents = field(default_factory=NoEvents)


_shared_settings = lru_cache(maxsize=1024)(ConnectionSettings)
"""One object for equal settings: most connections of a hub agree on the same few values. Called by position: the cache finds that faster."""


class TenantBroker:
    """One tenant. Fulfils the session manager's `SessionHome`.

    Invariants: every reserved unit is released exactly once, by what reserved it; `record` is replaced as a whole (`apply_record`).
    """

    def __init__(
        self,
        record: TenantRecord,
        shared: Shared,
        plane: TenantPlane,
        allowance: Allowance,
        queue_ids: QueueIds,
        retained: Retaining,
        past: Traffic = NO_TRAFFIC,
    ) -> None:
        """`past`: the traffic of the tenant's earlier brokers."""
        self.tenant_id = record.id
        self.record = record
        self.plane = plane
        self.allowance = allowance
        self.retained = retained
        self._sinks: dict[int, tuple[Session, Subscription]] = {}  # those in the router, by stream
        self._has_streams = False  # in any direction
        self._shared = shared
        self._queue_ids = queue_ids
        self._past = past
        self._wills = Wills(shared.plane, plane, shared.clock, shared.later, self._rights_of)

    @property
    def limits(self) -> Any:
        return self.allowance.limits

    @property
    def traffic(self) -> Traffic:
        """The tenant's, not only this broker's."""
        return self._past.plus(self.plane.counters)

    # --- limits

    def queue_limits(self, device: str) -> QueueLimits:
        """Return what a queue of one of the device's sessions may hold."""
        limits = self.allowance.limits_of(device)
        overflow = OVERFLOWS[self._shared.settings.queues.overflow]
        return QueueLimits(limits.session_queued_messages, limits.session_queued_bytes, overflow)

    def expiry_of(self, device: str, asked_s: int) -> int:
        """Cut a Session Expiry Interval to the device's `session_expiry_s`."""
        longest_s: int = self.allowance.limits_of(device).session_expiry_s or NEVER_EXPIRES
        return min(asked_s, longest_s)

    def check_topic(self, topic: bytes) -> int:
        """Return the Reason Code that refuses a Topic Name, 0 if it is fine."""
        code, quota = self.judge_topic(topic)
        if quota is not None:
            self.allowance.count_refusal(quota)
        return code

    def judge_topic(self, topic: bytes) -> tuple[int, Quota | None]:
        """Return as `check_topic`, with the quota that refuses, and count nothing."""
        levels, size = self.limits.topic_levels or MOST_LEVELS, self.limits.topic_bytes or MANY_BYTES
        code = check_topic_name(topic, levels, size)
        if code and not check_topic_name(topic, MANY_LEVELS, MANY_BYTES):
            return code, Quota.TOPIC_BYTES if len(topic) > size else Quota.TOPIC_LEVELS
        return code, None

    def check_filter(self, device: str, topic_filter: bytes) -> int:
        """Return the Reason Code that refuses a well-formed Topic Filter (with its `$share` part), 0 if it is within the limits."""
        quota = self.judge_filter(device, topic_filter)
        if quota is None:
            return 0
        self.allowance.count_refusal(quota)
        return TOPIC_FILTER_INVALID

    def judge_filter(self, device: str, topic_filter: bytes) -> Quota | None:
        """Return the quota that refuses a well-formed Topic Filter, and count nothing."""
        limits = self.allowance.limits_of(device)
        levels, size = limits.filter_levels or MOST_LEVELS, limits.topic_bytes or MANY_BYTES
        if not check_topic_filter(topic_filter, levels, size):
            return None
        return Quota.TOPIC_BYTES if len(topic_filter) > size else Quota.FILTER_LEVELS

    def packet_limits(self, device: str) -> Limits:
        """Return the limits for SUBSCRIBE, UNSUBSCRIBE, DISCONNECT and AUTH of this device."""
        limits = self.allowance.limits_of(device)
        return Limits(
            user_properties=limits.user_properties or MANY_BYTES,
            subscribe_filters=limits.subscribe_filters or MANY_BYTES,
        )

    def connection_settings(self, mqtt: Mqtt, device: str, packet: Connect) -> ConnectionSettings:
        """Return what this CONNECT and the device's limits agree on."""
        limits, asked = self.allowance.limits_of(device), packet.properties
        is_v5 = packet.version == MQTT_5_0
        keep_alive_s = max(packet.keep_alive_s or int(mqtt.max_keepalive_s), limits.keep_alive_min_s or 0)
        return _shared_settings(
            packet.version,
            min(keep_alive_s, int(mqtt.max_keepalive_s)),
            (asked.receive_maximum or 65_535) if is_v5 else mqtt.max_inflight,
            asked.topic_alias_maximum or 0,
            limits.receive_maximum,
            limits.topic_aliases if is_v5 else 0,
            limits.packet_bytes or LARGEST_PACKET,
        )

    def apply_record(self, record: TenantRecord, own: Mapping[str, str]) -> None:
        """Put the tenant's record in force, as the accounts have it now. `own`: the limits of the devices that have any of their own."""
        if record != self.record or own != self.allowance.own:
            self.record = record
            self.allowance.apply_limits(record, own)
            if self._has_streams:
                self.allowance.meter_streams()
            self.plane.router.cache.clear()  # else a Topic Name with a cached route is not checked by the new limits
            self._shared.plane.limits_changed(self.plane)

    def set_has_streams(self, has_streams: bool) -> None:
        """The tenant has streams now, in any direction, or has none."""
        self._has_streams = has_streams
        if has_streams:
            self.allowance.meter_streams()

    def sink_streams(self) -> frozenset[int]:
        """Return the streams whose sinks are in the router."""
        return frozenset(self._sinks)

    def add_sink(self, stream_id: int, session: Session, subscription: Subscription) -> None:
        """Subscribe a session whose `control` is the stream's sink; it has no client, and only the router knows it."""
        self._sinks[stream_id] = session, subscription
        self.plane.router.subscribe(subscription)
        self.plane.sinks += 1

    def remove_sink(self, stream_id: int) -> None:
        session, subscription = self._sinks.pop(stream_id)
        self.plane.router.unsubscribe(session, subscription.filter, None)
        self.plane.sinks -= 1

    @property
    def is_idle(self) -> bool:
        is_used = self.plane.sessions or self.plane.connections or self.allowance.ledger.used(Quota.CONNECTIONS)
        is_used = is_used or len(self._wills)  # `connections` above counts pending CONNECTs too
        is_used = is_used or self.plane.buffered_bytes  # what another hub may return for another member of its group
        return not is_used and self.retained.is_empty and self.allowance.rates.is_idle

    # --- sessions and connections

    async def next_queue_id(self) -> int:
        queue_id = self._queue_ids.allocate_nowait()
        if queue_id is None:
            queue_id = await self._shared.run("accounts.ids", self._queue_ids.allocate)
        return queue_id

    async def wait_for_connect_room(self, request: SessionRequest) -> None:
        """Wait until `reserve_connect` has the units that it needs; call it just before. Raises UnavailableError."""
        is_persistent = request.expiry_s > 0
        has_place = self._counted_connection(request.client_id) is not None
        await self.allowance.wait_for_connect_room(request.client_id, has_place=has_place, is_persistent=is_persistent)

    def units_of_connect(self, client_id: str, *, is_persistent: bool) -> tuple[tuple[Quota, int], ...]:
        """Return what `reserve_connect` would reserve, and reserve nothing."""
        has_place = self._counted_connection(client_id) is not None
        return self.allowance.units_of_connect(client_id, has_place=has_place, is_persistent=is_persistent)

    def _counted_connection(self, client_id: str) -> ClientConnection | None:
        """Return the connection whose unit this CONNECT takes over, None if there is none."""
        present = self.plane.sessions.get(client_id)
        other: ClientConnection | None = None
        if present is not None and present.connection is not None:
            other = present.connection.control
        return other if other is not None and other.is_counted else None

    def reserve_connect(self, client: ClientConnection, request: SessionRequest) -> ConnectReservation | Quota:
        """Reserve a connection's unit, and a session's for a new persistent one; or return the quota that refuses."""
        other = self._counted_connection(request.client_id)
        is_persistent = request.expiry_s > 0
        reservation = self.allowance.reserve_connect(request.client_id, other is not None, is_persistent)
        if isinstance(reservation, ConnectReservation):
            if other is not None:
                other.is_counted = False  # this CONNECT holds the unit now
            client.broker = self
            client.is_counted = True
        return reservation

    def vacate(self, connection: Connection, reason: Reason) -> None:
        client: ClientConnection = connection.control
        client.detach(reason)

    def close_session(self, session: Session, reason: Reason, keeps_will: bool, expiry_s: int | None) -> None:
        """A connection no longer has its session."""
        self._shared.events.disconnected(session, reason)
        sessions = self._shared.sessions
        sessions.close_connection(self, session, reason, keeps_will=keeps_will, expiry_s=expiry_s)

    def connected(self, session: Session, connection: Connection, packet: Connect) -> None:
        """A connection was admitted: every connect is an event (B24)."""
        session.connected_at_ms = now_ms = self._now_ms()
        subject = Subject(self.tenant_id, session.client_id, session.epoch, now_ms)
        connected = events.session_connected(
            subject,
            device=session.device,
            protocol_version=packet.version,
            session_expiry_s=session.control.expiry_s,
            peer=connection.peer,
            keep_alive_s=packet.keep_alive_s,
        )
        self._shared.journal.note([connected])
        self._shared.sessions.connected(session)

    def session_began(self, session: Session, device: DeviceRecord) -> None:
        """Set the session's meters by its device's limits, and count it at this hub."""
        self.allowance.set_device_meters(session, device)
        self.allowance.session_moved(session)

    def session_ended(self, session: Session) -> None:
        self.allowance.release_session(session)

    # --- wills

    def publish_will(self, session: Session, will: Will, message_id: bytes, on_done: Callable[[], None]) -> None:
        """Publish a Will as a PUBLISH by the session's device, checked again now."""
        expires_at = self._shared.clock.wall() + will.expiry_s if will.expiry_s is not None else 0.0
        message = Message(
            will.topic,
            will.payload,
            will.qos,
            will.retain,
            will.properties,
            expires_at,
            message_id,
            None,
            session.client_id,
        )
        self._wills.fire(session, message, on_done)

    def publish_will_of_lost(
        self,
        client_id: str,
        device: str,
        control: SessionControl,
        will: Will,
        message_id: bytes,
        on_done: Callable[[], None],
    ) -> None:
        """Publish the Will of a client whose hub is lost, by the rights that its device has now; `on_done` as in `publish_will`."""
        session = Session(self.plane, client_id, device, is_persistent=True)  # so that its rights are read
        session.control = control
        self.publish_will(session, will, message_id, on_done)

    async def _rights_of(self, session: Session) -> Policy | None:
        """Return the rights by which a Will is published, once it would reach the clients of every hub."""
        await until_opened(self._shared.routes, self.plane)
        return await self._shared.rights(self.record, session)

    async def subscriptions_known(self, session: Session) -> None:
        """Return when every hub knows a session's subscriptions as they are."""
        await until_unchanging(self._shared.routes, session)

    # --- subscriptions

    def wants_replay(self, session: Session, subscription: Subscription, *, is_new: bool) -> bool:
        """Return whether a new subscription asks for Retained Messages (§3.3.1.3) and there may be some."""
        wanted = subscription.retain_handling == 0 or (subscription.retain_handling == 1 and is_new)
        self._shared.sys_topics.subscribed(self, session, subscription, is_replayed=wanted)
        return wanted and subscription.group is None and self.retained.may_have_any

    # --- refusals

    def denied(self, action: str, session: Session) -> None:
        self._shared.counters.denied(self.tenant_id, action)

    def _now_ms(self) -> int:
        return int(self._shared.clock.wall() * 1000)
