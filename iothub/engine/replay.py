# cython: annotation_typing=False
"""Retained messages for one new subscription: RETAIN 1, in slices, never older than what was published to it live meanwhile.

Knows no retained store and no Retain Handling: the caller has decided what is to be sent, and brings it page by page (`feed`), the next one
when the last is through: no more than a page is in memory for a client that reads slowly, or not at all. The caller also says which of it was
replaced since the subscription became active (`is_overtaken`). Each replay has its own answer to that: a message that came live before a
subscription is retained for that one [MQTT-3.3.1-9] [MQTT-3.8.4-4].
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

IsOvertaken = Callable[[bytes], bool]
Key = tuple[bytes | None, bytes]  # share group, Topic Filter


class Running:
    """One replay that is not finished. `then`: to be called when its page is through, or its client has gone."""

    def __init__(self, session: Session, subscription: Subscription, is_overtaken: IsOvertaken | None) -> None:
        self.session = session
        self.subscription = subscription
        self.is_overtaken = is_overtaken  # None: nothing is
        self.messages: list[Message] = []
        self.index = 0
        self.is_last = False
        self.is_over = False
        self.then: Callable[[], None] | None = None

    @property
    def key(self) -> Key:
        return self.subscription.group, self.subscription.filter

    @property
    def is_wanted(self) -> bool:
        """Whether anybody still waits for it: the subscription may have been taken back."""
        return not self.is_over and self.key in self.session.subscriptions


class Replay:
    """All replays of the worker; each tick gives every one a slice, unless its client does not keep up."""

    def __init__(self, turn: Turn, publishing: Publishing, outbound: Outbound) -> None:
        self.turn = turn
        self.publishing = publishing
        self.outbound = outbound
        self.running: dict[Session, dict[Key, Running]] = {}

    def start(
        self,
        session: Session,
        subscription: Subscription,
        messages: list[Message],
        is_overtaken: IsOvertaken | None = None,
    ) -> None:
        """Begin with all there is; the first slice goes at once."""
        self.feed(self.open(session, subscription, is_overtaken), messages, None)

    def open(self, session: Session, subscription: Subscription, is_overtaken: IsOvertaken | None = None) -> Running:
        """Begin; `feed` brings the messages. It ends an earlier replay of the same filter: everything comes again."""
        running = Running(session, subscription, is_overtaken)
        if session.connection is None:
            running.is_over = True
            return running
        of_session = self.running.setdefault(session, {})
        earlier = of_session.get(running.key)
        of_session[running.key] = running
        if earlier is not None:
            _end(earlier)
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
        for running in [running for of_session in self.running.values() for running in of_session.values()]:
            if running.is_over or not running.messages or not self._slice(running):
                continue
            if running.is_last:
                self._finish(running)
            else:
                _notify(running)

    def forget(self, session: Session) -> None:
        """The connection ended."""
        for running in self.running.pop(session, {}).values():
            _end(running)

    def _finish(self, running: Running) -> None:
        running.is_over = True
        of_session = self.running[running.session]
        del of_session[running.key]
        if not of_session:
            del self.running[running.session]

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
        if running.is_overtaken is not None and running.is_overtaken(message.topic):
            return
        qos = min(message.qos, subscription.qos)
        identifiers = (subscription.identifier,) if subscription.identifier else ()
        if session.is_persistent and qos:
            self.publishing.append(
                StoredPublish(session.tenant, message, [QueueTarget(session, qos, True, identifiers)], False)
            )
            return
        self.outbound.deliver(session, message, qos, True, identifiers, None)


def _end(running: Running) -> None:
    """Nobody waits for it any more."""
    running.is_over = True
    running.messages = []
    _notify(running)


def _notify(running: Running) -> None:
    then, running.then = running.then, None
    if then is not None:
        then()
