# cython: annotation_typing=False
"""What a client's PUBLISH and PUBREL get for an answer, in the right order and not before it may leave.

Knows no routes and no quotas: others say the Reason Code.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.engine.emission import Emission
from iothub.engine.inbound_qos2 import FINISHING, FREE, REFUSED, UNSTORED
from iothub.engine.state import OWED, AckSlot, Connection, Session, ack_slot
from iothub.engine.turn import Turn


class Answers:
    """PUBACK, PUBREC and PUBCOMP to clients."""

    def __init__(self, turn: Turn, emission: Emission) -> None:
        self.turn = turn
        self.emission = emission

    def guard(self, may_leave: Callable[[], bool] | None) -> None:
        """Let PUBACK and PUBREC leave at the end of each batch, and only if this says so then: it reads a clock of its own. None: at once, always."""
        self.turn.may_acknowledge = may_leave

    def answer(self, connection: Connection, qos: int, packet_id: int, code: int) -> None:
        """PUBACK or PUBREC, in the order of the PUBLISHes of this connection [MQTT-4.6.0-2] [MQTT-4.6.0-3]."""
        if qos == 0:
            return
        if connection.pending is None:
            if self.turn.may_acknowledge is None:
                self.emission.send_ack(connection, 0x40 if qos == 1 else 0x50, packet_id, code)
                return
            connection.pending = []
            self.turn.answered.append(connection)
        slot = ack_slot(packet_id, qos)
        slot.code = code
        connection.pending.append(slot)
        if qos == 1 or code >= 0x80:
            connection.inbound_open += 1

    def flush(self, connection: Connection) -> None:
        """Have the acknowledgements at the front sent that are known at the end of the batch: one commit answers many of a connection."""
        answered = self.turn.answered
        if connection.pending is not None and not (answered and answered[-1] is connection):
            answered.append(connection)

    def release(self) -> None:
        """Send what was left to the end of the batch, if it may leave by now.

        Invariant: that is asked after the last read of the batch. What was received while this process stood still was sent by clients who may
        have heard that a subscription is in force of which this hub knows nothing: it must not be acknowledged as if it had been routed.
        """
        turn = self.turn
        if not turn.answered or (turn.may_acknowledge is not None and not turn.may_acknowledge()):
            return
        answered = turn.answered
        turn.answered = []
        for connection in answered:
            self._send_known(connection)

    def _send_known(self, connection: Connection) -> None:
        pending = connection.pending
        if pending is None:
            return
        index = 0
        count = len(pending)
        while index < count:
            slot = pending[index]
            if slot.code == OWED or slot.is_held:
                break
            index += 1
            self.emission.send_ack(connection, 0x40 if slot.qos == 1 else 0x50, slot.packet_id, slot.code)
            if (slot.qos == 1 or slot.code >= 0x80) and connection.inbound_open:
                connection.inbound_open -= 1
        if index == count:
            connection.pending = None
        elif index:
            del pending[:index]
        if index and connection.is_unanswered:
            connection.is_unanswered = connection.is_blocked = False  # there is room now
            self.turn.unblocked.append(connection)

    def pubrel(self, connection: Connection, session: Session, packet_id: int) -> None:
        """Forget the identifier, durably first for a persistent session, then PUBCOMP [MQTT-4.3.3-11]."""
        inbound = session.inbound
        known = FREE if inbound is None else inbound.get(packet_id, FREE)
        if inbound is None or known == FREE:
            self.emission.send_ack(connection, 0x70, packet_id, 0x92)
        elif not session.is_persistent:
            del inbound[packet_id]
            self._complete(connection, packet_id)
        elif known not in (FINISHING, REFUSED):
            inbound[packet_id] = FINISHING
            self.turn.store.finish_inbound(session, packet_id)

    def _complete(self, connection: Connection, packet_id: int) -> None:
        if connection.inbound_open:
            connection.inbound_open -= 1
        self.emission.send_ack(connection, 0x70, packet_id, 0)

    def finished(self, session: Session, packet_id: int) -> None:
        """The removal of an inbound identifier is durable."""
        inbound = session.inbound
        known = FREE if inbound is None else inbound.get(packet_id, FREE)
        if inbound is None or known not in (FINISHING, REFUSED):
            return
        if known == REFUSED:
            self._refuse(session, packet_id)
            return
        del inbound[packet_id]
        if session.connection is not None:
            self._complete(session.connection, packet_id)

    def refuse_later(self, session: Session, slot: AckSlot, code: int) -> None:
        """Remove the Packet Identifier of a persistent session's PUBLISH from the store, then refuse the PUBLISH.

        Invariant: the removal is durable before the answer. The answer frees the identifier at the client, and its next message under it would be
        taken for a repeat, and lost.
        """
        if session.inbound is None:
            session.inbound = {}
        session.inbound[slot.packet_id] = REFUSED
        slot.code = code
        slot.is_held = True
        self.turn.store.finish_inbound(session, slot.packet_id)

    def _refuse(self, session: Session, packet_id: int) -> None:
        """Let the answer go that has waited for this; where nobody hears it any more, the client sends its PUBLISH again."""
        inbound = session.inbound
        connection = session.connection
        if inbound is None:
            return
        inbound[packet_id] = UNSTORED
        if connection is None or connection.is_closing or connection.pending is None:
            return
        for slot in connection.pending:
            if slot.packet_id == packet_id and slot.is_held:
                del inbound[packet_id]
                slot.is_held = False
                self.flush(connection)
                return
