# cython: annotation_typing=False
"""Retained messages for one new subscription: RETAIN 1, in slices, never older than what was delivered live meanwhile.

Knows no retained store and no Retain Handling: whoever calls has decided what is to be sent.
"""

from __future__ import annotations

from iothub.engine.message import Message
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.publishing import Publishing
from iothub.engine.router import Subscription
from iothub.engine.session import Session
from iothub.engine.turn import Turn


class Running:
    """One replay that is not finished."""

    def __init__(self, session: Session, subscription: Subscription, messages: list[Message]) -> None:
        self.session = session
        self.subscription = subscription
        self.messages = messages
        self.index = 0


class Replay:
    """All replays of the worker; each tick gives every one a slice, unless its client does not keep up."""

    def __init__(self, turn: Turn, publishing: Publishing, outbound: Outbound) -> None:
        self.turn = turn
        self.publishing = publishing
        self.outbound = outbound
        self.running: list[Running] = []
        self.expected: dict[Session, int] = {}  # replays announced and not finished

    def expect(self, session: Session) -> None:
        """From now on remember the topics delivered live, until the announced replay is through."""
        self.expected[session] = self.expected.get(session, 0) + 1
        if session.replay_topics is None:
            session.replay_topics = set()

    def start(self, session: Session, subscription: Subscription, messages: list[Message]) -> None:
        """Begin; the first slice goes at once."""
        if session.connection is None:
            self.forget(session)
            return
        if session not in self.expected:
            self.expect(session)
        running = Running(session, subscription, messages)
        if not self._slice(running):
            self.running.append(running)

    def go_on(self) -> None:
        """Give every replay its next slice."""
        running = self.running
        self.running = []
        for one in running:
            if one.session.connection is not None and not self._slice(one):
                self.running.append(one)

    def forget(self, session: Session) -> None:
        """The connection ended."""
        self.expected.pop(session, None)
        session.replay_topics = None
        if self.running:
            self.running = [one for one in self.running if one.session is not session]

    def _slice(self, running: Running) -> bool:
        """Send some; whether it is through."""
        session = running.session
        messages = running.messages
        left = self.turn.limits.replay_slice
        while left and running.index < len(messages):
            connection = session.connection
            if (
                connection is None
                or len(connection.out) > self.turn.out_soft_bytes // 2
                or session.backlog_length() >= self.turn.limits.replay_slice
                or self.turn.is_store_full()
            ):
                return False
            self._send(session, running.subscription, messages[running.index])
            running.index += 1
            left -= 1
        if running.index < len(messages):
            return False
        count = self.expected.get(session, 0) - 1
        if count > 0:
            self.expected[session] = count
        else:
            self.expected.pop(session, None)
            session.replay_topics = None
        return True

    def _send(self, session: Session, subscription: Subscription, message: Message) -> None:
        live = session.replay_topics
        if live is not None and message.topic in live:
            return  # a newer one came live
        qos = min(message.qos, subscription.qos)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        if session.is_persistent and qos:
            self.publishing.append(
                StoredPublish(session.tenant, message, [QueueTarget(session, qos, True, identifiers)], False)
            )
            return
        session.replay_topics = None  # what is replayed is not live
        self.outbound.deliver(session, message, qos, True, identifiers, None)
        session.replay_topics = live
