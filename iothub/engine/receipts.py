# cython: annotation_typing=False
"""The client's acknowledgements of what we sent: they move the window, and the backlog refills it.

Knows no bytes of other packets, and nothing of what the client publishes.
"""

from __future__ import annotations

from iothub.engine.emission import Emission
from iothub.engine.outbound import Outbound
from iothub.engine.state import Connection, Session
from iothub.engine.turn import Turn
from iothub.engine.window import DONE, RELEASING, WAIT_PUBACK, WAIT_PUBCOMP, WAIT_PUBREC, packet_id_of


class Receipts:
    """PUBACK, PUBREC and PUBCOMP of clients. Each answers False for a Protocol Error."""

    def __init__(self, turn: Turn, outbound: Outbound, emission: Emission) -> None:
        self.turn = turn
        self.outbound = outbound
        self.emission = emission

    def puback(self, session: Session, packet_id: int) -> bool:
        """False: a Protocol Error."""
        window = session.window
        if window is None:
            return True
        position = window.find(packet_id)
        if position == 0:
            return True
        state = window.state(position)
        if state == WAIT_PUBACK:
            window.complete(position)
            if session.shared is not None:
                self.outbound.acknowledged(session, position)
            if session.backlog is not None or session.is_persistent:
                self.outbound.pump(session)
            return True
        return state == DONE

    def pubrec(self, session: Session, connection: Connection, packet_id: int, code: int) -> bool:
        """PUBREL follows once "released" is durable (persistent) or at once; a refusal completes the position [MQTT-4.3.3-3]."""
        window = session.window
        position = 0 if window is None else window.find(packet_id)
        if window is None or position == 0 or window.state(position) == DONE:
            if code < 0x80:
                self.emission.send_ack(connection, 0x62, packet_id, 0x92)
            return True
        state = window.state(position)
        if state == WAIT_PUBACK:
            return False
        if state == WAIT_PUBREC:
            if code >= 0x80:
                window.complete(position)
                self.outbound.pump(session)
            elif session.is_persistent:
                window.set_state(position, RELEASING)
                self.turn.store.release(session, position)
            else:
                window.set_state(position, WAIT_PUBCOMP)
                self.emission.send_ack(connection, 0x62, packet_id, 0)
        elif state == WAIT_PUBCOMP and code < 0x80:  # a second one: its client has not seen the PUBREL [MQTT-4.3.3-4]
            self.emission.send_ack(connection, 0x62, packet_id, 0)
        return True

    def released(self, session: Session, position: int) -> None:
        """PUBREC of this position is durable: PUBREL may leave [MQTT-4.3.3-4]."""
        connection = session.connection
        window = session.window
        if connection is None or window is None or window.state(position) != RELEASING:
            return
        window.set_state(position, WAIT_PUBCOMP)
        self.emission.send_ack(connection, 0x62, packet_id_of(position), 0)

    def pubcomp(self, session: Session, packet_id: int) -> bool:
        """Any code completes it: 0x92 after a repeated PUBREL is success."""
        window = session.window
        position = 0 if window is None else window.find(packet_id)
        if window is None or position == 0:
            return True
        state = window.state(position)
        if state == WAIT_PUBCOMP:
            window.complete(position)
            self.outbound.pump(session)
            return True
        return state == DONE
