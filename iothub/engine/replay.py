# cython: annotation_typing=False
"""Retained messages for new subscriptions: RETAIN 1, in slices, never older than what was published to them live meanwhile.

Each SUBSCRIBE has a replay of its own [MQTT-3.8.4-4]. The replays of one session are sent one after the other, so a client that reads slowly, or
not at all, costs one page, however often it subscribes. Knows no retained store and no Retain Handling: the caller has decided what is to be sent,
and brings it page by page (`feed`), the next one when the last is through. The caller also says which of it was replaced since the subscription
became active (`overtaken`): a message that came live before a subscription is retained for that one [MQTT-3.3.1-9].
"""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable, Collection

from iothub.engine.message import Message, copy_of
from iothub.engine.outbound import Outbound
from iothub.engine.outbox import StoredPublish, target_of
from iothub.engine.publishing import Publishing
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.engine.turn import Turn

Pages = AsyncIterator[list[Message]]
Overtaken = Callable[[list[Message]], Collection[bytes]]
"""Of which topics a message was replaced after the subscription became active: the newer one comes live. Asked once for each slice."""


class Replay:
    """The retained messages for one Topic Filter of one SUBSCRIBE.

    `pages`: brings the messages, and reads nothing before it is asked. `then`: to be called when the present page is through, or it is over.
    """

    def __init__(self, session: Session, subscription: Subscription, pages: Pages, overtaken: Overtaken) -> None:
        self.session = session
        self.subscription = subscription
        self.pages = pages
        self.overtaken = overtaken
        self.messages: list[Message] = []  # the present page
        self.index = 0  # in it
        self.is_over = False
        self.then: Callable[[], None] | None = None

    @property
    def key(self) -> tuple[bytes | None, bytes]:
        """Share group and Topic Filter."""
        return self.subscription.group, self.subscription.filter


class Replays:
    """All replays of the worker; each tick gives every session a slice, unless its client does not keep up.

    Invariant: of each queue only the first replay has messages. Whoever opened the first one of a queue sends them all.
    """

    def __init__(self, turn: Turn, publishing: Publishing, outbound: Outbound) -> None:
        self.turn = turn
        self.publishing = publishing
        self.outbound = outbound
        self.queues: dict[Session, deque[Replay]] = {}  # in the order of the SUBSCRIBEs

    def open(
        self, session: Session, subscription: Subscription, pages: Pages, overtaken: Overtaken
    ) -> deque[Replay] | None:
        """Queue a replay. Return the queue if the caller must send it: with `feed` and `finish`, until it is empty."""
        if session.connection is None:
            return None
        replay = Replay(session, subscription, pages, overtaken)
        queue = self.queues.get(session)
        if queue is not None:
            queue.append(replay)
            return None
        queue = self.queues[session] = deque((replay,))
        return queue

    def count(self, session: Session) -> int:
        """Return how many replays of a session are not finished."""
        return len(self.queues.get(session, ()))

    def feed(self, replay: Replay, messages: list[Message], then: Callable[[], None]) -> bool:
        """Send a page of the first replay of a queue. False: `then` will be called when it is through."""
        if replay.is_over:
            return True
        replay.messages, replay.index = messages, 0
        if self._slice(replay):
            return True
        replay.then = then
        return False

    def finish(self, queue: deque[Replay]) -> None:
        """The first replay is over: the next one is the first."""
        replay = queue.popleft()
        replay.is_over = True
        if not queue and self.queues.get(replay.session) is queue:
            del self.queues[replay.session]

    def go_on(self) -> None:
        """Give every session its next slice."""
        for replay in [queue[0] for queue in self.queues.values()]:
            if replay.then is not None and self._slice(replay):
                _notify(replay)

    def end(self, session: Session, group: bytes | None, filter: bytes) -> None:
        """UNSUBSCRIBE: what has not been sent by now is not sent [MQTT-3.10.4-2]."""
        queue = self.queues.get(session)
        if queue is None:
            return
        ended = [each for each in queue if each.key == (group, filter)]
        first = queue[0]  # stays until `finish`: whoever sends the queue may wait for a page of it
        kept = [each for each in queue if each is first or each.key != (group, filter)]
        queue.clear()
        queue.extend(kept)
        _end(ended)

    def forget(self, session: Session) -> None:
        """The connection ended."""
        if self.queues:
            _end(list(self.queues.pop(session, ())))

    def send(self, session: Session, subscription: Subscription, message: Message) -> None:
        """Send one message with RETAIN 1; with QoS > 0 to a persistent session by its queue."""
        self._send(session, message, subscription.qos, _identifiers(subscription))

    def _send(self, session: Session, message: Message, granted: int, identifiers: tuple[int, ...]) -> None:
        qos = message.qos if message.qos < granted else granted
        if session.is_persistent and qos:
            target = target_of(session, qos, True, identifiers, False)
            # A message of its own: the store gives it an id, and others may be sent the same one.
            self.publishing.append(StoredPublish(session.tenant, copy_of(message), [target], False))
            return
        self.outbound.deliver(session, message, qos, True, identifiers, None)

    def _slice(self, replay: Replay) -> bool:
        """Send some; whether the page is through."""
        session = replay.session
        messages = replay.messages
        subscription = replay.subscription
        granted = subscription.qos
        identifiers = _identifiers(subscription)
        turn = self.turn
        most: int = turn.limits.replay_slice
        left = most
        index = replay.index
        overtaken: Collection[bytes] | None = None  # nobody is asked before something can be sent
        while index < len(messages):
            connection = session.connection
            if (
                not left
                or connection is None
                or len(connection.out) > turn.out_soft_bytes // 2
                or session.backlog_length() >= most
                or turn.is_store_full()
            ):
                return False
            if overtaken is None:
                overtaken = replay.overtaken(messages)
            message = messages[index]
            if not overtaken or message.topic not in overtaken:
                self._send(session, message, granted, identifiers)
            index += 1
            replay.index = index
            left -= 1
        replay.messages = []
        return True


def _identifiers(subscription: Subscription) -> tuple[int, ...]:
    return (subscription.identifier,) if subscription.identifier else ()


def _end(replays: Collection[Replay]) -> None:
    """Nobody waits for them any more."""
    for replay in replays:
        replay.is_over = True
        replay.messages = []
    for replay in replays:
        _notify(replay)


def _notify(replay: Replay) -> None:
    then, replay.then = replay.then, None
    if then is not None:
        then()
