"""Reads the topics of streams to devices from Kafka, in a thread of its own: a page of one stream at a time, committed when it is dealt with.

Knows topics and offsets and no MQTT. Which hub reads which stream is decided elsewhere: the consumer is assigned its partitions and joins no group;
the group's name only says where offsets are kept, so that any Kafka tool shows the lag.

Theory: a stream whose page is not dealt with is paused, all others are read, so that a slow tenant delays only itself; a topic that cannot be made
or read stops only its own stream. What was handed over is not read again while this hub reads the stream, whatever happens to the consumer; a page
that was not dealt with when the hub died is read again: at least once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from kafka import KafkaConsumer
from kafka.errors import KafkaError, OffsetOutOfRangeError, TopicAuthorizationFailedError
from kafka.structs import OffsetAndMetadata, TopicPartition

from iothub.base import log as logging
from iothub.base.errors import BackendError, IotHubError
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.port import Incoming, OnPage, Stream

_WAIT_MS = 100
_PAGE_RECORDS = 500
_RETRY_S = 1.0
_LOOK_S = 5.0  # for partitions of topics that were not there

log = logging.get(__name__)


def group_of(prefix: str) -> str:
    """Return under which name the offsets of streams to devices are kept."""
    return f"{prefix}.streams"


def incoming(record: Any) -> Incoming:
    """Return a record of the library as ours. In Kafka a header's value may be null: it is empty here."""
    headers = tuple((name, value or b"") for name, value in record.headers)
    return Incoming(record.partition, record.offset, record.timestamp, record.key, record.value, headers)


class KafkaReceiver:
    """Fulfils `StreamReceiver`. `trouble`: what was wrong last, "" while nothing is."""

    def __init__(
        self, cluster: KafkaCluster, call_in_reactor: CallInReactor, make_topics: Callable[[Stream], None]
    ) -> None:
        self._cluster = cluster
        self._prefix = cluster.settings.topic_prefix
        self._call_in_reactor = call_in_reactor
        self._make_topics = make_topics
        self._on_page: OnPage | None = None
        self._condition = threading.Condition()
        self._wanted: tuple[Stream, ...] = ()  # this and what follows: under the condition
        self._left: set[int] = set()  # streams that were left in between: their pages do not count
        self._done: deque[tuple[int, Mapping[int, int]]] = deque()
        self._is_closing = False
        self._consumer: KafkaConsumer | None = None  # the thread's own
        self._followed: tuple[Stream, ...] = ()
        self._streams: dict[str, Stream] = {}  # by topic
        self._out: set[int] = set()  # streams whose page is not dealt with
        self._places: dict[int, dict[int, int]] = {}  # by stream: how far each partition was handed over
        self._missing: set[int] = set()
        self._why_missing = ""
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self, on_page: OnPage) -> None:
        self._on_page = on_page
        self._thread = threading.Thread(target=self._run, name="streams-in", daemon=True)
        self._thread.start()

    def follow(self, streams: Sequence[Stream]) -> None:
        with self._condition:
            self._left |= {stream.id for stream in self._wanted} - {stream.id for stream in streams}
            self._wanted = tuple(streams)
            self._condition.notify()

    def done(self, stream_id: int, upto: Mapping[int, int]) -> None:
        with self._condition:
            self._done.append((stream_id, upto))
            self._condition.notify()

    def close(self, timeout_s: float) -> bool:
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if self._thread is None:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    # --- the thread

    def _run(self) -> None:
        while True:
            with self._condition:
                if not self._wanted and not self._followed and not self._done and not self._is_closing:
                    self._condition.wait(_RETRY_S)
                wanted, is_closing = self._wanted, self._is_closing
            try:
                self._turn(wanted)
            except (KafkaError, IotHubError, AssertionError) as error:
                self._begin_again(error)
            except Exception as error:  # the edge of this thread: without it no stream would ever be read again
                log.error("defect in the receiver of streams", exc_info=error)
                self._begin_again(error)
            if is_closing:
                self._close_consumer()
                return

    def _turn(self, wanted: tuple[Stream, ...]) -> None:
        now = time.monotonic()
        if wanted != self._followed or self._left or (self._missing and now - self._looked_at > _LOOK_S):
            self._looked_at = now
            self._assign(wanted)
        self._commit()
        if self._streams and self._consumer is not None:
            self._poll(self._consumer)
        else:
            with self._condition:
                if not self._done and self._wanted == self._followed and not self._is_closing:
                    self._condition.wait(_RETRY_S)

    def _assign(self, wanted: tuple[Stream, ...]) -> None:
        """Take the partitions of all topics that are there; the others are made, and looked for again."""
        with self._condition:
            left, self._left = self._left, set()
        for stream_id in left:
            self._forget(stream_id)
        self._missing, self._why_missing = set(), ""
        if not wanted:
            self._close_consumer()
            self._streams, self._followed = {}, wanted
            return
        consumer = self._open()
        before = {(each, self._streams[each.topic].id) for each in consumer.assignment()}
        before = {(each, stream_id) for each, stream_id in before if stream_id not in left}
        partitions = {stream: self._partitions(consumer, stream) for stream in wanted}
        self._streams = {stream.topic(self._prefix): stream for stream, taken in partitions.items() if taken}
        self._missing = {stream.id for stream, taken in partitions.items() if not taken}
        consumer.assign([each for taken in partitions.values() for each in taken])
        for stream, taken in partitions.items():
            self._begin(consumer, stream, [each for each in taken if (each, stream.id) not in before])
        for stream in list(self._streams.values()):
            let = consumer.pause if stream.id in self._out else consumer.resume
            let(*self._partitions_of(consumer, stream.id))
        self._followed = wanted

    def _forget(self, stream_id: int) -> None:
        """Forget what was handed over: if this hub reads the stream again, it starts from the committed offsets."""
        self._out.discard(stream_id)
        self._places.pop(stream_id, None)

    def _partitions(self, consumer: KafkaConsumer, stream: Stream) -> list[TopicPartition]:
        topic = stream.topic(self._prefix)
        found = consumer.partitions_for_topic(topic)
        if not found:
            try:
                self._make_topics(stream)
            except IotHubError as error:  # of this topic only
                self._why_missing = str(error)
                return []
            found = consumer.partitions_for_topic(topic)
        return [TopicPartition(topic, number) for number in sorted(found or ())]

    def _begin(self, consumer: KafkaConsumer, stream: Stream, partitions: Sequence[TopicPartition]) -> None:
        try:
            for partition in partitions:
                self._seek(consumer, partition, self._places.get(stream.id, {}).get(partition.partition))
        except TopicAuthorizationFailedError as error:
            self._leave_out(consumer, [stream.topic(self._prefix)], error)

    def _seek(self, consumer: KafkaConsumer, partition: TopicPartition, place: int | None) -> None:
        found = consumer.committed(partition) if place is None else place
        if found is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, found)

    def _leave_out(self, consumer: KafkaConsumer, topics: Collection[str], error: KafkaError) -> None:
        """Read the others; these are tried again at the next look."""
        self._why_missing = str(self._cluster.error(error))
        for stream in [self._streams.pop(topic) for topic in topics if topic in self._streams]:
            self._missing.add(stream.id)
            self._forget(stream.id)
        consumer.assign([each for each in consumer.assignment() if each.topic in self._streams])

    def _poll(self, consumer: KafkaConsumer) -> None:
        try:
            found = consumer.poll(timeout_ms=_WAIT_MS, max_records=_PAGE_RECORDS)
        except OffsetOutOfRangeError as error:  # retention was faster: what is gone is gone
            for partition, offset in dict(error.args[0]).items():
                log.warning("Kafka deleted records before the stream read them", topic=partition.topic, offset=offset)
                consumer.seek_to_beginning(partition)
            return
        except TopicAuthorizationFailedError as error:
            self._leave_out(consumer, error.args[0], error)
            return
        self.trouble = self._why_missing
        pages: dict[int, list[Incoming]] = {}
        for partition, records in found.items():
            stream = self._streams[partition.topic]
            page = pages.setdefault(stream.id, [])
            page += map(incoming, records)
        for stream_id, page in pages.items():
            self._hand_over(consumer, stream_id, page)

    def _hand_over(self, consumer: KafkaConsumer, stream_id: int, page: list[Incoming]) -> None:
        self._out.add(stream_id)
        self._places.setdefault(stream_id, {}).update({each.partition: each.offset + 1 for each in page})
        consumer.pause(*self._partitions_of(consumer, stream_id))
        on_page = self._on_page
        if on_page is not None:
            self._call_in_reactor(lambda: on_page(stream_id, page))

    def _commit(self) -> None:
        """Commit what was dealt with, and resume its stream. A commit that fails is repeated at the next turn."""
        while (consumer := self._consumer) is not None:
            with self._condition:
                if not self._done:
                    return
                stream_id, upto = self._done[0]
            topic = next((name for name, stream in self._streams.items() if stream.id == stream_id), None)
            if topic is not None and upto:
                offsets = {TopicPartition(topic, number): OffsetAndMetadata(at, "", -1) for number, at in upto.items()}
                try:
                    consumer.commit(offsets, timeout_ms=int(self._cluster.settings.timeout_s * 1000))
                except TopicAuthorizationFailedError as error:
                    self._leave_out(consumer, [topic], error)
                    continue
                except KafkaError:
                    with self._condition:
                        self._done.rotate(-1)  # others first
                    raise
            with self._condition:
                self._done.popleft()
            self._out.discard(stream_id)
            consumer.resume(*self._partitions_of(consumer, stream_id))

    def _partitions_of(self, consumer: KafkaConsumer, stream_id: int) -> list[TopicPartition]:
        return [each for each in consumer.assignment() if self._streams[each.topic].id == stream_id]

    def _open(self) -> KafkaConsumer:
        if self._consumer is None:
            with self._cluster.errors_translated():
                self._consumer = self._cluster.consumer(_WAIT_MS, group=group_of(self._prefix))
        return self._consumer

    def _begin_again(self, error: BaseException) -> None:
        """Start again in a moment with a new consumer, after what was handed over."""
        failure = self._cluster.error(error) if isinstance(error, KafkaError) else error
        self.trouble = str(failure) or type(error).__name__
        self._close_consumer()
        self._followed, self._streams = (), {}
        with self._condition:
            if not self._is_closing:
                self._condition.wait(_RETRY_S)

    def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False)
            except KafkaError as error:
                self.trouble = str(BackendError(str(error), retryable=True))
