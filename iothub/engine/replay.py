# cython: annotation_typing=False
"""Retained messages for one new subscription: RETAIN 1, in slices, never older than what was delivered live meanwhile.

Knows no retained store and no Retain Handling: the caller has decided what is to be sent, and brings it page by page (`feed`), the next one
when the last is through: no more than a page is in memory for a client that reads slowly, or not at all.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.engine.message import Message
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import QueueTarget, StoredPublish
from iothub.engine.publishing import Publishing
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.engine.turn import Turn

LIVE_TOPICS = 16_384  # remembered per session by name; beyond, what is newer is known by its version alone


class Running:
    """One replay that is not finished. `then`: to be called when its page is through, or its client has gone."""

    def __init__(self, session: Session, subscription: Subscription) -> None:
        self.session = session
        self.subscription = subscription
        self.messages: list[Message] = []
        self.index = 0
        self.is_last = False
        self.is_over = False
        self.is_superseded = False  # the same filter was subscribed again, and is replayed again
        self.then: Callable[[], None] | None = None
        self.live: set[bytes] | None = (
            None  # topics that came live, taken over from the session when they were too many
        )

    @property
    def key(self) -> tuple[bytes | None, bytes]:
        return self.subscription.group, self.subscription.filter

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it: the subscription may have been taken back."""
        return not self.is_over and not self.is_superseded and self.key in self.session.subscriptions


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
        """Begin with all there is; the first slice goes at once."""
        self.feed(self.open(session, subscription), messages, None)

    def open(self, session: Session, subscription: Subscription) -> Running:
        """Begin; `feed` brings the messages. It ends an earlier replay of the same filter: everything comes again."""
        running = Running(session, subscription)
        if session.connection is None:
            self.forget(session)
            running.is_over = True
            return running
        if session not in self.expected:
            self.expect(session)
        for other in self.running:
            if other.session is session and other.key == running.key:
                other.is_superseded = True
        self.running.append(running)
        return running

    def feed(self, running: Running, messages: list[Message], then: Callable[[], None] | None) -> bool:
        """Take the next page when the one before is through. False: `then` will be called when this one is. No `then`: it is the last."""
        if running.is_over:
            return True
        running.messages, running.index, running.is_last = messages, 0, then is None
        if not self._slice(running):
            running.then = then
            return False
        if running.is_last:
            self._finish(running)
        return True

    def go_on(self) -> None:
        """Give every replay its next slice."""
        for running in list(self.running):
            self._remember_less(running)
            if running.is_over or not running.messages or not self._slice(running):
                continue
            if running.is_last:
                self._finish(running)
            else:
                _notify(running)

    def forget(self, session: Session) -> None:
        """The connection ended."""
        self.expected.pop(session, None)
        session.replay_topics = None
        gone = [running for running in self.running if running.session is session]
        if gone:
            self.running = [running for running in self.running if running.session is not session]
        for running in gone:
            running.is_over = True
            running.messages = []
            _notify(running)

    def _finish(self, running: Running) -> None:
        session = running.session
        running.is_over = True
        self.running.remove(running)
        count = self.expected.get(session, 0) - 1
        if count > 0:
            self.expected[session] = count
        else:
            self.expected.pop(session, None)
            session.replay_topics = None

    def _remember_less(self, running: Running) -> None:
        """A replay may take long, and everything may come live meanwhile: no list of names grows without end."""
        session = running.session
        live = session.replay_topics
        if live is not None and len(live) > LIVE_TOPICS:
            for other in self.running:
                if other.session is session:
                    other.live = live if other.live is None else other.live | live
            session.replay_topics = None

    def _slice(self, running: Running) -> bool:
        """Send some; whether the page is through."""
        session = running.session
        messages = running.messages
        left = self.turn.limits.replay_slice
        if not running.is_wanted:
            running.index = len(messages)
        while running.index < len(messages):
            connection = session.connection
            if (
                not left
                or connection is None
                or len(connection.out) > self.turn.out_soft_bytes // 2
                or session.backlog_length() >= self.turn.limits.replay_slice
                or self.turn.is_store_full()
            ):
                return False
            self._send(running, messages[running.index])
            running.index += 1
            left -= 1
        running.messages = []
        return True

    def _send(self, running: Running, message: Message) -> None:
        session, subscription = running.session, running.subscription
        live = session.replay_topics
        if message.topic in (live or ()) or message.topic in (running.live or ()):
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


def _notify(running: Running) -> None:
    then, running.then = running.then, None
    if then is not None:
        then()
