# cython: annotation_typing=False
"""The message plane of one worker: composes the parts, takes bytes from transports, verbs from the control plane and answers from the store.

Knows no sockets, accounts or drivers. Everything runs on the reactor thread. Nothing that goes through sessions or routes ever closes
a connection: closings are noted, and done when the batch ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from iothub.base.clock import Clock
from iothub.base.ids import MessageIds
from iothub.base.reasons import Drop, Reason
from iothub.engine.answers import Answers
from iothub.engine.control_queue import ControlQueue
from iothub.engine.distribute import Distribution
from iothub.engine.emission import Emission
from iothub.engine.inbound import Inbound
from iothub.engine.limits import ConnectionSettings, ListenerInfo, PlaneLimits
from iothub.engine.message import Delivery, Message
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import StoredPublish
from iothub.engine.ports import Control, Observer, Policy, Store, Transport
from iothub.engine.publishing import Publishing
from iothub.engine.receipts import Receipts
from iothub.engine.redistribution import OnRedistributed, Redistribution
from iothub.engine.replay import Replay, Replays
from iothub.engine.router import Group, Subscription
from iothub.engine.starving import StarvedPublishers
from iothub.engine.state import NOTHING, Connection, Session, TenantPlane
from iothub.engine.storage import Storage
from iothub.engine.turn import ACCEPTS_NOBODY, WATCH_BYTES, Turn
from iothub.engine.wheel import Wheel
from iothub.engine.wire import Wire

_READ_ON = 1_000  # publishers that wait for one sink, in one tick
# The client has gone, or 5.0 forbids DISCONNECT.
_SILENT = frozenset((Reason.CLIENT, Reason.CLIENT_WITH_WILL, Reason.NETWORK))
_ABORTED = frozenset((Reason.SLOW_CONSUMER,))  # a client that does not read gets no final packet


class Plane:
    """See the module. Transports call `accept`, `end_batch`, `tick`; the control plane and the store call the rest."""

    def __init__(
        self,
        clock: Clock,
        control: Control,
        store: Store,
        limits: PlaneLimits,
        observer: Observer,
        message_ids: MessageIds,
        call_soon: Callable[[Callable[[], None]], object] | None = None,
    ) -> None:
        """`call_soon`: calls back when others have had their turns; without it slices wait for events and ticks."""
        self.limits = limits
        self.control = control
        self.turn = Turn(clock, store, limits, observer)
        self.counters = self.turn.counters
        self.wheel = Wheel(self.turn.now)
        self.emission = Emission(self.turn)
        self.outbound = Outbound(self.turn, self.emission)
        self.receipts = Receipts(self.turn, self.outbound, self.emission)
        self.distribution = Distribution(self.turn, self.outbound)
        self.answers = Answers(self.turn, self.emission)
        self.publishing = Publishing(self.turn, self.wheel, Wire(), self.distribution, self.answers, message_ids)
        self.control_queue = ControlQueue(control)
        self.inbound = Inbound(
            self.turn, self.publishing, self.answers, self.receipts, self.emission, self.control_queue
        )
        self.storage = Storage(self.turn, self.answers, self.outbound)
        self.replays = Replays(self.turn, self.publishing, self.outbound)
        self.redistribution = Redistribution(self.turn, self.publishing, self.distribution)
        self.starving = StarvedPublishers(self.turn, self.publishing.wire)
        self.connection_count = 0
        self.call_soon = call_soon
        self.is_called_soon = False

    def apply(self, limits: PlaneLimits) -> None:
        """Hold other bounds from now on; who is connected stays, and what is buffered drains."""
        self.limits = limits
        self.turn.apply(limits)

    # --- transports

    def accept(
        self, transport: Transport, listener: ListenerInfo, peer: str, certificate_subject: str | None = None
    ) -> Connection | None:
        """Open a connection; None: too many, or too much is buffered, and the transport closes."""
        turn = self.turn
        if self.connection_count >= self.limits.connections or turn.overload_level() >= ACCEPTS_NOBODY:
            return None
        turn.read_clock()
        connection = Connection(self, transport, listener, peer, certificate_subject)
        connection.packet_bytes = self.limits.connect_bytes
        connection.last_seen = turn.now
        connection.timer = self.wheel.schedule(turn.now + self.limits.connect_timeout_s, connection)
        self.connection_count += 1
        was_open = turn.is_open
        turn.is_open = True  # a connection that `opened` refuses is closed when its transport knows it
        self.control.opened(connection)
        turn.is_open = was_open
        return connection

    def feed(self, connection: Connection, data: bytes) -> None:
        """Bytes of one client. Ignored once it is closing."""
        self.turn.begin()
        if not connection.is_closing and data:
            self.inbound.feed(connection, data)

    def lost(self, connection: Connection, reason: Reason) -> None:
        """The socket is gone."""
        if connection.is_lost:
            return
        connection.is_lost = True
        self.connection_count -= 1
        self.turn.close(connection, reason)
        self._settle()

    def is_routing(self) -> bool:
        """Tell whether the batch has something for another hub: what else comes in the same batch goes with it, as one frame."""
        return len(self.turn.routed) > 0

    def unwritten(self) -> int:
        """Return for how many connections the batch has output."""
        return len(self.turn.dirty)

    def end_batch(self) -> None:
        """Parse what was resumed, close what must end, wake the transports that have something to write."""
        turn = self.turn
        turn.begin()
        self.answers.release()
        while turn.unblocked or turn.closings or self.control_queue.serve_next():
            unblocked, turn.unblocked = turn.unblocked, []
            for connection in unblocked:
                self._go_on(connection)
            closings, turn.closings = turn.closings, []
            for connection in closings:
                self._close(connection)
            self.answers.release()
        self.distribution.spent = 0
        if turn.slicing:
            self.distribution.go_on()
        if (turn.slicing or not self.control_queue.is_empty) and self.call_soon is not None and not self.is_called_soon:
            self.is_called_soon = True
            self.call_soon(self.go_on)
        routed = turn.routed
        if routed:  # before any client hears that its message was taken
            turn.routed = []
            for peer in routed:
                peer.flush()
        dirty = turn.dirty
        turn.dirty = []
        for connection in dirty:
            connection.is_dirty = False
            if not connection.is_lost:
                connection.transport.wake()
                if not connection.is_watched and len(connection.out) >= WATCH_BYTES and not connection.is_closed:
                    connection.is_watched = True
                    turn.watched.append(connection)
                    turn.account(connection)
        turn.counters.turns += 1
        turn.is_open = False

    def go_on(self) -> None:
        """The next slice of what is delivered, and of what is handed to the control plane, over several turns: `call_soon` calls it back."""
        self.is_called_soon = False
        self.control_queue.spent = 0
        self._settle()

    def tick(self) -> None:
        """Every 100 ms: timers, durable heads, publishers and deliveries that had to wait, replays, buffered bytes."""
        turn = self.turn
        turn.is_open = False
        turn.begin()
        self.control_queue.spent = 0
        for connection in self.wheel.advance(turn.now):
            self._due(connection)
        turn.count_buffers()
        lagging, turn.lagging = turn.lagging, []
        for session in lagging:
            session.is_lagging = False
            self.outbound.flush_head(session)
        waiting, turn.waiting = turn.waiting, []
        for session in waiting:
            session.is_waiting = False
            self.outbound.pump(session)
        self.replays.go_on()
        starved, turn.starved = turn.starved, []
        for connection in starved:
            if connection.is_closing:
                continue
            if self.publishing.gate.may_go_on(connection):
                self._unblock(connection)
            else:
                turn.starved.append(connection)
        for sink in list(turn.before_sinks):
            self._read_on_for(sink)
        self.starving.read_on()
        self.end_batch()

    # --- the control plane: connections

    def admit(self, connection: Connection, session: Session, settings: ConnectionSettings, connack: bytes) -> None:
        """CONNECT succeeded: bind the session (restored, if it is persistent), send CONNACK, start deliveries, parse on."""
        turn = self.turn
        turn.read_clock()
        if connection.is_closing:
            return
        tenant = session.tenant
        connection.session = session
        connection.tenant = tenant
        connection.version = settings.version
        connection.packet_bytes = settings.packet_bytes
        connection.inbound_maximum = settings.inbound_maximum
        connection.topic_aliases = settings.topic_aliases
        connection.topic_alias_maximum = settings.topic_alias_maximum
        connection.keep_alive_s = settings.keep_alive_s
        connection.last_seen = turn.now
        self.wheel.cancel(connection.timer)
        connection.timer = None
        if settings.keep_alive_s:
            connection.timer = self.wheel.schedule(turn.now + settings.keep_alive_s * 1.5, connection)
        session.connection = connection
        tenant.connections += 1
        session.receive_maximum = settings.receive_maximum
        if session.is_persistent:
            session.open_window().limit = settings.receive_maximum
            if tenant.interest is not None:
                for subscription in session.subscriptions.values():
                    tenant.interest.replace(None, subscription)
        self.emission.send(connection, connack)
        self.outbound.start(session)
        self.resume(connection)

    def resume(self, connection: Connection) -> None:
        """The control plane has answered `packet`: parsing continues, at once or at the end of the running batch."""
        if not connection.is_waiting:
            self._settle()
            return
        connection.is_waiting = False
        if not connection.is_closing:
            self.turn.unblocked.append(connection)
        self._settle()

    def send(self, connection: Connection, packet: bytes) -> None:
        """Send one whole packet."""
        self.emission.send(connection, packet)
        self._settle()

    def close(self, connection: Connection, reason: Reason, final_packet: bytes = b"") -> None:
        """End a connection after `final_packet` (CONNACK with an error, DISCONNECT) was flushed; the first reason counts."""
        self.turn.close(connection, reason, final_packet)
        self._settle()

    # --- the control plane: sessions

    def create_session(
        self,
        tenant: TenantPlane,
        client_id: str,
        device: str,
        *,
        is_persistent: bool,
        queue_id: int = 0,
        epoch: int = 0,
    ) -> Session:
        """Make a session known under its Client Identifier. It may do nothing until `policy_changed`."""
        session = Session(tenant, client_id, device, is_persistent, queue_id, epoch)
        tenant.sessions[client_id] = session
        return session

    def restore(self, session: Session, claim: Any) -> None:
        """A persistent session was claimed: its epoch, and where its queue and inbound identifiers stand. Always before `admit`."""
        self.storage.restore(session, claim)

    def detach(self, session: Session) -> None:
        """The session has no connection any more; persistent ones keep their place, transient ones wait for `discard`."""
        connection = session.connection
        if connection is None:
            return
        self.turn.hold_connection(connection, 0)
        session.tenant.connections -= 1
        session.connection = None
        session.passed_meters = 0
        self.replays.forget(session)
        if session.is_persistent:
            self.storage.halt(session)
            if session.tenant.interest is not None:
                for subscription in session.subscriptions.values():
                    session.tenant.interest.replace(subscription, None)

    def discard(self, session: Session) -> None:
        """The session ends: its subscriptions leave the router; what it shared and did not acknowledge goes to another member."""
        if session.is_discarded:
            return
        self.turn.read_clock()
        session.is_discarded = True
        self.detach(session)
        tenant = session.tenant
        for group, filter in list(session.subscriptions):
            self._note_interest(session, tenant.router.unsubscribe(session, filter, group), None)
        session.forget_all()
        if tenant.sessions.get(session.client_id) is session:
            del tenant.sessions[session.client_id]
        self.turn.hold(tenant, -session.backlog_bytes)
        for message, group in self.outbound.take_shared(session):
            self.redistribution.redistribute_delivery(tenant, message, group)
        for delivery in session.take_backlog():
            group = delivery.group
            if group is not None and (delivery.qos == 1 or not isinstance(group, Group)):
                self.redistribution.redistribute_delivery(tenant, delivery.message, group)
            else:
                self.turn.drop(tenant, session, Drop.SESSION_ENDED, 1)
        session.window = None
        session.inbound = None
        self._settle()

    def leave_groups(self, session: Session) -> bool:
        """A persistent session is about to end: no shared group chooses it any more. False: it has no shared subscription."""
        return self.redistribution.leave_groups(session)

    def join_groups(self, session: Session) -> None:
        """It does not end after all."""
        self.redistribution.join_groups(session)

    def redistribute(self, session: Session, records: list[Delivery], on_done: OnRedistributed) -> None:
        """Give a page of its queue to other members of its shared groups; `on_done` when what they get is durable."""
        self.turn.read_clock()
        self.redistribution.redistribute_page(session, records, on_done)
        self._settle()

    def subscribe(self, session: Session, subscription: Subscription) -> Subscription | None:
        """Activate a subscription; return the one it replaced [MQTT-3.8.4-3]."""
        session.note(subscription)
        replaced = session.tenant.router.subscribe(subscription)
        self._note_interest(session, replaced, subscription)
        return replaced

    def unsubscribe(self, session: Session, group: bytes | None, filter: bytes) -> Subscription | None:
        """Remove a subscription, and end its replays; None: there was none."""
        session.forget(group, filter)
        self.replays.end(session, group, filter)
        removed = session.tenant.router.unsubscribe(session, filter, group)
        self._note_interest(session, removed, None)
        return removed

    def policy_changed(self, session: Session, policy: Policy) -> None:
        """Put a new policy in force; every cached answer is forgotten."""
        session.apply_policy(policy)

    # --- the control plane: messages

    def publish(self, tenant: TenantPlane, message: Message, on_done: Callable[[int], None] | None = None) -> None:
        """Route a will, `$SYS` or API message exactly like a client's PUBLISH; `on_done(Reason Code)` when it is durable; 0x88: not now.

        One that has a message id may be published again under it, here or by another hub.
        """
        self.turn.read_clock()
        distribution = self.distribution
        queued = distribution.distribute(tenant, message, tenant.router.match(message.topic), False)
        code = 0
        if distribution.receivers == 0 and queued is None and not message.retain and distribution.direct == 0:
            self.turn.drop(tenant, None, Drop.NO_SUBSCRIBERS, 1)
            code = 0x10
        retain = message.retain
        if retain and tenant.may_retain is not None and not tenant.may_retain(message.topic, len(message.payload)):
            retain = False
            code = 0x97
        if queued is None and not retain:
            if on_done is not None:
                on_done(code)
        else:
            publish = StoredPublish(tenant, message, queued or [], retain)
            publish.code = code
            publish.has_direct = distribution.direct > 0
            publish.on_done = on_done
            publish.is_repeatable = message.message_id != b""
            self.publishing.append(publish)
        self._settle()

    def publish_arrived(self, tenant: TenantPlane, messages: list[Message]) -> list[bytes]:
        """See `Distribution.distribute_frame`. Whoever fed the link ends the batch, as a transport does."""
        self.turn.begin()
        return self.distribution.distribute_frame(tenant, messages)

    def queued_arrived(
        self, message: Message, receivers: list[tuple[Session, int, int, bool, tuple[int, ...]]]
    ) -> None:
        """Another hub has stored a message for sessions here: position, QoS, RETAIN and identifiers of each, as its queue has them.

        As with `publish_arrived`, whoever fed the link ends the batch.
        """
        self.turn.begin()
        for session, position, qos, retain, identifiers in receivers:
            self.outbound.notify(session, message, position, qos, retain, identifiers)

    def send_retained(self, session: Session, subscription: Subscription, messages: list[Message]) -> None:
        """Deliver a few messages of one subscription at once, with RETAIN 1."""
        self.turn.read_clock()
        for message in messages:
            self.replays.send(session, subscription, message)
        self._settle()

    def feed_replay(self, replay: Replay, messages: list[Message], then: Callable[[], None]) -> bool:
        """Send a page of the first replay of a session. False: `then` will be called when it is through."""
        self.turn.read_clock()
        is_through = self.replays.feed(replay, messages, then)
        self._settle()
        return is_through

    def limits_changed(self, tenant: TenantPlane) -> None:
        """Bring a tenant's new limits to its live connections."""
        for session in tenant.sessions.awake.values():
            if session.connection is not None:
                session.connection.packet_bytes = tenant.limits.packet_bytes

    def hold_from(self, at: float) -> None:
        """From this monotonic moment publishers and durable queues wait: this hub may be gone for the others. `math.inf`: they do not."""
        self.turn.held_at = at

    def hold_publishers_of(self, tenant: TenantPlane, is_held: bool) -> None:
        """Let the publishers of one tenant wait, or go on: a subscription of another hub's session may be missing."""
        tenant.is_held = is_held

    def observe(self, observer: Observer) -> None:
        """Notify this one from now on, instead of the one before."""
        self.turn.observer = observer

    def overload_level(self) -> int:
        """NOT_OVERLOADED to ACCEPTS_NOBODY: see `iothub.engine.turn`."""
        return self.turn.overload_level()

    def settle_reservations(self, sessions: list[Session]) -> None:
        """A clean end: lower "may have been sent" to what was sent, so that everything above is a first delivery after the start."""
        self.storage.lower(sessions)

    # --- answers of the store

    def stored(self, publish: StoredPublish, positions: tuple[int, ...], is_duplicate: bool = False) -> None:
        """The commit that covers this message is done: `positions` in the order of its targets, or a `Refused`."""
        self.turn.read_clock()
        self.storage.stored(publish, positions, is_duplicate)
        self._settle()

    def not_stored(self, publish: StoredPublish, is_written: bool, is_final: bool = False) -> None:
        """The store gave it up; `is_written`: it may have been written. `is_final`: no store will ever take it."""
        self.turn.read_clock()
        self.storage.not_stored(publish, is_written, is_final)
        self._settle()

    def page(self, session: Session, records: list[Delivery], upto: int, is_short: bool) -> None:
        """The answer to `store.read`; without records and without progress: not now."""
        self.turn.read_clock()
        self.outbound.page(session, records, upto, is_short)
        self._settle()

    def announce(self, session: Session, tail: int) -> None:
        """Somebody looked at the queue's tail: what was not heard of is read."""
        if tail > session.announced:
            session.announced = tail
        if session.connection is not None and tail > session.loaded:
            session.is_behind = True
            self.outbound.want_page(session)

    def head_moved(self, session: Session, upto: int) -> None:
        """The durable head is here."""
        window = session.window
        if window is not None and upto > window.durable_head:
            window.durable_head = upto
            if session.backlog is not None or window.taken < session.loaded:
                self.turn.read_clock()
                self.outbound.pump(session)
                self._settle()

    def released(self, session: Session, position: int) -> None:
        """PUBREC seen: durable for this position."""
        self.turn.read_clock()
        self.receipts.released(session, position)
        self._settle()

    def reserved(self, session: Session, upto: int) -> None:
        """May have been sent up to here: durable."""
        window = session.window
        if window is not None and upto > window.reserved:
            window.reserved = upto
            self.turn.read_clock()
            self.outbound.pump(session)
            self._settle()

    def inbound_finished(self, session: Session, packet_id: int) -> None:
        """An inbound identifier is durably forgotten."""
        self.turn.read_clock()
        self.answers.finished(session, packet_id)
        self._settle()

    # --- private

    def _settle(self) -> None:
        """End the batch if this call is not part of one that a transport began."""
        if not self.turn.is_open:
            self.end_batch()

    def _note_interest(self, session: Session, before: Subscription | None, after: Subscription | None) -> None:
        """Other hubs need to know of subscriptions through which a client here may get what no queue has."""
        interest = session.tenant.interest
        if interest is not None and (not session.is_persistent or session.connection is not None):
            interest.replace(before, after)

    def _go_on(self, connection: Connection) -> None:
        """Read and parse on, unless something else still holds the connection."""
        if connection.is_stalled():
            return
        self.inbound.parse_kept(connection)
        if connection.is_paused and not connection.is_stalled():
            connection.is_paused = False
            connection.last_seen = self.turn.now  # keep alive stood still
            connection.transport.resume()

    def _unblock(self, connection: Connection) -> None:
        if connection.is_blocked:
            connection.is_blocked = False
            self.turn.unblocked.append(connection)

    def _read_on_for(self, sink: Any) -> None:
        """Read publishers that wait for a sink, in their order, until it is full again or `_READ_ON` were read."""
        turn = self.turn
        waiting = deque([each for each in turn.before_sinks.pop(sink) if not each.is_closing])
        left = _READ_ON
        while waiting and left and not sink.is_full:
            left -= 1
            connection = waiting.popleft()
            if self.publishing.gate.may_go_on(connection):
                connection.is_blocked = False
                self._go_on(connection)
            else:
                turn.starved.append(connection)
        waiting.extend(turn.before_sinks.pop(sink, ()))
        if waiting:
            turn.before_sinks[sink] = waiting

    def _due(self, connection: Connection) -> None:
        """A timer of this connection ran out: the end of a quota's wait, of the time for CONNECT, or of the keep alive."""
        if connection.is_closing:
            return
        turn = self.turn
        if connection.is_blocked and connection.wake_at and turn.now + 0.05 >= connection.wake_at:
            connection.wake_at = 0.0
            self._unblock(connection)
        timer = connection.timer
        if timer is None or timer.is_pending():
            return
        if connection.version == 0:
            turn.close(connection, Reason.CONNECT_TIMEOUT)
            return
        bound = connection.keep_alive_s * 1.5
        if connection.is_paused:
            connection.last_seen = turn.now  # it cannot be heard while it is not read
        deadline = connection.last_seen + bound
        if turn.now >= deadline:
            turn.close(connection, Reason.KEEPALIVE_TIMEOUT)  # [MQTT-3.1.2-22]
        else:
            connection.timer = self.wheel.schedule(deadline, connection)

    def _close(self, connection: Connection) -> None:
        """Detach the session, send the final packet, close the socket, notify the control plane: once."""
        if connection.is_closed:
            return
        connection.is_closed = True
        reason = connection.close_reason or Reason.NETWORK
        if connection.timer is not None:
            self.wheel.cancel(connection.timer)
            connection.timer = None
        connection.partial = None
        self.turn.keep(connection, 0)
        connection.pending = None
        connection.aliases_in = None
        connection.aliases_out = None
        session = connection.session
        final_packet = b""
        if not connection.is_lost:
            final_packet = connection.final_packet
            if not final_packet and connection.version == 5 and reason not in _SILENT:
                final_packet = bytes((0xE0, 0x01, reason.disconnect))
            if connection.maximum_packet_size and len(final_packet) > connection.maximum_packet_size:
                final_packet = b""  # [MQTT-3.1.2-24]
            if final_packet:
                if connection.out is NOTHING:
                    connection.out = bytearray()
                connection.out += final_packet
                self.counters.others_sent[final_packet[0] >> 4] += 1
                self.counters.bytes_sent += len(final_packet)
        if session is not None and session.connection is connection:
            self.detach(session)
        if not connection.is_lost:
            connection.transport.close(abort=reason in _ABORTED, drains=bool(final_packet))
        self.control.closed(connection, reason)
