# cython: annotation_typing=False
"""The plane's side of the store: what a commit, a failure and a claim mean for sessions and for the publisher that waits.

Knows no driver and no record format.

Invariants. PUBACK and PUBREC leave after the commit, PUBCOMP after the removal of the Packet Identifier is durable. What is on disk at a claim
wins over what this hub remembers.
"""

from __future__ import annotations

from typing import Any

from iothub.base.reasons import Drop, Reason
from iothub.engine.answers import Answers
from iothub.engine.inbound_qos2 import FINISHING, FREE, REFUSED, ROUTED, STORING, UNSTORED
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import StoredPublish
from iothub.engine.ports import Elsewhere
from iothub.engine.state import Connection, Session
from iothub.engine.turn import Turn
from iothub.engine.window import Window

_FULL = -1
_STORE_FAILED = 0x97
GAVE_UP = 0x88  # "server unavailable": what the hub itself hears, so that it can tell a store that gave up from a queue that is full


class Storage:
    """Takes the store's answers."""

    def __init__(self, turn: Turn, answers: Answers, outbound: Outbound) -> None:
        self.turn = turn
        self.answers = answers
        self.outbound = outbound

    def tell(self, elsewhere: Elsewhere) -> None:
        """Other hubs may have the clients of sessions that are stored for here."""
        self.turn.elsewhere = elsewhere

    # --- appends

    def stored(self, publish: StoredPublish, positions: tuple[int, ...], is_duplicate: bool) -> None:
        """Notify the receivers, then acknowledge."""
        self._release(publish)
        code = publish.code
        if not is_duplicate and publish.targets:
            accepted = self._notify(publish, positions)
            if not accepted and not publish.has_direct and not publish.retain:
                code = 0x97  # every queue refused
        session = publish.publisher
        if session is not None and publish.slot is not None and publish.slot.qos == 2:
            if self._routed(session, publish, code):
                return
        self._answer(publish, code)

    def _notify(self, publish: StoredPublish, positions: tuple[int, ...]) -> bool:
        """Give each queue's session its position, here or at the hub that has its client; whether any queue took it, or none is there any more."""
        message = publish.message
        refused = 0
        index = 0
        elsewhere: list[Any] | None = None
        for target in publish.targets:
            position = positions[index]
            index += 1
            session = target.session
            if position > 0:
                if not session.is_discarded:
                    self.outbound.notify(session, message, position, target.qos, target.retain, target.identifiers)
                    if session.connection is None and self.turn.elsewhere is not None and session.is_online_elsewhere():
                        if elsewhere is None:
                            elsewhere = []
                        elsewhere.append((target, position))
            elif position == _FULL:
                refused += 1
                self.turn.drop(publish.tenant, session, Drop.QUEUE_FULL, 1)
            else:
                self.turn.drop(publish.tenant, session, Drop.SESSION_ENDED, 1)
        if elsewhere is not None:
            self.turn.elsewhere.queued(publish.tenant, message, elsewhere)
        return refused < index

    def _routed(self, session: Session, publish: StoredPublish, code: int) -> bool:
        """The store has it; whether its answer must wait. What a newer connection has sent again is its own matter."""
        inbound = session.inbound
        if inbound is None or inbound.get(publish.packet_id, FREE) != STORING:
            return False
        if code < 0x80:
            inbound[publish.packet_id] = ROUTED
            return False
        if session.connection not in (None, publish.connection):
            return False
        if publish.inbound is None or publish.slot is None:
            del inbound[publish.packet_id]
            return False
        self.answers.refuse_later(session, publish.slot, code)  # the store has recorded it
        return True

    def not_stored(self, publish: StoredPublish, is_written: bool, is_final: bool) -> None:
        """5.0 gets 0x97 only when nothing was written for certain; otherwise the connection ends without an answer, and the intent stays.

        That of a repeat may have been written before. The hub's own `on_done` hears 0x88, unless no store will ever take it (`is_final`).
        """
        self._release(publish)
        if is_final or publish.on_done is None:
            self.turn.drop(publish.tenant, publish.publisher, Drop.STORE_FAILED, 1)
        code = _STORE_FAILED if is_final or publish.on_done is None else GAVE_UP
        self._refuse(publish, code, not is_written and not publish.is_repeat)

    def _refuse(self, publish: StoredPublish, code: int, is_certain: bool) -> None:
        """Answer, if it is certain that nothing is stored and there is such an answer; otherwise end the connection, and leave the intent.

        Invariant: the intent stays, too, when the answer cannot reach the client. The client sends the PUBLISH again, and without the intent that
        would store the message twice. What a newer connection has sent again is its own matter.
        """
        session = publish.publisher
        connection = publish.connection
        may_answer = is_certain and connection is not None and connection.version == 5 and not connection.is_closing
        if (
            session is not None
            and session.inbound is not None
            and publish.slot is not None
            and publish.slot.qos == 2
            and (session.connection is None or session.connection is connection)
            and session.inbound.get(publish.packet_id, FREE) == STORING
        ):
            if may_answer:
                del session.inbound[publish.packet_id]
            else:
                session.inbound[publish.packet_id] = UNSTORED
        if may_answer:
            self._answer(publish, code)
        else:
            if publish.on_done is not None:
                publish.on_done(code)
            if connection is not None and publish.slot is not None:
                self.turn.close(connection, Reason.STORE_UNAVAILABLE)

    def _answer(self, publish: StoredPublish, code: int) -> None:
        slot = publish.slot
        connection = publish.connection
        if slot is not None and connection is not None:
            slot.code = code
            if not connection.is_closing:
                self.answers.flush(connection)
        if publish.on_done is not None:
            publish.on_done(code)

    def _release(self, publish: StoredPublish) -> None:
        turn = self.turn
        turn.unstored_messages -= 1
        turn.unstored_bytes -= publish.message.size
        connection: Connection | None = publish.connection
        if connection is not None:
            connection.unstored -= 1

    # --- claims

    def restore(self, session: Session, claim: Any) -> None:
        """Begin again where the claim found the queue. Answers to earlier reads are stale."""
        session.epoch = claim.epoch
        window = session.window
        if window is None:
            window = session.window = Window(1, True)
        window.restore(claim.head, claim.tail, claim.reserved, claim.released)
        session.loaded = claim.head
        session.announced = max(session.announced, claim.tail)
        session.is_behind = True
        if session.is_reading:
            session.is_reading = False
            session.stale_pages += 1
        self._restore_inbound(session, claim.inbound)

    def _restore_inbound(self, session: Session, claimed: tuple[int, ...]) -> None:
        """What is on disk is routed; what is on its way there stays as it was; a removal on its way is asked for again by PUBREL.

        What was to be refused, and is not on disk, comes again.
        """
        known: dict[int, int] = dict.fromkeys(claimed, ROUTED)
        for packet_id, state in (session.inbound or {}).items():
            if state in (STORING, UNSTORED):
                known.setdefault(packet_id, state)
            elif state == REFUSED:
                known.setdefault(packet_id, UNSTORED)
            elif state == FINISHING and packet_id in known:
                known[packet_id] = ROUTED
        session.inbound = known or None

    def halt(self, session: Session) -> None:
        """A persistent session lost its connection: make its head durable, forget what waits in memory; the queue has it."""
        turn = self.turn
        if session.window is not None:
            self.outbound.flush_head(session)
            session.window.halt()
        turn.hold(session.tenant, -session.backlog_bytes)
        lost = sum(1 for delivery in session.take_backlog() if delivery.position == 0)
        if lost:
            turn.drop(session.tenant, session, Drop.QOS0_OFFLINE, lost)

    def lower(self, sessions: list[Session]) -> None:
        """A clean end: "may have been sent" becomes "was sent"."""
        for session in sessions:
            window = session.window
            if session.is_persistent and window is not None and 0 <= window.sent_upto < window.asked_reserved:
                window.asked_reserved = window.sent_upto
                self.turn.store.reserve(session, window.sent_upto)
