# cython: annotation_typing=False
"""What one batch of events shares: the time, which connections must be woken or closed, what is buffered.

Knows no packets. Nothing here calls a transport or the control plane: `plane.end_batch` does, when nothing is being walked any more.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from typing import Any

from iothub.base.clock import Clock
from iothub.base.reasons import Drop, Reason
from iothub.engine.counters import Counters
from iothub.engine.limits import PlaneLimits
from iothub.engine.outbox import PublishStore, without_sinks
from iothub.engine.ports import Observer, Store
from iothub.engine.state import NOTHING, Connection, Session, TenantPlane

# Overload levels, by `buffered_bytes`.
NOT_OVERLOADED = 0
DROPS_QOS0 = 1  # 70 %: QoS 0 to congested connections is dropped
PAUSES_PUBLISHERS = 2  # 85 %
ACCEPTS_NOBODY = 3  # 100 %

WATCH_BYTES = 16 << 10  # a smaller out-buffer is not counted


class Turn:
    """The state of the running batch and of the worker as a whole."""

    def __init__(self, clock: Clock, store: Store, limits: PlaneLimits, observer: Observer) -> None:
        self.clock = clock
        self.store = store
        self.queues: PublishStore | None = without_sinks(store)
        self.observer = observer
        self.counters = Counters()
        self.is_open = False
        self.now = clock.monotonic()
        self.wall = 0.0
        self.dirty: list[Connection] = []
        self.closings: list[Connection] = []
        self.waiting: list[Session] = []  # pump at the next tick
        self.unblocked: list[Connection] = []  # parse again at the end of the batch
        self.starved: list[Connection] = []  # publishers that wait for the store or for memory
        self.before_sinks: dict[Any, deque[Connection]] = {}  # publishers that wait for a sink, by its `control`
        self.routed: list[Any] = []  # hubs that get messages when the batch ends: `Peer`
        self.elsewhere: Any = (
            None  # an `Elsewhere`; None: no other hub can have the client of a session that is stored for here
        )
        self.watched: list[Connection] = []
        self.slicing: list[
            TenantPlane
        ] = []  # tenants with messages that are delivered over several turns, in their turn
        self.reliefs = 0  # how often a client that was congested has become free, or has come: what was full then may not be any more
        self.lagging: list[Session] = []  # their durable head is behind by less than a batch
        self.buffered_bytes = 0
        self.unstored_messages = 0
        self.unstored_bytes = 0
        self.answered: list[Connection] = []  # with acknowledgements that leave at the end of the batch, if they may
        self.may_acknowledge: Callable[[], bool] | None = None  # None: they leave at once
        self.held_at = math.inf  # from then on publishers and durable queues wait: see `Plane.hold_from`
        self.is_disk_short = False  # what is left is for those who make room
        self.disk_short_at = 0.0
        self.apply(limits)

    def apply(self, limits: PlaneLimits) -> None:
        """Hold these bounds from now on. Those that every message needs are plain numbers too."""
        self.limits = limits
        self.out_soft_bytes = limits.out_soft_bytes
        self.out_hard_bytes = limits.out_hard_bytes
        self.grants = limits.grants
        self.ack_batch = limits.ack_batch
        self.reserve_ahead = limits.reserve_step // 2  # so many positions before they are needed
        self.most_buffered_bytes = limits.buffered_bytes
        self.most_unstored_messages = limits.unstored_messages
        self.most_unstored_bytes = limits.unstored_bytes
        self.most_unstored_per_connection = limits.unstored_per_connection

    def begin(self) -> None:
        """Open a batch, if none is open: the clock is read once."""
        if not self.is_open:
            self.is_open = True
            self.now = self.clock.monotonic()
            self.wall = 0.0

    def read_clock(self) -> None:
        """Read the clock, unless the running batch has done so."""
        if not self.is_open:
            self.now = self.clock.monotonic()
            self.wall = 0.0

    def wall_now(self) -> float:
        """Wall clock of this batch."""
        if self.wall == 0.0:
            self.wall = self.clock.wall()
        return self.wall

    def touch(self, connection: Connection) -> None:
        """Something is about to be appended to `connection.out` for the first time in this batch."""
        connection.is_dirty = True
        if connection.out is NOTHING:
            connection.out = bytearray()
        is_congested = len(connection.out) > 0
        if connection.is_congested and not is_congested:
            self.reliefs += 1
        connection.is_congested = is_congested
        self.dirty.append(connection)

    def close(self, connection: Connection, reason: Reason, final_packet: bytes = b"") -> None:
        """Note that a connection must end; the first reason counts. It is closed at the end of the batch."""
        if connection.is_closing:
            return
        connection.is_closing = True
        connection.close_reason = reason
        connection.final_packet = final_packet
        self.closings.append(connection)

    def drop(self, tenant: TenantPlane, session: Any, reason: Drop, count: int) -> None:
        """Count a drop everywhere and notify the observer."""
        self.counters.drop(reason, count)
        tenant.counters.drop(reason, count)
        self.observer.dropped(tenant, session, reason, count)

    def wait(self, session: Session) -> None:
        """Pump this session at the next tick."""
        if not session.is_waiting:
            session.is_waiting = True
            self.waiting.append(session)

    def hold(self, tenant: TenantPlane, size: int) -> None:
        """Count bytes as buffered (negative: release them)."""
        tenant.buffered_bytes += size
        self.buffered_bytes += size

    def account(self, connection: Connection) -> None:
        """Count what is in a connection's out-buffer now."""
        self.hold_connection(connection, len(connection.out))

    def count_buffers(self) -> None:
        """Count the out-buffers that were long."""
        watched = self.watched
        self.watched = []
        for connection in watched:
            if connection.is_closed:
                continue
            self.account(connection)
            if len(connection.out) >= WATCH_BYTES:
                self.watched.append(connection)
            else:
                connection.is_watched = False
                self.hold_connection(connection, 0)

    def hold_connection(self, connection: Connection, size: int) -> None:
        """Count this many bytes of a connection's out-buffer as buffered."""
        tenant = connection.tenant
        if tenant is not None and size != connection.accounted:
            self.hold(tenant, size - connection.accounted)
            connection.accounted = size

    def keep(self, connection: Connection, size: int) -> None:
        """Count how much of what a connection sent is not parsed yet."""
        tenant = connection.tenant
        if tenant is not None and size != connection.kept_bytes:
            self.hold(tenant, size - connection.kept_bytes)
            connection.kept_bytes = size

    def overload_level(self) -> int:
        held = self.buffered_bytes
        bound = self.most_buffered_bytes
        if held * 10 < bound * 7:
            return NOT_OVERLOADED
        if held * 100 < bound * 85:
            return DROPS_QOS0
        return PAUSES_PUBLISHERS if held < bound else ACCEPTS_NOBODY

    def is_held(self, tenant: TenantPlane | None) -> bool:
        """Whether nothing of a tenant may be routed now: another hub may have acknowledged a subscription that is not known here."""
        return self.now >= self.held_at or (tenant is not None and tenant.is_held)

    def is_store_full(self) -> bool:
        return self.unstored_messages >= self.most_unstored_messages or self.unstored_bytes >= self.most_unstored_bytes

    def note_disk(self, is_short: bool) -> None:
        """Let publishers of durable messages wait while `is_short`; what makes room is done meanwhile."""
        if is_short and not self.is_disk_short:
            self.disk_short_at = self.clock.monotonic()
        self.is_disk_short = is_short

    def is_store_roomy(self) -> bool:
        return (
            self.unstored_messages * 2 <= self.most_unstored_messages
            and self.unstored_bytes * 2 <= self.most_unstored_bytes
        )
