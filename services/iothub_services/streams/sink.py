"""Streams out: a `Store` in front of the queues' writer, which takes what is for streams to Kafka before the rest goes to the queues.

Knows no Kafka client and no accounts. On the reactor thread.

Theory: a stream is a session of no client (`is_sink`), so the router finds it like any other. When Kafka has the message in every stream, the
queues and the retained store get it as usual, and only then the publisher its acknowledgement. After `give_up_s` the publish is given up by the
rule of the queues: 0x97 where nothing was sent to Kafka, else the connection ends without an answer. What was sent goes on, and counts for its
tenant until Kafka has answered.

Invariant: the bytes of a PUBLISH for streams count for its tenant, no longer for the worker. When a tenant has `tenant_bytes` in progress, only
its own publishers to streams are not read; otherwise one tenant's slow topic would stop every publisher of the hub.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.engine.outbox import StoredPublish, without_sinks
from iothub.engine.plane import Plane
from iothub.engine.ports import Store
from iothub.engine.state import Session
from iothub_services.streams.port import Answer, Headers, Outgoing, Stream, StreamSender
from iothub_services.streams.records import headers_of, size_of

RECORD_MOST_BYTES = (2 << 20) - 4096  # what our topics take, less a batch's own bytes
_LATE_S = 3.0  # a record without an answer for so long is worth an alarm

OnAlarm = Callable[[str], None]
"""Why nothing is taken by Kafka just now; "": it takes again."""
OnWritten = Callable[[BackendError | None], None]


@dataclass(frozen=True, slots=True)
class SinkLimits:
    """Bytes on their way to Kafka: of one tenant, of all; and for how long a publish is held."""

    tenant_bytes: int = 4 << 20
    bytes: int = 64 << 20
    give_up_s: float = 30.0


class Room:
    """What one tenant has in progress, and what all have."""

    __slots__ = ("_bounds", "_whole", "bytes")

    def __init__(self, bounds: SinkLimits, whole: Room | None = None) -> None:
        self.bytes = 0
        self._bounds = bounds
        self._whole = whole

    @property
    def is_full(self) -> bool:
        if self._whole is None:
            return self.bytes >= self._bounds.bytes
        return self.bytes >= self._bounds.tenant_bytes or self._whole.is_full

    def hold(self, size: int) -> None:
        self.bytes += size
        if self._whole is not None:
            self._whole.hold(size)


class Sink:
    """The `control` of a stream's session: where its messages go, and what has become of them."""

    __slots__ = ("bytes", "is_forgotten", "messages", "pending", "refused", "room", "stream", "topic")

    def __init__(self, stream: Stream, topic: str, room: Room) -> None:
        self.is_forgotten = False
        self.stream = stream
        self.topic = topic
        self.room = room
        self.messages = 0  # that Kafka has
        self.bytes = 0
        self.pending = 0
        self.refused = 0  # too large, or not taken by Kafka

    @property
    def is_full(self) -> bool:
        return self.room.is_full and not self.is_forgotten


class _Pending:
    """One publish on its way to streams. `records`: without an answer yet; `repeat`: the same QoS 2 PUBLISH at its client's next connection."""

    __slots__ = ("deadline", "is_given_up", "is_over", "is_written", "publish", "records", "repeat", "since")

    def __init__(self, publish: StoredPublish, since: float, deadline: float) -> None:
        self.publish = publish
        self.since = since
        self.deadline = deadline
        self.records: dict[Outgoing, Sink] = {}
        self.repeat: StoredPublish | None = None
        self.is_written = False
        self.is_over = False
        self.is_given_up = False

    @property
    def is_awaited(self) -> bool:
        """Whether a stream that is still there has not answered."""
        return any(not sink.is_forgotten for sink in self.records.values())


class SinkStore:
    """Fulfils `iothub.engine.ports.Store`.

    Invariants: a publish in `_order` counts for its tenant and not for the worker, unless it is over; each is answered once.
    """

    def __init__(
        self,
        store: Store,
        sender: StreamSender,
        clock: Clock,
        prefix: str,
        bounds: SinkLimits,
        on_alarm: OnAlarm,
        plane: Callable[[], Plane],
    ) -> None:
        """`plane`: the message plane, which is made above its store."""
        self._store = store
        self.queues = without_sinks(store)  # what the plane gives it directly
        self._sender = sender
        self._clock = clock
        self._prefix = prefix
        self._bounds = bounds
        self._on_alarm = on_alarm
        self._plane = plane
        self._order: deque[_Pending] = deque()
        self._whole = Room(bounds)
        self._rooms: dict[int, Room] = {}
        self._inbound: dict[tuple[Session | None, int], _Pending] = {}  # of persistent sessions, QoS 2
        self._unanswered = 0  # records of publishes that were given up
        self.messages = 0
        self.bytes = 0
        self.refused = 0
        self.given_up = 0
        self.read = store.read
        self.ack = store.ack
        self.release = store.release
        self.reserve = store.reserve
        self.finish_inbound = store.finish_inbound

    def start(self) -> None:
        """Let Kafka's answers come."""
        self._sender.start(self._answered)

    def close(self, timeout_s: float) -> bool:
        """Let go of Kafka. Blocks."""
        return self._sender.close(timeout_s)

    @property
    def pending(self) -> tuple[int, int]:
        """Publishes and bytes that Kafka has not acknowledged yet."""
        return sum(not each.is_over for each in self._order), self._whole.bytes

    def pending_bytes(self, tenant_id: int) -> int:
        room = self._rooms.get(tenant_id)
        return 0 if room is None else room.bytes

    def sink(self, stream: Stream) -> Sink:
        """Return where a stream's session gives its messages; all streams of a tenant share its bound."""
        room = self._rooms.setdefault(stream.tenant_id, Room(self._bounds, self._whole))
        return Sink(stream, stream.topic(self._prefix), room)

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, on_written: OnWritten
    ) -> None:
        """Write a record that is no device's message, and say when it is durable."""
        self._sender.send(Outgoing(on_written, topic, key, value, headers, len(value or b"")))

    def forget(self, sink: Sink) -> None:
        """End the wait for a stream that was deleted, or whose tenant stopped; else later messages would overtake on the way to the queues.

        Records that were sent are still written.
        """
        sink.is_forgotten = True
        freed = [each for each in self._order if not each.is_over and sink in each.records.values()]
        if freed:
            self._in_batch(lambda: self._end_unawaited(freed))

    def _end_unawaited(self, freed: Sequence[_Pending]) -> None:
        for pending in freed:
            if not pending.is_awaited:
                self._end(pending)

    # --- Store

    def append(self, publish: StoredPublish) -> None:
        if not publish.tenant.sinks:
            self._store.append(publish)
            return
        sinks = [target.session.control for target in publish.targets if target.session.is_sink]
        if not sinks:
            self._store.append(publish)
            return
        publish.targets = [target for target in publish.targets if not target.session.is_sink]
        under_way = self._inbound.get((publish.inbound, publish.packet_id))
        if under_way is None:
            self._send(publish, sinks)
        else:  # answered with the first one, which is in the topic once; an older repeat waits for nothing any more
            self._books(publish, -1)
            under_way.repeat = publish

    def _send(self, publish: StoredPublish, sinks: Sequence[Sink]) -> None:
        message, now = publish.message, self._clock.monotonic()
        publisher: Session | None = publish.publisher or message.publisher
        headers = headers_of(message, "" if publisher is None else publisher.device)
        size = size_of(message, headers)
        is_awaited = publish.slot is not None or (publish.on_done is not None and message.qos > 0)
        if size > RECORD_MOST_BYTES or (sinks[0].is_full and not is_awaited):
            self._refuse(publish, sinks)
            return
        key = message.publisher_client_id.encode("utf-8", "replace")
        pending = _Pending(publish, now, now + self._bounds.give_up_s)
        self._books(publish, -1)
        self._order.append(pending)
        if publish.inbound is not None:
            self._inbound[publish.inbound, publish.packet_id] = pending
        for sink in sinks:
            record = Outgoing(pending, sink.topic, key, message.payload, headers, size)
            pending.records[record] = sink
            sink.pending += 1
            sink.room.hold(size)
            self._sender.send(record)

    def _refuse(self, publish: StoredPublish, sinks: Sequence[Sink]) -> None:
        """Drop what no stream takes: too large for a record, or over the bound of its tenant with no acknowledgement to delay."""
        for sink in sinks:
            sink.refused += 1
            self.refused += 1
            self._plane().turn.drop(publish.tenant, publish.publisher, Drop.STREAM_REFUSED, 1)
        self._call_soon(lambda: self._pass_on(publish, is_taken=False))

    def _pass_on(self, publish: StoredPublish, *, is_taken: bool) -> None:
        """Pass it on to the queues and the retained store, once the streams have it or refused it for good. No receiver at all is a refusal."""
        if not is_taken and not publish.targets and not publish.has_direct and not publish.retain:
            publish.code = 0x97
        if publish.targets or publish.retain or publish.inbound is not None:
            self._store.append(publish)
        else:
            self._plane().stored(publish, ())

    # --- answers

    def _answered(self, answers: Sequence[Answer]) -> None:
        """All answers of one turn of the sender are one batch of the plane."""

        def answer_all() -> None:
            for record, error in answers:
                self._one_answered(record, error)

        self._in_batch(answer_all)

    def _one_answered(self, record: Outgoing, error: BackendError | None) -> None:
        pending = record.owner
        if not isinstance(pending, _Pending):
            cast("OnWritten", pending)(error)
            return
        sink = pending.records[record]
        self._off(pending, record)
        self._unanswered -= pending.is_given_up
        if error is None:
            pending.is_written = True
            sink.messages += 1
            sink.bytes += record.size_bytes
            self.messages += 1
            self.bytes += record.size_bytes
        else:  # Kafka will never take it
            sink.refused += 1
            self.refused += 1
            self._plane().turn.drop(pending.publish.tenant, pending.publish.publisher, Drop.STREAM_REFUSED, 1)
        if not pending.is_over and not pending.is_awaited:
            self._end(pending)

    def _off(self, pending: _Pending, record: Outgoing) -> None:
        sink = pending.records.pop(record)
        sink.pending -= 1
        sink.room.hold(-record.size_bytes)

    def _end(self, pending: _Pending) -> None:
        """The streams are done with it."""
        is_taken = pending.is_written or bool(pending.records)
        for publish in self._close(pending):
            self._pass_on(publish, is_taken=is_taken)

    def _close(self, pending: _Pending) -> list[StoredPublish]:
        """Return what is to be answered: the publish, and its repeat."""
        pending.is_over = True
        found = [each for each in (pending.publish, pending.repeat) if each is not None]
        for publish in found:
            self._books(publish, 1)
            self._inbound.pop((publish.inbound, publish.packet_id), None)
        while self._order and self._order[0].is_over:
            self._order.popleft()
        return found

    def check_waiting(self) -> None:
        """Give up what has waited too long, and say whether Kafka takes anything. Called several times a second."""
        now = self._clock.monotonic()
        late = [pending for pending in self._order if pending.deadline <= now and not pending.is_over]
        if late:
            self._in_batch(lambda: self._give_up_all(late))
        oldest = next((pending.since for pending in self._order if not pending.is_over), now)
        if now - oldest >= _LATE_S:
            count, size = self.pending
            trouble = self._sender.trouble or "no answer"
            self._on_alarm(f"{count} messages ({size} bytes) for streams are not acknowledged: {trouble}")
        elif not late and not self._unanswered:
            self._on_alarm("")

    def _give_up_all(self, late: Sequence[_Pending]) -> None:
        for pending in late:
            self._give_up(pending)

    def _give_up(self, pending: _Pending) -> None:
        """Take back what was not sent. What was sent may or may not be written."""
        for record in list(pending.records):
            if self._sender.give_up(record):
                self._off(pending, record)
            else:
                pending.is_written = True
        pending.is_given_up = True
        self._unanswered += len(pending.records)
        self.given_up += 1
        for publish in self._close(pending):
            self._plane().not_stored(publish, pending.is_written)

    # --- private

    def _books(self, publish: StoredPublish, sign: int) -> None:
        """Move a publish between the counts of its tenant and those of the worker, which bound the stored messages of all tenants."""
        turn = self._plane().turn
        turn.unstored_messages += sign
        turn.unstored_bytes += sign * publish.message.size

    def _call_soon(self, call: Callable[[], None]) -> None:
        """Never answer from inside the call that asked."""
        soon = self._plane().call_soon
        if soon is None:
            raise AssertionError("a plane without call_soon")
        soon(lambda: self._in_batch(call))

    def _in_batch(self, deliver: Callable[[], None]) -> None:
        plane = self._plane()
        was_open = plane.turn.is_open
        plane.turn.begin()
        try:
            deliver()
        finally:
            if not was_open:
                plane.end_batch()
