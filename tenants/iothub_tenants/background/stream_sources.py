"""Streams in: records that applications wrote become PUBLISHes to a tenant's devices, under its rules, limits and rates.

Knows no Kafka client: pages come from a `StreamReceiver`, and are committed when every message of theirs is durable wherever it goes.

Theory: a page is worked through in order; a rate makes it wait, and nothing is dropped for it. What can never be published - a malformed record,
a topic outside the stream's filter, no right, too large - is written to the stream's topic for refused records, with the reason, and counted.
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
from iothub_services.streams.records import TOPIC_INVALID, RefusedRecordError, Wish, headers_refused, wish_of
from iothub_tenants.broker.allowance import LARGEST_PACKET
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub, Rights
from iothub_tenants.broker.streams import StreamBook

SLICE = 50  # records before others get their turn
_PAUSE_S = 0.1
_RETRY_S = 1.0
_SPENT_S = 10.0  # between two looks at a calendar window that is used up
_OVERLOADED = 2  # from this level publishers pause
_TOLD_S = 60.0  # a stream that refuses is told of once in this time

log = logging.get(__name__)

_Gauge = tuple[Any, int]


class Aside(Protocol):
    """Where records are written that could not be published."""

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, on_written: Callable[[Any], None]
    ) -> None: ...


@dataclass(slots=True)
class Course:
    """One stream's pages. `awaited`: messages of the present page that are not durable yet."""

    stream_id: int
    pages: deque[Sequence[Incoming]] = field(default_factory=deque)
    at: int = 0
    passed: int = 0  # meters that have let the record at `at` through
    awaited: int = 0
    is_waiting: bool = False
    messages: int = 0
    bytes: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    told_at: float = -_TOLD_S


@dataclass(slots=True)
class _Place:
    """What a page is published with."""

    stream: Stream
    broker: TenantBroker
    rights: Rights


class Inlets:
    """On the reactor thread. Invariant: a page is reported to the receiver once, and no page of a stream overtakes another."""

    def __init__(self, hub: Hub, book: StreamBook, receiver: StreamReceiver, aside: Aside, prefix: str) -> None:
        self._hub = hub
        self._book = book
        self._receiver = receiver
        self._aside = aside
        self._prefix = prefix
        self._courses: dict[int, Course] = {}
        self._followed: set[int] = set()
        self.messages = 0
        self.bytes = 0
        self.refused = 0

    def start(self) -> None:
        self._receiver.start(self._take)

    def follow(self, streams: Sequence[Stream]) -> None:
        """Read these, here; no others."""
        self._followed = {stream.id for stream in streams}
        for stream_id in set(self._courses) - self._followed:
            del self._courses[stream_id]
        self._receiver.follow(streams)

    def course(self, stream_id: int) -> Course | None:
        return self._courses.get(stream_id)

    def _take(self, stream_id: int, page: Sequence[Incoming]) -> None:
        if stream_id not in self._followed:
            return  # it was on its way here when another hub took over
        course = self._courses.setdefault(stream_id, Course(stream_id))
        if course.pages:  # the receiver began again: what is under way here comes once more
            reached = _reached(course.pages[-1])
            page = [record for record in page if record.offset >= reached.get(record.partition, 0)]
        course.pages.append(page)
        if len(course.pages) == 1:
            self._go_on(course)

    def _go_on(self, course: Course) -> None:
        if course.is_waiting or self._courses.get(course.stream_id) is not course:
            return
        course.is_waiting = True
        Deferred.fromCoroutine(self._work(course)).addErrback(self._failed, course)

    def _failed(self, failure: Failure, course: Course) -> None:
        """The accounts do not answer, or a defect: the page stays, and is tried again."""
        if not isinstance(failure.value, IotHubError):
            log.error("defect in a stream to devices", exc_info=failure.value)
        course.is_waiting = False
        self._later(course, _RETRY_S)

    def _later(self, course: Course, seconds: float) -> None:
        course.is_waiting = True

        def again() -> None:
            course.is_waiting = False
            self._go_on(course)

        self._hub.later(seconds, again)

    async def _work(self, course: Course) -> None:
        """Publish what is left of the page, as far as it may go now."""
        place = await self._place(course.stream_id)
        course.is_waiting = False
        if place is None:
            self._later(course, _RETRY_S)
            return
        if not course.pages:
            return
        page = course.pages[0]
        for _ in range(SLICE):
            if course.at >= len(page):
                self._finish(course)
                return
            wait_s = self._one(course, place, page[course.at])
            if wait_s:
                self._later(course, wait_s)
                return
            course.at += 1
            course.passed = 0
        self._later(course, 0.0)

    async def _place(self, stream_id: int) -> _Place | None:
        """Return what is needed now; None: the stream has gone, or its tenant is stopped."""
        hub, stream = self._hub, self._book.get(stream_id)
        if stream is None:
            return None
        record = await hub.authenticator.directory.tenant(stream.tenant)
        if record is None or record.id != stream.tenant_id or record.state is not TenantState.ACTIVE:
            return None
        return _Place(stream, await hub.brokers.broker(record), self._rights(record, stream))

    def _rights(self, record: TenantRecord, stream: Stream) -> Rights:
        """A stream is judged like a device of the name `stream:NAME`."""
        device = DeviceRecord(stream.subject, "", rules=stream.rules)
        policy = self._hub.policies.policy(record, device, stream.subject)
        if self._hub.hooks.authorise is None:
            return policy
        client = Client(record.name, stream.subject, stream.subject)
        return HookedPolicy(policy, self._hub.hooks.authorise, client)

    # --- one record

    def _one(self, course: Course, place: _Place, record: Incoming) -> float:
        """Publish a record or put it aside; or return for how long it has to wait."""
        turn = self._hub.plane.turn
        if turn.is_held() or turn.is_store_full() or turn.overload_level() >= _OVERLOADED:
            return _PAUSE_S
        try:
            wish = wish_of(record)
        except RefusedRecordError as error:
            self._refuse(course, place.stream, record, error.reason, str(error))
            return 0.0
        fault = self._fault(place, wish)
        if fault:
            self._refuse(course, place.stream, record, fault, f"topic of {len(wish.topic)} bytes")
            return 0.0
        wait_s = self._meters(course, place.broker, wish)
        if not wait_s:
            self._publish(course, place, record, wish)
        return wait_s

    def _fault(self, place: _Place, wish: Wish) -> str:
        """Name why it can never be published; "": it can."""
        broker = place.broker
        if not topic_matches(place.stream.filter.encode(), wish.topic):
            return "not_in_filter"
        if broker.check_topic(wish.topic):
            return TOPIC_INVALID
        if _size(wish) > (broker.limits.packet_bytes or LARGEST_PACKET):
            return "too_large"
        if not place.rights.may_publish(wish.topic):
            self._hub.counters.denied(broker.tenant_id, "publish")
            return "denied"
        return ""

    def _meters(self, course: Course, broker: TenantBroker, wish: Wish) -> float:
        """What has let a record pass is not asked again; the allowances of a day come last."""
        plane, size, now = broker.plane, _size(wish), self._hub.clock.monotonic()
        gauges: tuple[_Gauge, ...] = (
            (plane.inbound_messages, 1),
            (plane.inbound_bytes, size),
            (plane.sink_messages, 1),
            (plane.sink_bytes, size),
            (plane.day_messages, 1),
            (plane.day_bytes, size),
        )
        for meter, units in gauges[course.passed :]:
            wait_s: float = 0.0 if meter is None else meter.take(units, now)
            if wait_s:
                return wait_s if wait_s > 0.0 else _SPENT_S
            course.passed += 1
        return 0.0

    def _publish(self, course: Course, place: _Place, record: Incoming, wish: Wish) -> None:
        stream = place.stream
        course.awaited += 1
        self.messages += 1
        self.bytes += _size(wish)
        course.messages += 1
        course.bytes += _size(wish)
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
        self._send(course, place, message)

    def _send(self, course: Course, place: _Place, message: Message) -> None:
        """Until it is durable: a store that gave up is asked again. A limit that says no - a full queue, retained messages - says so at once."""

        def done(code: int) -> None:
            if code == GAVE_UP:
                self._hub.later(_RETRY_S, lambda: self._send(course, place, message))
                return
            self._done(course)

        self._hub.plane.publish(place.broker.plane, message, done)

    def _done(self, course: Course) -> None:
        course.awaited -= 1
        self._finish(course)

    def _finish(self, course: Course) -> None:
        """Report the page when all of it is dealt with, and begin the next one."""
        if self._courses.get(course.stream_id) is not course or not course.pages:
            return
        page = course.pages[0]
        if course.awaited or course.at < len(page):
            return
        course.pages.popleft()
        course.at = course.passed = 0
        self._receiver.done(course.stream_id, _reached(page))
        if course.pages:
            self._go_on(course)

    def _refuse(self, course: Course, stream: Stream, record: Incoming, reason: str, detail: str) -> None:
        """Count it, tell of it now and then, and keep it where its application finds it."""
        self.refused += 1
        course.refused[reason] = course.refused.get(reason, 0) + 1
        now = self._hub.clock.monotonic()
        if now - course.told_at >= _TOLD_S:
            course.told_at = now
            log.warning(
                "records of a stream are refused",
                tenant=stream.tenant,
                stream=stream.name,
                reason=reason,
                detail=detail,
                partition=record.partition,
                offset=record.offset,
            )
        course.awaited += 1
        topic = stream.topic(self._prefix)
        headers = headers_refused(record, topic, reason)
        self._aside.write(refused_topic(topic), record.key, record.value, headers, lambda _error: self._done(course))


def _reached(page: Sequence[Incoming]) -> Mapping[int, int]:
    """Return, by partition, the offset behind the page."""
    return {record.partition: record.offset + 1 for record in page}


def _size(wish: Wish) -> int:
    return len(wish.topic) + len(wish.payload) + len(wish.properties)


def _message_id(stream: Stream, record: Incoming) -> bytes:
    """The same for the same record, so that queues know a QoS 2 message that comes again; in the order of time, like others."""
    place = f"{stream.id}/{record.partition}/{record.offset}".encode()
    micros = max(record.timestamp_ms, 0) * 1000
    return micros.to_bytes(8, "big") + hashlib.sha256(place).digest()[:8]
