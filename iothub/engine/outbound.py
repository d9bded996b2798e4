# cython: annotation_typing=False
"""From a session to the gate: windows, backlog, drop policy, and the pages of a virtual queue that was left behind.

Knows no routing and no publisher. Everything with QoS > 0 for a persistent session comes out of its queue: from memory with the commit's
notification while it is caught up, from pages otherwise.

Invariant: nothing with QoS > 0 goes to a persistent session before its queue has it and `reserved` covers its position, nor while this hub may be
gone for the others: its sessions may be at another hub by then.
"""

from __future__ import annotations

from typing import Any

from iothub.base.reasons import Drop
from iothub.engine.emission import Emission
from iothub.engine.message import Delivery, Message
from iothub.engine.router import Group
from iothub.engine.state import Connection, Session
from iothub.engine.turn import DROPS_QOS0, Turn
from iothub.engine.unacknowledged import Unacknowledged
from iothub.engine.window import Window, packet_id_of


class Outbound:
    """Delivers, refills windows and asks the store for what it needs."""

    def __init__(self, turn: Turn, emission: Emission) -> None:
        self.turn = turn
        self.emission = emission

    # --- deliveries that come from memory

    def deliver(
        self, session: Session, message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], group: Any
    ) -> bool:
        """Give a message to a transient session, or QoS 0 to a persistent one, now or by its backlog; False: dropped, and counted."""
        connection = session.connection
        if connection is None:
            if not session.is_persistent:
                self.turn.drop(session.tenant, session, Drop.SESSION_ENDED, 1)
            elif group is not None or not session.is_online_elsewhere():
                self.turn.drop(session.tenant, session, Drop.QOS0_OFFLINE, 1)
            return False
        if qos == 0:
            if session.backlog_qos0 or not self.emission.has_allowance(session, message):
                return self._hold(session, Delivery(message, 0, retain, identifiers, 0, group))
            return self._deliver_qos0(session, connection, message, retain, identifiers)
        window = session.window
        if window is None:
            window = session.open_window()
        if (
            session.backlog is None
            and window.has_room()
            and not self._is_clogged(connection)
            and self.emission.has_allowance(session, message)
        ):
            if not self.emission.emit(session, connection, message, qos, retain, identifiers, False):
                return False
            if group is not None:
                if qos == 1:
                    self._remember(session, window, message, group)
                elif not isinstance(group, Group):
                    group.done()  # it belongs to this client now [MQTT-4.8.2-5]
            return True
        if window.has_room():
            self.turn.wait(session)  # no acknowledgement will move it
        return self._hold(session, Delivery(message, qos, retain, identifiers, 0, group))

    def _remember(self, session: Session, window: Window, message: Message, group: Any) -> None:
        """Keep what a shared group just sent to a transient session until it is acknowledged, as far as the tenant's limit of buffered bytes allows.

        What another hub has sent is kept there, too, within its limit: that hub hears of each in any case.
        """
        tenant = session.tenant
        turn = self.turn
        if isinstance(group, Group) and (
            tenant.buffered_bytes >= tenant.most_buffered_bytes or turn.buffered_bytes >= turn.most_buffered_bytes
        ):
            return
        shared = session.shared
        if shared is None:
            shared = session.shared = Unacknowledged()
        shared.keep(window.taken, message, group)
        turn.hold(tenant, message.size)

    def acknowledged(self, session: Session, position: int) -> None:
        """The client has acknowledged this position: no other member needs it."""
        shared = session.shared
        if shared is None:
            return
        group = shared.group_of(position)
        message = shared.remove(position)
        if message is None:
            return
        self.turn.hold(session.tenant, -message.size)
        if shared.count == 0:
            session.shared = None
        if not isinstance(group, Group):
            group.done()

    def take_shared(self, session: Session) -> list[tuple[Message, Any]]:
        """The session ends: return what shared groups sent and was not acknowledged, in order, each with who chose the session; keep it no longer."""
        shared = session.shared
        if shared is None:
            return []
        session.shared = None
        kept = shared.in_order()
        for message, _ in kept:
            self.turn.hold(session.tenant, -message.size)
        return kept

    def _deliver_qos0(
        self, session: Session, connection: Connection, message: Message, retain: bool, identifiers: tuple[int, ...]
    ) -> bool:
        """Two conditions (R16): more buffered than the soft limit, and the socket does not take it. The hard cap needs no second one."""
        turn = self.turn
        waiting = len(connection.out)
        if waiting:
            if not connection.is_dirty:
                connection.is_congested = True  # written in an earlier batch, and still here
            if waiting > turn.out_hard_bytes or (
                connection.is_congested
                and (waiting + session.backlog_bytes > turn.out_soft_bytes or turn.overload_level() >= DROPS_QOS0)
            ):
                turn.drop(session.tenant, session, Drop.QOS0_SLOW, 1)
                return False
        return self.emission.emit(session, connection, message, 0, retain, identifiers, False)

    def _is_clogged(self, connection: Connection) -> bool:
        """Does the client not read? Then QoS 1 and 2 wait in the backlog, where a message is not copied per client."""
        waiting = len(connection.out)
        if waiting and not connection.is_dirty:
            connection.is_congested = True  # written in an earlier batch, and still here
        limit = self.turn.out_soft_bytes if connection.is_congested else self.turn.out_hard_bytes
        return waiting > limit

    def _hold(self, session: Session, delivery: Delivery) -> bool:
        """Put a delivery into the backlog, or drop it: the newest goes."""
        turn = self.turn
        if not self.has_room(session, delivery.message):
            turn.drop(session.tenant, session, Drop.QOS0_SLOW if delivery.qos == 0 else Drop.QUEUE_FULL, 1)
            return False
        session.push(delivery)
        turn.hold(session.tenant, delivery.message.size)
        return True

    def has_room(self, session: Session, message: Message) -> bool:
        """Whether the backlog takes one more message."""
        tenant = session.tenant
        turn = self.turn
        return (
            session.backlog_length() < tenant.most_backlog_messages
            and session.backlog_bytes + message.size <= tenant.most_backlog_bytes
            and tenant.buffered_bytes < tenant.most_buffered_bytes
            and turn.buffered_bytes < turn.most_buffered_bytes
        )

    # --- the window

    def pump(self, session: Session) -> None:
        """Move the backlog into the window as far as it goes; then ask for a page if the queue has more."""
        connection = session.connection
        if connection is None or connection.is_closing or (session.window is None and session.backlog is None):
            return
        turn = self.turn
        if session.is_persistent and turn.now >= turn.held_at:
            turn.wait(session)
            return
        window = session.open_window()
        while session.backlog is not None:
            delivery = session.peek()
            if delivery is None or not self._advance(session, connection, window, delivery):
                break
            turn.hold(session.tenant, -session.pop())
            if session.backlog_length() == 0:
                turn.reliefs += 1
        if session.is_persistent:
            if session.backlog is None:
                while window.taken < session.loaded and window.is_within_span():
                    self._skip(window)
            self._note_head(session, window)
            self.want_page(session)

    def _advance(self, session: Session, connection: Connection, window: Window, delivery: Delivery) -> bool:
        """Send or skip the first delivery of the backlog; False: it must wait."""
        turn = self.turn
        position = delivery.position
        message = delivery.message
        if position:
            if position <= window.taken:
                return True
            while window.taken + 1 < position:  # the queue has a gap: dropped or expired there
                if not window.is_within_span():
                    return False
                self._skip(window)
            if not window.is_within_span():
                return False
            if window.is_released(position):
                window.take_released()
                return True
            if window.is_done(position):
                window.skip()
                return True
        if delivery.qos == 0:
            if len(connection.out) > turn.out_soft_bytes or not self.emission.has_allowance(session, message):
                turn.wait(session)
                return False
            if position:
                window.skip()
            self.emission.emit(session, connection, message, 0, delivery.retain, delivery.identifiers, False)
            return True
        if not window.has_room():
            return False
        if position > window.reserved:
            self._reserve(session, window, position)
            return False
        if self._is_clogged(connection) or not self.emission.has_allowance(session, message):
            turn.wait(session)
            return False
        may_have_been_sent = position > 0 and position <= window.sent_upto
        if position and position + turn.reserve_ahead > window.reserved:
            self._reserve(session, window, position)  # ahead of need, so that no delivery waits for it
        is_sent = self.emission.emit(
            session, connection, message, delivery.qos, delivery.retain, delivery.identifiers, may_have_been_sent
        )
        if delivery.group is not None:
            if is_sent and delivery.qos == 1:
                self._remember(session, window, message, delivery.group)
            elif not isinstance(delivery.group, Group):
                delivery.group.done()  # it was dropped by name, or belongs to this client now
        return True

    def _skip(self, window: Window) -> None:
        if window.is_released(window.taken + 1):
            window.take_released()
        else:
            window.skip()

    def _reserve(self, session: Session, window: Window, position: int) -> None:
        """Make "may have been sent" durable before the first send, in steps; never lowered while the hub lives."""
        step = self.turn.limits.reserve_step
        upto = position + step - 1
        if window.asked_reserved < position + step // 2:
            window.asked_reserved = upto
            self.turn.store.reserve(session, upto)

    # --- the virtual queue of a persistent session

    def notify(
        self, session: Session, message: Message, position: int, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> None:
        """A commit gave this session `position`. Only the position after `loaded` may come from memory; anything else means a page."""
        if position > session.announced:
            session.announced = position
        if session.connection is None or session.is_behind:
            return
        if position <= session.loaded:
            return
        tenant = session.tenant
        if (
            position != session.loaded + 1
            or session.backlog_length() >= tenant.most_backlog_messages
            or session.backlog_bytes >= tenant.most_backlog_bytes
            or tenant.buffered_bytes >= tenant.most_buffered_bytes
        ):
            session.is_behind = True
            self.want_page(session)
            return
        session.loaded = position
        if session.backlog is None and self._send_at_once(session, message, position, qos, retain, identifiers):
            return
        session.push(Delivery(message, qos, retain, identifiers, position))
        self.turn.hold(session.tenant, message.size)
        self.pump(session)

    def _send_at_once(
        self, session: Session, message: Message, position: int, qos: int, retain: bool, identifiers: tuple[int, ...]
    ) -> bool:
        """Send what a caught-up session would take from its backlog now; False: nothing was done, `pump` decides."""
        connection = session.connection
        window = session.window
        turn = self.turn
        if (
            connection is None
            or window is None
            or qos == 0
            or connection.is_closing
            or position != window.taken + 1
            or window.released is not None
            or window.done is not None
            or position + turn.reserve_ahead > window.reserved
            or turn.now >= turn.held_at
            or not window.has_room()
            or self._is_clogged(connection)
            or not self.emission.has_allowance(session, message)
        ):
            return False
        may_have_been_sent = position <= window.sent_upto
        if not self.emission.emit(session, connection, message, qos, retain, identifiers, may_have_been_sent):
            self._note_head(session, window)  # it was skipped
        return True

    def want_page(self, session: Session) -> None:
        """Ask for the next page, if the session is behind, no read is running and the backlog is short."""
        if not session.is_behind or session.is_reading or session.connection is None:
            return
        limits = self.turn.limits
        if session.backlog_length() * 2 > limits.page_messages or session.backlog_bytes * 2 > limits.page_bytes:
            return
        session.is_reading = True
        self.turn.store.read(session, session.loaded, limits.page_messages, limits.page_bytes)

    def page(self, session: Session, records: list[Delivery], upto: int, is_short: bool) -> None:
        """A page came. Caught up: it was short, was read after the claim, and everything announced is loaded."""
        if session.stale_pages:
            session.stale_pages -= 1  # asked for by an earlier connection
            return
        session.is_reading = False
        if session.connection is None or session.is_discarded:
            return
        before = session.loaded
        for delivery in records:
            if delivery.position > session.loaded:
                session.loaded = delivery.position
                session.push(delivery)
                self.turn.hold(session.tenant, delivery.message.size)
        session.loaded = max(session.loaded, upto)
        if is_short and session.loaded >= session.announced:
            session.is_behind = False
        elif session.loaded == before:
            self.turn.wait(session)  # no progress: the store had no answer; again at the next tick
            return
        self.pump(session)

    def _note_head(self, session: Session, window: Window) -> None:
        """Move the durable head in batches of positions; the tick takes the rest."""
        if window.base > window.asked_head:
            if window.base - window.asked_head >= self.turn.ack_batch:
                self.flush_head(session)
            elif not session.is_lagging:
                session.is_lagging = True
                self.turn.lagging.append(session)

    def flush_head(self, session: Session) -> None:
        """Make the head durable up to what the client has completed."""
        window = session.window
        if window is not None and window.base > window.asked_head:
            window.asked_head = window.base
            self.turn.store.ack(session, window.base)

    def start(self, session: Session) -> None:
        """A connection was bound: repeat PUBREL for what was released, in order of position, then send the queue from its head."""
        connection = session.connection
        window = session.window
        if connection is None:
            return
        self.turn.reliefs += 1
        if session.is_persistent:
            if window is not None and window.released is not None:
                for position in window.released:
                    self.emission.send_ack(connection, 0x62, packet_id_of(position), 0)  # [MQTT-4.4.0-1]
            session.is_behind = True  # caught up only by a page read after the claim
        self.pump(session)
