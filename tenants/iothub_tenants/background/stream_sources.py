"""Publishes the records that applications wrote to a stream as PUBLISHes to a tenant's devices, under its rules, limits and rates.

Knows no Kafka client: pages come from a `StreamReceiver`, and are committed when all their messages are durable in every queue.

Theory: a page is handled in order; a rate makes it wait, and drops nothing. A record that can never be published - malformed, with a topic
outside the stream's filter, without the right, too large - is written to the stream's topic for refused records, with the reason, and counted.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base import log as logging
from iothub.base.errors import IotHubError
from iothub.engine.filters import topic_matches
from iothub.engine.message import Message
from iothub.engine.storage import GAVE_UP
from iothub.hooks import Client, HookedPolicy
from iothub_services.auth.port import DeviceRecord, TenantRecord, TenantState
from iothub_services.streams.port import Headers, Incoming, Stream, StreamReceiver, refused_topic
from iothub_services.streams.records import TOPIC_INVALID, PublishRequest, RefusedRecordError, headers_refused, wish_of
from iothub_tenants.broker.allowance import LARGEST_PACKET
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub, Rights
from iothub_tenants.broker.peer_routes import until_opened
from iothub_tenants.broker.streams import StreamRegistry

SLICE = 50  # records handled before the reactor runs other work
_PAUSE_S = 0.1
_RETRY_S = 1.0
_SPENT_S = 10.0  # between two checks of a calendar window that is used up
_LOG_INTERVAL_S = 60.0  # at most one log line per stream about refused records

log = logging.get(__name__)

_Gauge = tuple[Any, int]


class RefusedRecords(Protocol):
    """Writes the records that could not be published."""

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, on_written: Callable[[Any], None]
    ) -> None: ...


@dataclass(slots=True)
class StreamProgress:
    """The pages of one stream. `awaited`: messages of the current page that are not durable yet."""

    stream_id: int
    pages: deque[Sequence[Incoming]] = field(default_factory=deque)
    at: int = 0
    passed: int = 0  # meters that have let the record at `at` through
    awaited: int = 0
    is_waiting: bool = False
    messages: int = 0
    bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    logged_at: float = -_LOG_INTERVAL_S


@dataclass(slots=True)
class _Target:
    """What a page is published to, and with which rights."""

    stream: Stream
    broker: TenantBroker
    rights: Rights


class StreamSources:
    """On the reactor thread. Invariant: every page is reported to the receiver once, and the pages of a stream keep their order."""

    def __init__(
        self, hub: Hub, registry: StreamRegistry, receiver: StreamReceiver, refused_records: RefusedRecords, prefix: str
    ) -> None:
        self._hub = hub
        self._registry = registry
        self._receiver = receiver
        self._refused_records = refused_records
        self._prefix = prefix
        self._progress: dict[int, StreamProgress] = {}  # by stream
        self._followed: set[int] = set()
        self.messages = 0
        self.bytes = 0
        self.refused = 0

    def start(self) -> None:
        self._receiver.start(self._take_page)

    def follow(self, streams: Sequence[Stream]) -> None:
        """Read these streams at this hub, and no others."""
        self._followed = {stream.id for stream in streams}
        for stream_id in set(self._progress) - self._followed:
            del self._progress[stream_id]
        self._receiver.follow(streams)

    def progress(self, stream_id: int) -> StreamProgress | None:
        return self._progress.get(stream_id)

    def _take_page(self, stream_id: int, page: Sequence[Incoming]) -> None:
        if stream_id not in self._followed:
            return  # it was on its way here when another hub took the stream over
        progress = self._progress.setdefault(stream_id, StreamProgress(stream_id))
        if progress.pages:  # the receiver started again: records in progress here come once more
            reached = _reached(progress.pages[-1])
            page = [record for record in page if record.offset >= reached.get(record.partition, 0)]
        progress.pages.append(page)
        if len(progress.pages) == 1:
            self._start_work(progress)

    def _start_work(self, progress: StreamProgress) -> None:
        if progress.is_waiting or self._progress.get(progress.stream_id) is not progress:
            return
        progress.is_waiting = True
        Deferred.fromCoroutine(self._work(progress)).addErrback(self._failed, progress)

    def _failed(self, failure: Failure, progress: StreamProgress) -> None:
        """The accounts do not answer, or there is a defect: the page stays, and is tried again."""
        if not isinstance(failure.value, IotHubError):
            log.error("defect in a stream to devices", exc_info=failure.value)
        progress.is_waiting = False
        self._work_later(progress, _RETRY_S)

    def _work_later(self, progress: StreamProgress, seconds: float) -> None:
        progress.is_waiting = True

        def again() -> None:
            progress.is_waiting = False
            self._start_work(progress)

        self._hub.later(seconds, again)

    async def _work(self, progress: StreamProgress) -> None:
        """Publish the rest of the page, as far as the meters allow now."""
        target = await self._target(progress.stream_id)
        progress.is_waiting = False
        if target is None:
            self._work_later(progress, _RETRY_S)
            return
        if not progress.pages:
            return
        page = progress.pages[0]
        for _ in range(SLICE):
            if progress.at >= len(page):
                self._finish(progress)
                return
            wait_s = self._handle_record(progress, target, page[progress.at])
            if wait_s:
                self._work_later(progress, wait_s)
                return
            progress.at += 1
            progress.passed = 0
        self._work_later(progress, 0.0)

    async def _target(self, stream_id: int) -> _Target | None:
        """Return what the stream is published to now; None: the stream was deleted, or its tenant is not active."""
        hub, stream = self._hub, self._registry.get(stream_id)
        if stream is None:
            return None
        record = await hub.authenticator.directory.tenant(stream.tenant)
        if record is None or record.id != stream.tenant_id or record.state is not TenantState.ACTIVE:
            return None
        broker = await hub.brokers.broker(record)
        await until_opened(hub.routes, broker.plane)
        return _Target(stream, broker, self._rights(record, stream))

    def _rights(self, record: TenantRecord, stream: Stream) -> Rights:
        """Return the rights of a stream: those of a device with the name `stream:NAME`."""
        device = DeviceRecord(stream.subject, "", rules=stream.rules)
        policy = self._hub.policies.policy(record, device, stream.subject)
        if self._hub.hooks.authorise is None:
            return policy
        client = Client(record.name, stream.subject, stream.subject)
        return HookedPolicy(policy, self._hub.hooks.authorise, client)

    # --- one record

    def _handle_record(self, progress: StreamProgress, target: _Target, record: Incoming) -> float:
        """Publish or refuse a record and return 0, or return how many seconds it has to wait."""
        if self._hub.must_wait(target.broker.plane):
            return _PAUSE_S
        try:
            wish = wish_of(record)
        except RefusedRecordError as error:
            self._refuse(progress, target.stream, record, error.reason, str(error))
            return 0.0
        fault = self._fault(target, wish)
        if fault:
            self._refuse(progress, target.stream, record, fault, f"topic of {len(wish.topic)} bytes")
            return 0.0
        wait_s = self._take_units(progress, target.broker, wish)
        if not wait_s:
            self._publish(progress, target, record, wish)
        return wait_s

    def _fault(self, target: _Target, wish: PublishRequest) -> str:
        """Return the reason why it can never be published, "" if it can."""
        broker = target.broker
        if not topic_matches(target.stream.filter.encode(), wish.topic):
            return "not_in_filter"
        if broker.check_topic(wish.topic):
            return TOPIC_INVALID
        if _size(wish) > (broker.limits.packet_bytes or LARGEST_PACKET):
            return "too_large"
        if not target.rights.may_publish(wish.topic):
            self._hub.counters.denied(broker.tenant_id, "publish")
            return "denied"
        return ""

    def _take_units(self, progress: StreamProgress, broker: TenantBroker, wish: PublishRequest) -> float:
        """Take units of each meter that has not let the record pass yet; the daily ones last, as a rate may still refuse."""
        plane, size, now = broker.plane, _size(wish), self._hub.clock.monotonic()
        gauges: tuple[_Gauge, ...] = (
            (plane.inbound_messages, 1),
            (plane.inbound_bytes, size),
            (plane.sink_messages, 1),
            (plane.sink_bytes, size),
            (plane.day_messages, 1),
            (plane.day_bytes, size),
        )
        for meter, units in gauges[progress.passed :]:
            wait_s: float = 0.0 if meter is None else meter.take(units, now)
            if wait_s:
                return wait_s if wait_s > 0.0 else _SPENT_S
            progress.passed += 1
        return 0.0

    def _publish(self, progress: StreamProgress, target: _Target, record: Incoming, wish: PublishRequest) -> None:
        stream = target.stream
        progress.awaited += 1
        self.messages += 1
        self.bytes += _size(wish)
        progress.messages += 1
        progress.bytes += _size(wish)
        expires_at = 0.0 if wish.expiry_s is None else self._hub.clock.wall() + wish.expiry_s
        message_id = _message_id(stream, record)
        message = Message(
            wish.topic,
            wish.payload,
            wish.qos,
            wish.retain,
            wish.properties,
            expires_at,
            message_id,
            None,
            stream.subject,
        )
        self._publish_durably(progress, target, message)

    def _publish_durably(self, progress: StreamProgress, target: _Target, message: Message) -> None:
        """Publish until the message is durable: again after the store gave up, not after a limit refused it (full queue, retained messages)."""
        plane, tenant = self._hub.plane, target.broker.plane
        if plane.turn.is_held(tenant):  # since the store gave up
            self._hub.later(_PAUSE_S, lambda: self._publish_durably(progress, target, message))
            return

        def done(code: int) -> None:
            if code == GAVE_UP:
                self._hub.later(_RETRY_S, lambda: self._publish_durably(progress, target, message))
                return
            self._done(progress)

        plane.publish(tenant, message, done)

    def _done(self, progress: StreamProgress) -> None:
        progress.awaited -= 1
        self._finish(progress)

    def _finish(self, progress: StreamProgress) -> None:
        """Report the page when all its records are done, and begin the next one."""
        if self._progress.get(progress.stream_id) is not progress or not progress.pages:
            return
        page = progress.pages[0]
        if progress.awaited or progress.at < len(page):
            return
        progress.pages.popleft()
        progress.at = progress.passed = 0
        self._receiver.done(progress.stream_id, _reached(page))
        if progress.pages:
            self._start_work(progress)

    def _refuse(self, progress: StreamProgress, stream: Stream, record: Incoming, reason: str, detail: str) -> None:
        """Count a refused record, log it now and then, and write it where its application finds it."""
        self.refused += 1
        progress.refused[reason] = progress.refused.get(reason, 0) + 1
        now = self._hub.clock.monotonic()
        if now - progress.logged_at >= _LOG_INTERVAL_S:
            progress.logged_at = now
            log.warning(
                "stream records refused",
                tenant=stream.tenant,
                stream=stream.name,
                reason=reason,
                detail=detail,
                partition=record.partition,
                offset=record.offset,
            )
        progress.awaited += 1
        topic = stream.topic(self._prefix)
        headers = headers_refused(record, topic, reason)
        self._refused_records.write(
            refused_topic(topic), record.key, record.value, headers, lambda _error: self._done(progress)
        )


def _reached(page: Sequence[Incoming]) -> Mapping[int, int]:
    """Return, by partition, the offset after the page."""
    return {record.partition: record.offset + 1 for record in page}


def _size(wish: PublishRequest) -> int:
    return len(wish.topic) + len(wish.payload) + len(wish.properties)


def _message_id(stream: Stream, record: Incoming) -> bytes:
    """Return the same id for the same record, so that queues recognise a repeated QoS 2 message; ids are in order of time."""
    origin = f"{stream.id}/{record.partition}/{record.offset}".encode()
    micros = max(record.timestamp_ms, 0) * 1000
    return micros.to_bytes(8, "big") + hashlib.sha256(origin).digest()[:8]
