"""The streams of one hub: out to Kafka, in from it, followed as the accounts say, and shared with the hubs that use the same accounts.

Knows the parts by reference: the sink store holds publishers back, the sources publish, the drivers talk to Kafka in threads of their own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from iothub.base import log
from iothub.base.clock import Clock
from iothub.base.errors import IotHubError, NotOursError, UnavailableError
from iothub.config.sections import Config
from iothub.engine.plane import Plane
from iothub.engine.ports import Store
from iothub.hub.stores.stream_drivers import StreamDrivers
from iothub_services.auth.port import Run
from iothub_services.streams.port import Direction, Stream
from iothub_services.streams.sink import SinkLimits, SinkStore
from iothub_tenants.accounts import streams as accounts
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import AccountStore, ChangeKind
from iothub_tenants.background.membership import Members
from iothub_tenants.background.stream_sources import StreamSources
from iothub_tenants.broker.hub import Hub
from iothub_tenants.broker.streams import StreamRegistry

LOOK_INTERVAL_S = 0.25
_RULE = f"device:{accounts.SUBJECT}"


@dataclass(frozen=True, slots=True)
class Work:
    """What was done for one stream since the hub started."""

    messages: int = 0
    bytes: int = 0
    pending: int = 0
    refused: int = 0


class Pace:
    """Messages a second, of the last whole span of `SPAN_S`."""

    SPAN_S = 5.0

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._began = clock.monotonic()
        self._before: dict[int, int] = {}
        self._paces: dict[int, float] = {}

    def note_counts(self, counts: Mapping[int, int]) -> None:
        """`counts`: messages of each stream so far."""
        elapsed_s = self._clock.monotonic() - self._began
        if elapsed_s < self.SPAN_S:
            return
        self._began += elapsed_s
        self._paces = {key: (count - self._before.get(key, 0)) / elapsed_s for key, count in counts.items()}
        self._before = dict(counts)

    def of(self, stream_id: int) -> float:
        return self._paces.get(stream_id, 0.0)


class OutTrouble:
    """What keeps messages from going out; empty: nothing. Said by the sink of all streams, shown by `Streaming`."""

    def __init__(self) -> None:
        self.text = ""

    def note(self, text: str) -> None:
        self.text = text


@dataclass(frozen=True, slots=True)
class StreamParts:
    """What streams are made of. `out_trouble`: what `sink_store` says."""

    drivers: StreamDrivers
    sink_store: SinkStore
    registry: StreamRegistry
    out_trouble: OutTrouble


def stream_parts(
    settings: Config, store: Store, drivers: StreamDrivers, clock: Clock, plane: Callable[[], Plane]
) -> StreamParts:
    """Make what the message plane writes to, above the `store` of the queues. `plane`: it is made later."""
    bounds = SinkLimits(
        settings.streams.tenant_pending_bytes, settings.streams.pending_bytes, settings.queues.give_up_s
    )
    trouble = OutTrouble()
    sink_store = SinkStore(store, drivers.sender, clock, settings.kafka.topic_prefix, bounds, trouble.note, plane)
    return StreamParts(drivers, sink_store, StreamRegistry(sink_store), trouble)


class Streaming:
    """On the reactor thread, but `close`. Invariant: `registry` has what the accounts said last; `is_stale`: they say something else by now."""

    def __init__(
        self,
        parts: StreamParts,
        hub: Hub,
        store: AccountStore,
        run: Run,
        members: Members | None,
        prefix: str,
        on_trouble: Callable[[str], None],
    ) -> None:
        """`members`: the hubs that use these accounts; None: this one alone. `prefix`: of the topics."""
        self._brokers, self._accounts, self._run, self._members = hub.brokers, store, run, members
        self._prefix = prefix
        self._on_trouble = on_trouble
        self._out_trouble = parts.out_trouble
        self._log = log.get(__name__)
        self._topics, self._receiver, self._watch = parts.drivers.topics, parts.drivers.receiver, parts.drivers.watch
        self.sink_store = parts.sink_store
        self.registry = parts.registry
        self.sources = StreamSources(hub, self.registry, self._receiver, self.sink_store, prefix)
        self._pace = Pace(hub.clock)
        self.is_stale = True
        self._followed: tuple[Stream, ...] = ()

    def start(self) -> None:
        self.sink_store.start()
        self.sources.start()

    # --- following the accounts

    def on_changes(self, changes: Collection[Change]) -> None:
        """The accounts have changed; `refresh` looks at what concerns streams."""
        self.is_stale |= any(_concerns(change) for change in changes)

    async def refresh(self) -> None:
        """Apply what the accounts say now. Raises UnavailableError; it is tried again at the next call."""
        if not self.is_stale:
            return
        self.is_stale = False
        try:
            found = await self._run("accounts.streams", accounts.active, self._accounts)
        except UnavailableError:
            self.is_stale = True
            raise
        self.registry.replace_streams(found, self._brokers)
        self.share_out()

    def share_out(self) -> None:
        """Each stream in is read by one hub: of those that live, the one with the highest hash of both."""
        mine = tuple(stream for stream in self.registry.inbound if self._is_mine(stream))
        if mine != self._followed:
            self._followed = mine
            self.sources.follow(mine)

    def _is_mine(self, stream: Stream) -> bool:
        members = self._members
        if members is None:
            return True
        return max((*members.living, members.number), key=lambda node: _weight(stream.id, node)) == members.number

    async def run_once(self) -> None:
        """Give up what waited too long, say what is wrong, and take over what another hub has left. Several times a second."""
        self.sink_store.check_waiting()
        self.share_out()
        self._pace.note_counts({stream.id: self._work_of(stream).messages for stream in self.registry})
        has_any = len(self.registry) > 0
        self._watch.watch(is_needed=has_any)
        trouble = self._out_trouble.text or (self._receiver.trouble if self._followed else "")
        if not trouble and has_any:
            trouble = f"the streams can do nothing: {self._watch.trouble}" if self._watch.trouble else self._watch.doubt
        self._on_trouble(trouble)

    # --- what is shown

    def describe(self, tenant: str, name: str) -> dict[str, object] | None:
        """Return what this hub has done for a stream since it started; None: it does not know it."""
        stream = next((each for each in self.registry if (each.tenant, each.name) == (tenant, name)), None)
        if stream is None:
            return None
        work = self._work_of(stream)
        return {
            "state": self._state(stream),
            "messages": work.messages,
            "bytes": work.bytes,
            "messages_per_s": round(self._pace.of(stream.id)),
            "pending": work.pending,
            "refused": work.refused,
        }

    def _work_of(self, stream: Stream) -> Work:
        if stream.direction is Direction.IN:
            progress = self.sources.progress(stream.id)
            if progress is None:
                return Work()
            return Work(progress.messages, progress.bytes, progress.awaited, sum(progress.refused.values()))
        sink = self.registry.sink_of(stream.id)
        return Work() if sink is None else Work(sink.messages, sink.bytes, sink.pending, sink.refused)

    def _state(self, stream: Stream) -> str:
        if stream.direction is Direction.OUT:
            trouble = self._out_trouble.text or self._watch.trouble
            return f"held back: {trouble}" if trouble else self._watch.doubt or "working"
        if stream not in self._followed:
            return "read by another hub"
        trouble = self._receiver.trouble or self._watch.trouble
        return f"stopped: {trouble}" if trouble else self._watch.doubt or "working"

    # --- topics

    async def delete_topics(self, tenant_id: int, tenant: str) -> bool:
        """Delete the topics of a tenant that is being deleted, unless they are somebody else's; False: Kafka does not answer, or refuses."""
        found: Sequence[Stream] = await self._run(
            "accounts.streams", accounts.of_tenant, self._accounts, tenant_id, tenant
        )
        topics = self._topics
        if not found:
            return True
        names = [name for stream in found for name in stream.topics(self._prefix)]
        if topics is None:
            self._log.warning(
                "topics of a deleted tenant not deleted: this hub has no Kafka; delete them by hand",
                tenant=tenant,
                topics=", ".join(names),
            )
            return True
        try:
            await self._run("housekeeping.topics", topics.delete, found)
        except NotOursError as error:
            self._log.warning(
                "topics of a deleted tenant not deleted: they belong to another installation; delete them by hand if nobody uses them",
                tenant=tenant,
                topics=", ".join(names),
                by_hand=topics.by_hand(names),
                error=str(error),
            )
        except IotHubError as error:
            self._log.warning("topics of a deleted tenant not deleted, will retry", tenant=tenant, error=str(error))
            return False
        return True

    # --- the end

    def stop_reading(self) -> None:
        """The hub is about to stop: nothing more comes in."""
        self._followed = ()
        self._watch.watch(is_needed=False)
        self.sources.follow(())

    def close(self, timeout_s: float) -> bool:
        """Write what is on its way, and end the threads. Blocks."""
        self._watch.close()
        is_closed = self._receiver.close(timeout_s / 2)
        return self.sink_store.close(timeout_s / 2) and is_closed


def of_direction(streams: Collection[Stream], direction: Direction) -> int:
    """Count the streams of one direction."""
    return sum(stream.direction is direction for stream in streams)


def _concerns(change: Change) -> bool:
    if change.kind is ChangeKind.ACL:
        return change.subject.startswith(_RULE)
    return change.kind in (ChangeKind.STREAM, ChangeKind.TENANT, ChangeKind.UNKNOWN)


def _weight(stream_id: int, node: int) -> bytes:
    return hashlib.sha256(f"{stream_id}/{node}".encode()).digest()
