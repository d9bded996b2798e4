"""Reads the topics of streams to devices from Kafka, in a thread of its own: a page of one stream at a time, committed when it is dealt with.

Knows topics and offsets and no MQTT. Which hub reads which stream is decided elsewhere: the consumer is told its partitions and is in no group;
the group's name is only where offsets are kept, so that any Kafka tool shows the lag.

Theory: a stream whose page is out is paused, all others are read on, so that a tenant that may go slowly keeps up nobody else. A page that was
not dealt with when the hub died is read again: at least once.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from kafka import KafkaConsumer
from kafka.errors import KafkaError, OffsetOutOfRangeError
from kafka.structs import OffsetAndMetadata, TopicPartition

from iothub.errors import BackendError, IotHubError
from iothub_services.events.kafka_cluster import KafkaCluster
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.port import Incoming, OnPage, Stream

_WAIT_MS = 100
_PAGE_RECORDS = 500
_RETRY_S = 1.0
_LOOK_S = 5.0  # for partitions of topics that were not there


def group_of(prefix: str) -> str:
    """Return under which name the offsets of streams to devices are kept."""
    return f"{prefix}.streams"


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
        self._done: deque[tuple[int, Mapping[int, int]]] = deque()
        self._is_closing = False
        self._consumer: KafkaConsumer | None = None  # the thread's own
        self._followed: tuple[Stream, ...] = ()
        self._streams: dict[str, Stream] = {}  # by topic
        self._out: set[int] = set()  # streams whose page is not dealt with
        self._missing: set[int] = set()
        self._looked_at = 0.0
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self, on_page: OnPage) -> None:
        self._on_page = on_page
        self._thread = threading.Thread(target=self._run, name="streams-in", daemon=True)
        self._thread.start()

    def follow(self, streams: Sequence[Stream]) -> None:
        with self._condition:
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
            if is_closing:
                self._close_consumer()
                return

    def _turn(self, wanted: tuple[Stream, ...]) -> None:
        now = time.monotonic()
        if wanted != self._followed or (self._missing and now - self._looked_at > _LOOK_S):
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
        ids = {stream.id for stream in wanted}
        self._out &= ids
        if not wanted:
            self._close_consumer()
            self._streams, self._missing, self._followed = {}, set(), wanted
            return
        consumer = self._open()
        streams = {stream.topic(self._prefix): stream for stream in wanted}
        partitions = {topic: self._partitions(consumer, topic, stream) for topic, stream in streams.items()}
        self._missing = {streams[topic].id for topic, numbers in partitions.items() if not numbers}
        self._streams = {topic: stream for topic, stream in streams.items() if partitions[topic]}
        before = set(consumer.assignment())
        taken = [TopicPartition(topic, number) for topic, numbers in partitions.items() for number in numbers]
        consumer.assign(taken)
        for partition in taken:
            if partition not in before:
                self._seek(consumer, partition)
        consumer.pause(*(each for each in taken if self._streams[each.topic].id in self._out))
        self._followed = wanted

    def _partitions(self, consumer: KafkaConsumer, topic: str, stream: Stream) -> list[int]:
        found = consumer.partitions_for_topic(topic)
        if not found:
            self._make_topics(stream)
            found = consumer.partitions_for_topic(topic)
        return sorted(found or ())

    def _seek(self, consumer: KafkaConsumer, partition: TopicPartition) -> None:
        committed = consumer.committed(partition)
        if committed is None:
            consumer.seek_to_beginning(partition)
        else:
            consumer.seek(partition, committed)

    def _poll(self, consumer: KafkaConsumer) -> None:
        try:
            found = consumer.poll(timeout_ms=_WAIT_MS, max_records=_PAGE_RECORDS)
        except OffsetOutOfRangeError as error:  # retention was faster: what is gone is gone
            for partition in dict(error.args[0]):
                consumer.seek_to_beginning(partition)
            return
        self.trouble = ""
        pages: dict[int, list[Incoming]] = {}
        for partition, records in found.items():
            stream = self._streams[partition.topic]
            page = pages.setdefault(stream.id, [])
            page += [
                Incoming(
                    each.partition, each.offset, each.timestamp, each.key or b"", each.value or b"", tuple(each.headers)
                )
                for each in records
            ]
        for stream_id, page in pages.items():
            self._hand_over(consumer, stream_id, page)

    def _hand_over(self, consumer: KafkaConsumer, stream_id: int, page: list[Incoming]) -> None:
        self._out.add(stream_id)
        consumer.pause(*self._partitions_of(consumer, stream_id))
        on_page = self._on_page
        if on_page is not None:
            self._call_in_reactor(lambda: on_page(stream_id, page))

    def _commit(self) -> None:
        """What was dealt with is not read again, and its stream goes on."""
        with self._condition:
            done, self._done = list(self._done), deque()
        consumer = self._consumer
        for stream_id, upto in done:
            topic = next((name for name, stream in self._streams.items() if stream.id == stream_id), None)
            if topic is None or consumer is None:
                continue
            offsets = {
                TopicPartition(topic, partition): OffsetAndMetadata(offset, "", -1)
                for partition, offset in upto.items()
            }
            if offsets:
                consumer.commit(offsets, timeout_ms=int(self._cluster.settings.timeout_s * 1000))
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
        """Everything anew from what was committed, in a moment: pages that are out come once more."""
        told = self._cluster.error(error) if isinstance(error, KafkaError) else error
        self.trouble = str(told) or type(error).__name__
        self._close_consumer()
        self._followed, self._streams, self._out = (), {}, set()
        with self._condition:
            self._done.clear()
            if not self._is_closing:
                self._condition.wait(_RETRY_S)

    def _close_consumer(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            try:
                consumer.close(autocommit=False)
            except KafkaError as error:
                self.trouble = str(BackendError(str(error), retryable=True))
