"""One tenant's retained messages: which topics there are, whether new ones may come, and their replay to a new subscription.

Knows no driver: bodies are fetched through an injected store, a page at a time. A damaged one is counted, and dropped for whoever should get it; it
stays until its topic gets another one or somebody deletes it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Sequence
from functools import partial
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base.clock import Clock
from iothub.base.errors import CorruptRecordError
from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.replay import Pages, Replay
from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub.records.message import decode_message
from iothub_services.damaged import OnDamage
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.retained.index import Matches, RetainedIndex
from iothub_services.retained.port import RetainedBody, RetainedTopic

SLICE = 256  # bodies fetched at once
PAGE_BYTES = 64 << 10  # of them, about: what a replay holds for a client that reads slowly
NODES = 1024  # of the index looked at in one go
STORE = "retained"  # by which damaged messages are counted
_SHOWN = 100  # bytes of a Topic Name

Progress = Callable[[int, int], Awaitable[None]]
"""`await progress(done, of)`: how far a long piece of work is."""


class RetainedReads(Protocol):
    """The awaitable verbs of the retained store that are used here."""

    async def load(self, tenant_id: int) -> list[RetainedTopic]: ...

    async def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]: ...

    async def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int: ...

    async def settle(self, tenant_id: int) -> None:
        """Wait until every write that was asked for is durable, and return before a later one is reported."""


class Snapshot:
    """What was retained when the subscriptions of one SUBSCRIBE became active. What is published later comes live.

    `newest`: the highest version of the writes that were asked for until then; known when `settled` has fired.
    `failure`: why it never will be.
    """

    __slots__ = ("failure", "newest", "settled")

    def __init__(self) -> None:
        self.newest = -1
        self.failure: Failure | None = None
        self.settled: Deferred[None] = Deferred()


class Retaining:
    """Invariant: `retained_messages` and `retained_bytes` count what is stored or on its way there, by topic."""

    def __init__(
        self,
        tenant: TenantPlane,
        plane: Plane,
        store: RetainedReads,
        ledger: LocalLedger,
        clock: Clock,
        on_damage: OnDamage,
    ) -> None:
        self._tenant = tenant
        self._tenant_id = tenant.tenant_id
        self._plane = plane
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._on_damage = on_damage
        self._index = RetainedIndex()
        self._newest = 0  # the highest version heard of
        self._sizes: dict[bytes, int] = {}  # what each topic has reserved
        self._coming: dict[bytes, int] = {}  # how many writes of it are on their way to the store
        tenant.may_retain = self.may_retain

    @property
    def is_empty(self) -> bool:
        return not self._sizes

    async def load(self) -> None:
        """Read the index once, when the broker is made."""
        topics = await self._store.load(self._tenant_id)
        for start in range(0, len(topics), NODES):
            self._take(topics[start : start + NODES])
            if start + NODES < len(topics):
                await self._store.fetch(self._tenant_id, [])  # a great index is built while others get their turns
        self._index.load([])

    def _take(self, topics: Iterable[RetainedTopic]) -> None:
        for topic in topics:
            self._index.put(topic)
            self._newest = max(self._newest, topic.version)
            if topic.topic not in self._sizes:
                self._sizes[topic.topic] = topic.size
                self._ledger.restore(Quota.RETAINED_MESSAGES, 1)
                self._ledger.restore(Quota.RETAINED_BYTES, topic.size)

    def may_retain(self, topic: bytes, size: int) -> bool:
        """Reserve the room of a message that is to be retained; False: the tenant's quota is used up. Size 0 deletes, and needs none."""
        if not size:
            self._note_coming(topic)
            return True
        known = self._sizes.get(topic)
        if known is None and not self._ledger.reserve(Quota.RETAINED_MESSAGES):
            return False
        grown = size - (known or 0)
        if grown > 0 and not self._ledger.reserve(Quota.RETAINED_BYTES, grown):
            if known is None:
                self._ledger.release(Quota.RETAINED_MESSAGES)
            return False
        if grown < 0:
            self._ledger.release(Quota.RETAINED_BYTES, -grown)
        self._sizes[topic] = size
        self._note_coming(topic)
        return True

    def changed(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """A write is durable; `size` 0: the message was deleted."""
        self._index.noted(topic, version, expires_at_ms, size)
        self._newest = max(self._newest, version)
        self._arrived(topic)
        if size:
            self._correct(topic, size)
        else:
            self._give_back(topic)

    def failed(self, topic: bytes) -> None:
        """A write was given up: count what is stored, unless another write of the topic is on its way."""
        self._arrived(topic)
        if topic in self._coming:
            return
        entry = self._index.get(topic)
        if entry is None:
            self._give_back(topic)
        else:
            self._correct(topic, entry.size)

    def gone(self, topic: bytes) -> None:
        """The message has expired, or an operator has deleted it."""
        entry = self._index.get(topic)
        if entry is not None:
            self._index.remove(topic, entry.version)
        self._give_back(topic)

    def _note_coming(self, topic: bytes) -> None:
        self._coming[topic] = self._coming.get(topic, 0) + 1

    def _arrived(self, topic: bytes) -> None:
        left = self._coming.pop(topic, 0) - 1
        if left > 0:
            self._coming[topic] = left

    def _correct(self, topic: bytes, size: int) -> None:
        """Count what is stored, as the next start will: the reservation knew the payload only."""
        reserved = self._sizes.get(topic)
        if reserved is None:
            self._ledger.restore(Quota.RETAINED_MESSAGES, 1)
        if size < (reserved or 0):
            self._ledger.release(Quota.RETAINED_BYTES, (reserved or 0) - size)
        else:
            self._ledger.restore(Quota.RETAINED_BYTES, size - (reserved or 0))
        self._sizes[topic] = size

    def _give_back(self, topic: bytes) -> None:
        reserved = self._sizes.pop(topic, None)
        if reserved is not None:
            self._ledger.release(Quota.RETAINED_MESSAGES)
            self._ledger.release(Quota.RETAINED_BYTES, reserved)

    def replays_waiting(self, session: Session) -> int:
        """Return how many Topic Filters' retained messages this session has not been sent yet."""
        return self._plane.replays.count(session)

    def begin_replays(self, session: Session, subscriptions: Iterable[Subscription]) -> deque[Replay] | None:
        """Take the snapshot for subscriptions that have just become active, and queue a replay for each.

        What is returned needs `send_replays`; None: the replays of an earlier SUBSCRIBE are being sent, and these follow them.
        """
        snapshot = Snapshot()
        is_overtaken = partial(self._is_overtaken, snapshot)
        opened = [
            self._plane.replays.open(session, each, self._pages(session, each, snapshot), is_overtaken)
            for each in subscriptions
        ]
        snapshot.settled = Deferred.fromCoroutine(self._settle(snapshot)).addErrback(_keep, snapshot)
        return opened[0]

    async def _settle(self, snapshot: Snapshot) -> None:
        await self._store.settle(self._tenant_id)
        snapshot.newest = self._newest

    def _is_overtaken(self, snapshot: Snapshot, topic: bytes) -> bool:
        """Whether a write of this topic was asked for after the snapshot, or it is not retained any more.

        Invariant: the message of such a write was routed after the subscription became active. It comes live, and nothing older may follow it.
        A message that was routed before is in the snapshot, however late it reaches the client by another subscription [MQTT-3.3.1-9].
        """
        if topic in self._coming:  # what was asked for earlier has arrived: the snapshot is settled
            return True
        entry = self._index.get(topic)
        return entry is None or entry.version > snapshot.newest

    async def _pages(self, session: Session, subscription: Subscription, snapshot: Snapshot) -> Pages:
        """Yield what matches a subscription, page by page; also nothing, so that others get their turns."""
        await snapshot.settled
        if snapshot.failure is not None:
            snapshot.failure.raiseException()
        matching = _Matching(self._index.match(subscription.filter))
        while (topics := matching.next(self._now_ms())) is not None:
            yield await self._fetch(session, topics)

    async def send_replays(self, queue: deque[Replay]) -> None:
        """Send a session's replays, one after the other, page by page, as fast as the client takes them; also those that are queued meanwhile."""
        replays = self._plane.replays
        try:
            while queue:
                replay = queue[0]
                while not replay.is_over and (messages := await anext(replay.pages, None)) is not None:
                    await self._send(replay, messages)
                replays.finish(queue)
        finally:
            while queue:  # after an error, with which the connection ends
                replays.finish(queue)

    async def _send(self, replay: Replay, messages: list[Message]) -> None:
        """Return when the client has taken the page, or nobody waits for it any more."""
        taken: Deferred[None] = Deferred()
        if messages and not self._feed(replay, messages, lambda: taken.callback(None)):
            await taken

    def _feed(self, replay: Replay, messages: list[Message], then: Callable[[], None]) -> bool:
        plane = self._plane
        was_open = plane.turn.is_open
        plane.turn.begin()
        is_through = plane.replays.feed(replay, messages, then)
        if not was_open:
            plane.end_batch()
        return is_through

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    async def _matching(self, topic_filter: bytes) -> list[bytes]:
        now_ms = self._now_ms()
        matches = self._index.match(topic_filter)
        found: list[bytes] = []
        while not matches.is_done:
            found += [topic.topic for topic in matches.next_topics(NODES, now_ms)]
            if not matches.is_done:
                await self._store.fetch(self._tenant_id, [])  # others get their turns
        return found

    async def _fetch(self, session: Session, topics: Sequence[bytes]) -> list[Message]:
        bodies = await self._store.fetch(self._tenant_id, topics)
        messages = [message for body in bodies if (message := self._message(body)) is not None]
        if len(messages) < len(bodies):
            self._plane.turn.drop(self._tenant, session, Drop.STORE_FAILED, len(bodies) - len(messages))
        now = self._clock.wall()
        return [message for message in messages if not 0.0 < message.expires_at <= now]

    def _message(self, body: RetainedBody) -> Message | None:
        """None: it is damaged."""
        try:
            return _message_of(body)
        except CorruptRecordError as error:
            topic = body.topic[:_SHOWN].decode(errors="replace")
            self._on_damage(STORE, f"tenant {self._tenant.name}, topic {topic!r}", str(error))
            return None

    async def delete(self, topic_filter: bytes, on_progress: Progress | None = None) -> int:
        """Delete all that match; returns how many there were."""
        topics = await self._matching(topic_filter)
        deleted = 0
        for start in range(0, len(topics), SLICE):
            chosen = topics[start : start + SLICE]
            deleted += await self._store.delete(self._tenant_id, chosen)
            for topic in chosen:
                self.gone(topic)
            if on_progress is not None:
                await on_progress(start + len(chosen), len(topics))
        return deleted


class _Matching:
    """The topics that a Topic Filter matches, in pages of at most PAGE_BYTES of bodies."""

    def __init__(self, matches: Matches) -> None:
        self._matches = matches
        self._found: deque[RetainedTopic] = deque()

    def next(self, now_ms: int) -> list[bytes] | None:
        """Return the topics of a page, none if a stretch of the index had none; None at the end."""
        found = self._found
        if not found and self._matches.is_done:
            return None
        if len(found) < SLICE:
            found.extend(self._matches.next_topics(NODES, now_ms))
        page: list[bytes] = []
        size = 0
        while found and len(page) < SLICE and (not page or size + found[0].size <= PAGE_BYTES):
            size += found[0].size
            page.append(found.popleft().topic)
        return page


def _keep(failure: Failure, snapshot: Snapshot) -> None:
    snapshot.failure = failure


def _message_of(body: RetainedBody) -> Message:
    """Decode a stored message. Raises CorruptRecordError."""
    stored = decode_message(body.body)
    return Message(
        stored.topic,
        stored.payload,
        stored.qos,
        True,
        stored.properties,
        stored.expires_at_ms / 1000,
        b"",
        None,
        stored.publisher_client_id,
    )
