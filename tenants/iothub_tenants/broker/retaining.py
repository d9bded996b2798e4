"""One tenant's retained messages: which topics there are, whether new ones may come, and their replay to a new subscription.

Knows no driver: bodies are fetched through an injected store, a page at a time. A damaged one is counted, and dropped for whoever should get it; it
stays until its topic gets another one or somebody deletes it.

Hubs that share the store announce what they write to each other, and before a replay each is asked for what is on its way. Where an announcement
could not be sent, the index is read from the store again before the next replay.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Sequence
from functools import partial
from typing import Protocol, TypeVar

from twisted.internet.defer import Deferred, DeferredLock
from twisted.python.failure import Failure

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, CorruptRecordError
from iothub.base.reasons import Drop
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.replay import Pages, Replay
from iothub.engine.router import Subscription
from iothub.engine.state import Session, TenantPlane
from iothub_services.damaged import OnDamage
from iothub_services.queues.bodies import message_of
from iothub_services.queues.fastest import fastest
from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.retained.index import RetainedEntry, RetainedIndex, remembered
from iothub_services.retained.port import RetainedBody, RetainedTopic
from iothub_tenants.broker.kept_messages import KeptMessages
from iothub_tenants.broker.peer_retained import NoPeerRetained, OnDone, PeerRetained

SLICE = 256  # bodies fetched at once
PAGE_BYTES = 64 << 10  # of them, about: what a replay holds for a client that reads slowly
NODES = 1024  # of the index looked at in one go, and messages sent from memory before others get their turns
STORE = "retained"  # by which damaged messages are counted
_SHOWN = 100  # bytes of a Topic Name
_ANY_SIZE = 1 << 62
_HERE = ""  # the source of what is published at this hub; other hubs are named by their ids
_UNKNOWN_ARRIVALS = 1024  # of topics without a retained message, remembered while replays run
_decoded = fastest("message_of", message_of)

_Result = TypeVar("_Result")
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
    """What was retained when the subscriptions of one SUBSCRIBE became active. What is routed later comes live.

    `settled`: fires when all that was routed before is durable, and known here; `failure`: why it never will be. `begun`: how many messages had
    arrived when it began; `asked`: how many had when another hub was asked, if that was later. `as_of`: the changes of the index up to which it says
    what is in the page being sent.
    """

    settled: Deferred[None]

    __slots__ = ("_page", "_versions", "as_of", "asked", "begun", "failure", "settled")

    def __init__(self, arrivals: int) -> None:
        self.begun = arrivals
        self.asked: dict[Hashable, int] = {}
        self._page: Sequence[RetainedEntry | RetainedBody] = ()
        self._versions: dict[bytes, int] | None = None  # of the page, when somebody has asked
        self.as_of = -1
        self.failure: Failure | None = None

    def begin_page(self, page: Sequence[RetainedEntry | RetainedBody], as_of: int) -> None:
        self._page, self._versions = page, None
        self.as_of = as_of

    def versions(self) -> dict[bytes, int]:
        """Return the version of each topic in the page being sent."""
        if self._versions is None:
            self._versions = {each.topic: each.version for each in self._page}
            self._page = ()  # what it holds need not wait for a slow client
        return self._versions


class Retaining:
    """Fulfils `iothub.peers.retained.TenantRetained`.

    Invariants: `retained_messages` and `retained_bytes` count what is stored or on its way there, by topic. The index has every message that is
    stored and was announced here; one that is not there any more may still be in it, and goes when its body is asked for.
    """

    def __init__(
        self,
        tenant: TenantPlane,
        plane: Plane,
        store: RetainedReads,
        ledger: LocalLedger,
        clock: Clock,
        on_damage: OnDamage,
        peers: PeerRetained | None = None,
        kept: KeptMessages | None = None,
    ) -> None:
        self._tenant = tenant
        self._tenant_id = tenant.tenant_id
        self._plane = plane
        self._store = store
        self._ledger = ledger
        self._clock = clock
        self._on_damage = on_damage
        self._peers = peers or NoPeerRetained()
        self._index = RetainedIndex()
        is_alone = isinstance(self._peers, NoPeerRetained)
        # With other hubs the store alone says what is there: a hub that is gone may have written what it did not announce.
        self._kept = (kept or KeptMessages()) if is_alone else None
        self._fetching: dict[bytes, list[Deferred[None]]] = {}  # pages by their first topic -> who else waits for them
        self._is_unannounced = False  # another hub may have written what the index does not have
        self._reading = DeferredLock()
        self._unannounced: dict[bytes, int] = {}  # topic -> version that only the store has named, while replays run
        self._sizes: dict[bytes, int] = {}  # what each topic has reserved
        self._coming: dict[bytes, int] = {}  # how many writes of it are on their way to the store
        self._arrivals = 0  # messages with RETAIN 1, from here and from other hubs
        self._arrived: dict[bytes, dict[Hashable, int]] = {}  # topic -> source -> the last of them
        tenant.may_retain = self.may_retain

    @property
    def is_empty(self) -> bool:
        return not self._sizes

    @property
    def may_have_any(self) -> bool:
        """Tell whether there can be something to replay, here or at another hub."""
        is_behind = self._is_unannounced or self._reading.locked
        return bool(self._sizes) or is_behind or self._peers.has_open(self._tenant_id)

    async def load(self) -> None:
        """Read the index when the broker is made. Other hubs' changes are taken from now on."""
        self._peers.open_tenant(self._tenant_id, self)
        await self._read()
        self._index.load([])

    def close(self) -> None:
        """The broker is dropped, or could not be made."""
        self._peers.close_tenant(self._tenant_id)

    async def _read(self) -> None:
        topics = await self._store.load(self._tenant_id)
        for start in range(0, len(topics), NODES):
            self._take(topics[start : start + NODES])
            if start + NODES < len(topics):
                await self._store.fetch(self._tenant_id, [])  # a great index is built while others get their turns

    def _take(self, topics: Iterable[RetainedTopic]) -> None:
        for topic in topics:
            known = self._index.get(topic.topic)
            if known is not None and known.version < topic.version:
                self._unannounced[topic.topic] = topic.version
            self._forget(self._index.put(*topic))
            self._count_stored(topic.topic)

    def units_of(self, topic: bytes, size: int) -> tuple[tuple[Quota, int], ...]:
        """Return what `may_retain` would reserve, and reserve nothing."""
        known = self._sizes.get(topic)
        grown = max(size - (known or 0), 0)
        return (Quota.RETAINED_MESSAGES, int(known is None and size > 0)), (Quota.RETAINED_BYTES, grown)

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
        self.note_arrival(_HERE, topic)
        return True

    def changed(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """A write of this hub is durable; `size` 0: the message was deleted."""
        self._forget(self._index.noted(topic, version, expires_at_ms, size))
        self._note_done(topic)
        self._count_stored(topic)
        self._peers.announce_change(self._tenant_id, topic, version, expires_at_ms, size)

    def failed(self, topic: bytes) -> None:
        """A write was given up: count what is stored, unless another write of the topic is on its way.

        The store may have done it nevertheless: what is in memory of it proves nothing any more.
        """
        self._forget(self._index.renew(topic))
        self._note_done(topic)
        if topic in self._coming:
            return
        self._arrived.get(topic, {}).pop(_HERE, None)  # so the message that stays is replayed
        self._count_stored(topic)

    def expired(self, topic: bytes) -> None:
        """The store has removed a message whose time was over; one that another hub has written and announced since stays."""
        entry = self._index.get(topic)
        if entry is not None and 0 < entry.expires_at_ms <= self._now_ms():
            self._gone(entry)

    def _gone(self, entry: RetainedEntry) -> None:
        """The store has no message of this version any more, nor an older one."""
        self._forget(self._index.remove(entry.topic, entry.version))
        self._peers.announce_change(self._tenant_id, entry.topic, entry.version, 0, 0)
        self._count_stored(entry.topic)

    # --- other hubs

    def take_change(self, topic: bytes, version: int, expires_at_ms: int, size: int) -> None:
        """A write of another hub is durable; `size` 0: the message was deleted."""
        self._forget(self._index.noted(topic, version, expires_at_ms, size))
        if self._unannounced.get(topic) == version:
            del self._unannounced[topic]
        self._count_stored(topic)

    def note_arrival(self, source: Hashable, topic: bytes) -> None:
        """A message with RETAIN 1 has been routed here, or has come from another hub: it is delivered to whoever has subscribed."""
        if not self._plane.replays.queues:  # only while replays run it matters
            self._arrived.clear()
            return
        self._arrivals += 1
        self._arrived.setdefault(topic, {})[source] = self._arrivals
        if len(self._arrived) > 2 * len(self._sizes) + _UNKNOWN_ARRIVALS:
            self._arrived = {topic: sources for topic, sources in self._arrived.items() if topic in self._sizes}

    def note_unannounced(self) -> None:
        """Another hub may have written what was not announced here."""
        self._is_unannounced = True

    def await_settled(self, on_done: OnDone) -> None:
        """Call back when every write that was asked for is durable, or given up: at once, if none is on its way."""
        if not self._coming:
            on_done()
            return
        Deferred.fromCoroutine(self._store.settle(self._tenant_id)).addErrback(_given_up).addCallback(
            lambda _: on_done()
        )

    async def _read_unannounced(self) -> None:
        """Read what other hubs may have written. Raises BackendError: the next replay tries it again."""
        if not self._is_unannounced:
            return
        self._is_unannounced = False
        try:
            await self._read()
        except BackendError:
            self._is_unannounced = True
            raise

    # --- what is counted

    def _count_stored(self, topic: bytes) -> None:
        """Count what the index has. Not while a write of the topic is on its way: it has its reservation, and is counted after it."""
        if topic in self._coming:
            return
        entry = self._index.get(topic)
        if entry is None:
            self._give_back(topic)
        else:
            self._correct(topic, entry.size)

    def _note_coming(self, topic: bytes) -> None:
        self._coming[topic] = self._coming.get(topic, 0) + 1

    def _note_done(self, topic: bytes) -> None:
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

    # --- replays

    def replays_waiting(self, session: Session) -> int:
        """Return how many Topic Filters' retained messages this session has not been sent yet."""
        return self._plane.replays.count(session)

    def begin_replays(self, session: Session, subscriptions: Iterable[Subscription]) -> deque[Replay] | None:
        """Take the snapshot for subscriptions that have just become active, and queue a replay for each.

        What is returned needs `send_replays`; None: the replays of an earlier SUBSCRIBE are being sent, and these follow them.
        """
        if not self._plane.replays.queues:
            self._unannounced.clear()
            self._arrived.clear()
        snapshot = Snapshot(self._arrivals)
        overtaken = partial(self._overtaken, snapshot)
        opened = [
            self._plane.replays.open(session, each, self._pages(session, each, snapshot), overtaken)
            for each in subscriptions
        ]
        synced: Deferred[None] = Deferred()
        if not self._peers.await_synced(
            self._tenant_id, partial(self._note_asked, snapshot), lambda: synced.callback(None)
        ):
            synced.callback(None)
        snapshot.settled = Deferred.fromCoroutine(self._settle(synced)).addErrback(_keep, snapshot)
        return opened[0]

    def _note_asked(self, snapshot: Snapshot, source: Hashable) -> None:
        snapshot.asked[source] = self._arrivals

    async def _settle(self, synced: Deferred[None]) -> None:
        if self._coming:  # else there is nothing to wait for, and nobody wakes the store's thread
            await self._store.settle(self._tenant_id)
        await synced
        if self._is_unannounced or self._reading.locked:
            # not `async with`: a coroutine that is collected would hand the lock to one that is collected with it
            await self._reading.run(lambda: Deferred.fromCoroutine(self._read_unannounced()))

    def _overtaken(self, snapshot: Snapshot, messages: list[Message]) -> Collection[bytes]:
        """Return the topics of those of a page that may not be sent any more."""
        if snapshot.as_of == self._index.changes:
            if not self._coming and not self._arrived:
                return ()
            messages = [each for each in messages if each.topic in self._coming or each.topic in self._arrived]
        return {message.topic for message in messages if self._is_overtaken(snapshot, message.topic)}

    def _is_overtaken(self, snapshot: Snapshot, topic: bytes) -> bool:
        """Whether a message of this topic was routed after the snapshot, or there is none any more.

        Invariant: such a message was routed after the subscription became active. It comes live, and nothing older may follow it: it is on its way
        to the store (`_coming`), or announced and newer than what was fetched, or has arrived here since the snapshot began, or since its hub was
        asked. Only since then: one that was routed before is in the snapshot, however late it reaches the client by another subscription
        [MQTT-3.3.1-9], and may be older than what is retained. One that was only found in the store may never come: its hub is gone.
        """
        if topic in self._coming:  # what was asked for earlier has arrived: the snapshot is settled
            return True
        entry = self._index.get(topic)
        if entry is None:
            return True
        is_newer = entry.version > (snapshot.versions().get(topic) or entry.version)  # 0: it is damaged
        if is_newer and entry.version != self._unannounced.get(topic):
            return True
        arrived = self._arrived.get(topic, {})
        return any(arrival > snapshot.asked.get(source, snapshot.begun) for source, arrival in arrived.items())

    async def _pages(self, session: Session, subscription: Subscription, snapshot: Snapshot) -> Pages:
        """Yield what matches a subscription, page by page; also nothing, so that others get their turns."""
        await snapshot.settled
        if snapshot.failure is not None:
            snapshot.failure.raiseException()
        matches = self._index.match(subscription.filter)
        from_memory = 0
        while not matches.is_done:
            entries = matches.next_entries(self._now_ms(), NODES, SLICE, PAGE_BYTES)
            as_of = self._index.changes
            messages = self._remembered(snapshot, entries, as_of) if entries else None
            if messages is None:
                from_memory = 0
                yield await self._page(session, snapshot, entries, as_of)
                continue
            if from_memory >= NODES:
                from_memory = 0
                await self._store.fetch(self._tenant_id, [])  # others get their turns
            from_memory += len(entries)
            yield messages

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
        if messages and not self._plane.feed_replay(replay, messages, lambda: taken.callback(None)):
            await taken

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)

    async def _matching(self, topic_filter: bytes) -> list[bytes]:
        now_ms = self._now_ms()
        matches = self._index.match(topic_filter)
        found: list[bytes] = []
        while not matches.is_done:
            found += [entry.topic for entry in matches.next_entries(now_ms, NODES, NODES, _ANY_SIZE)]
            if not matches.is_done:
                await self._store.fetch(self._tenant_id, [])  # others get their turns
        return found

    def _remembered(self, snapshot: Snapshot, entries: list[RetainedEntry], as_of: int) -> list[Message] | None:
        """Return the messages of a page, which the index had `as_of` so many changes, without the store; None: they are not all in memory."""
        messages = remembered(entries, self._clock.wall()) if self._kept is not None else None
        if messages is not None:
            snapshot.begin_page(entries, as_of)
        return messages

    async def _page(
        self, session: Session, snapshot: Snapshot, entries: list[RetainedEntry], as_of: int
    ) -> list[Message]:
        """Fetch a page, or wait for whoever is fetching it: many subscribe at once when a hub has started."""
        if not entries or self._kept is None:
            return await self._fetch(session, snapshot, entries)
        first = entries[0].topic
        if first in self._fetching:
            fetched: Deferred[None] = Deferred()
            self._fetching[first].append(fetched)
            await fetched
            messages = self._remembered(snapshot, entries, as_of)
            if messages is not None:
                return messages
        if first in self._fetching:
            return await self._fetch(session, snapshot, entries)
        self._fetching[first] = []
        # not `finally`: a coroutine that is collected would resume those that are collected with it
        return await Deferred.fromCoroutine(self._fetch(session, snapshot, entries)).addBoth(self._end_fetching, first)

    def _end_fetching(self, result: _Result, first: bytes) -> _Result:
        for each in self._fetching.pop(first):
            each.callback(None)
        return result

    async def _fetch(self, session: Session, snapshot: Snapshot, entries: list[RetainedEntry]) -> list[Message]:
        as_of = self._index.changes
        bodies = await self._store.fetch(self._tenant_id, [entry.topic for entry in entries])
        snapshot.begin_page(bodies, as_of)
        versions = snapshot.versions()
        for entry in entries:
            version = versions.get(entry.topic)
            if version is None:
                self._forget(self._index.remove(entry.topic, entry.version))  # another hub has deleted it
                self._count_stored(entry.topic)
            elif version < entry.version:
                snapshot.as_of = -1
        asked_for = {entry.topic: entry for entry in entries}
        messages: list[Message] = []
        for body in bodies:
            message = self._message(body)
            if message is not None:
                messages.append(message)
                self._remember(asked_for[body.topic], body.version, message)
        if len(messages) < len(bodies):
            self._plane.turn.drop(self._tenant, session, Drop.STORE_FAILED, len(bodies) - len(messages))
        return self._unexpired(messages)

    def _remember(self, entry: RetainedEntry, version: int, message: Message) -> None:
        """Keep what was fetched in memory, if the index has had this version of it since it was asked for."""
        if self._kept is not None and version == entry.version and self._index.get(entry.topic) is entry:
            self._kept.put(entry, message)

    def _forget(self, entry: RetainedEntry | None) -> None:
        """This entry is not in the index any more."""
        if self._kept is not None and entry is not None:
            self._kept.forget(entry)

    def _unexpired(self, messages: list[Message]) -> list[Message]:
        now = self._clock.wall()
        return [message for message in messages if not 0.0 < message.expires_at <= now]

    def _message(self, body: RetainedBody) -> Message | None:
        """None: it is damaged."""
        try:
            return _message_of(body.body)
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
            before = [self._index.get(topic) for topic in chosen]
            deleted += await self._store.delete(self._tenant_id, chosen)
            await self._note_deleted(chosen, before)
            if on_progress is not None:
                await on_progress(start + len(chosen), len(topics))
        return deleted

    async def _note_deleted(self, topics: Sequence[bytes], before: Sequence[RetainedEntry | None]) -> None:
        """The store has deleted these. What was announced meanwhile was written before that or after it: the store says which."""
        changed: list[RetainedEntry] = []
        for topic, entry in zip(topics, before, strict=True):
            now = self._index.get(topic)
            if now is not None and now is entry:
                self._gone(now)
            elif now is not None:
                changed.append(now)
        if changed:
            there = {body.topic for body in await self._store.fetch(self._tenant_id, [each.topic for each in changed])}
            for each in changed:
                if each.topic not in there:
                    self._gone(each)


def _keep(failure: Failure, snapshot: Snapshot) -> None:
    snapshot.failure = failure


def _given_up(failure: Failure) -> None:
    """The store has refused for too long, or is closed: nothing of it is on its way any more."""
    if not isinstance(failure.value, BackendError):
        failure.raiseException()


def _message_of(body: bytes) -> Message:
    """Decode a stored message. Raises CorruptRecordError."""
    message = _decoded(body)
    message.retain = True
    message.message_id = b""
    return message
