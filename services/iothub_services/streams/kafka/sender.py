"""Takes records of streams to Kafka, in a thread of its own: each once and in the order of its key, however long Kafka is away.

Knows topics as names and records as bytes; knows no stream and no MQTT.

Theory: each partition of a topic has a queue (`queues`). One batch of a partition is under way; what comes meanwhile is the next batch, so batches
grow with the load. A record that is in no batch yet can be taken back (`give_up`). The producer's own thread sends, repeats and keeps the order; it
gets a batch only when its topic is known, so that a missing topic delays no other one. A topic that is missing is made again if a stream needs it;
otherwise its records count as written. Records that the producer has for a deleted topic stay there, and would delay those for a new topic of that
name: when the producer has nothing else, it is replaced, so that nothing is sent twice (`_emptied`). Records that fail for a reason that may pass go
back to the head of their queue, and to another producer if this one may have lost count; then a record may be in the topic twice, with the same
message id.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import chain

from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError
from kafka.structs import TopicPartition

from iothub.base import log as logging
from iothub.base.clock import SystemClock
from iothub.base.errors import BackendError, IotHubError
from iothub_services.events.kafka.cluster import REQUEST_BYTES, KafkaCluster
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.kafka.batch import Batch, Errors, give, key_hash
from iothub_services.streams.port import Answer, OnAnswers, Outgoing

_LINGER_MS = 0  # a batch is complete when it is given
_RETRY_S = 1.0
_BATCH_RECORDS = 4_096
_BATCH_BYTES = REQUEST_BYTES // 8
_CLOSE_S = 1.0
_EMPTYING_S = 60.0  # how often the producer is emptied, so that one with records of a deleted topic can be replaced
_EMPTYING_SHARE_S = 1.0
_GONE_S = 5.0  # how long a new topic waits at most for a producer that has records of the old one
_OF_THE_TOPIC = (TopicAuthorizationFailedError, UnknownTopicOrPartitionError)  # the producer is as good as before

log = logging.get(__name__)

MakeTopic = Callable[[str], bool]
"""Make a topic unless it is there; False: nobody wants it any more. Blocks; raises IotHubError."""


class _Topic:
    """What is known of one topic.

    `new`: not assigned to a partition yet; `queues`: by partition, what waits, oldest first; `given`: by partition, what has no answer yet.
    """

    __slots__ = ("failed_at", "given", "new", "queues", "topic_id", "tried_at")

    def __init__(self) -> None:
        self.new: deque[Outgoing] = deque()
        self.queues: dict[int, deque[Outgoing]] = {}
        self.given: dict[int, Batch] = {}
        self.tried_at = -_RETRY_S
        self.failed_at = -_RETRY_S
        self.topic_id: object = None  # a topic that was deleted and made again has another one

    @property
    def is_waiting(self) -> bool:
        return bool(self.new) or any(self.queues.values())

    @property
    def waiting(self) -> Iterator[Outgoing]:
        """Return what waits, in the order of each key: all records of a key are in one partition."""
        return chain(*self.queues.values(), self.new)

    def drop_given_up(self) -> None:
        """Remove records that were given up from the head, so that they need no memory while the topic is missing: the oldest are given up first."""
        for queue in (self.new, *self.queues.values()):
            while queue and queue[0].is_given_up:
                queue.popleft()

    def sort(self, partitions: Sequence[int]) -> bool:
        """Assign new records to partitions. False: the partitions have changed, and what is under way must end first."""
        if partitions != list(self.queues):
            if self.given:
                return False
            self.new = deque(self.waiting)
            self.queues = {partition: deque() for partition in partitions}
        queues, count = list(self.queues.values()), len(partitions)
        for record in self.new:
            queues[key_hash(record.key or b"") % count].append(record)
        self.new.clear()
        return True


_Ended = tuple[_Topic, Batch, "Errors | None"]


class KafkaSender:
    """Fulfils `StreamSender`. `trouble`: what was wrong last, "" while nothing is."""

    def __init__(self, cluster: KafkaCluster, call_in_reactor: CallInReactor, make_topic: MakeTopic) -> None:
        self._cluster = cluster
        self._call_in_reactor = call_in_reactor
        self._make_topic = make_topic
        self._on_answers: OnAnswers | None = None
        self._lock = threading.Lock()
        self._condition = threading.Condition(self._lock)
        self._taken: list[Outgoing] = []  # this and what follows: under the lock
        self._ended: list[_Ended] = []
        self._answers: list[Answer] = []
        self._is_closing = False
        self._topics: dict[str, _Topic] = {}  # the thread's own
        self._producer: KafkaProducer | None = None
        self._generation = 0  # of producers
        self._failed_at = -_RETRY_S
        self._left_over: set[str] = set()  # topics that are gone, and of which the producer still has records
        self._left_over_at = 0.0
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self, on_answers: OnAnswers) -> None:
        self._on_answers = on_answers
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._thread.start()

    def send(self, record: Outgoing) -> None:
        with self._lock:
            self._taken.append(record)
            if len(self._taken) == 1:
                self._condition.notify()

    def give_up(self, record: Outgoing) -> bool:
        with self._lock:
            record.is_given_up = not record.is_sent
            return record.is_given_up

    def close(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        with self._lock:
            self._is_closing = True
            self._condition.notify()
        if self._thread is not None:
            self._thread.join(timeout_s)
            self._abandon(max(until - time.monotonic(), 0.0))
            return not self._thread.is_alive()
        return True

    # --- the thread

    def _run(self) -> None:
        while self._turn():
            pass

    def _turn(self) -> bool:
        """Do what there is to do, or wait for it a moment; False: all is done, and the hub stops."""
        with self._lock:
            if not self._taken and not self._ended:
                if self._is_closing and not any(each.given or each.is_waiting for each in self._topics.values()):
                    return False
                self._condition.wait(_RETRY_S / 4)
            taken, self._taken = self._taken, []
            ended, self._ended = self._ended, []
        for record in taken:
            topic = self._topics.get(record.topic)
            if topic is None:
                topic = self._topics[record.topic] = _Topic()
            topic.new.append(record)
        try:
            self._settle(ended)
            self._work()
        except Exception as error:  # the edge of this thread: without it no stream would ever go on
            log.error("defect in the sender of streams", exc_info=error)
            self._failed(error)
            self._begin_again()
        return True

    def _work(self) -> None:
        """Give the producer whatever it can take now."""
        now = time.monotonic()
        if self._left_over and self._emptied(now):
            return
        for name, topic in list(self._topics.items()):
            topic.drop_given_up()
            if not topic.given and not topic.is_waiting:
                del self._topics[name]
            elif topic.is_waiting and now - topic.failed_at >= _RETRY_S:
                self._give_what_waits(name, topic, now)
            elif topic.given and now - topic.tried_at > _RETRY_S:
                self._partitions(name, topic, now)

    def _give_what_waits(self, name: str, topic: _Topic, now: float) -> None:
        partitions = self._partitions(name, topic, now)
        if not partitions or not topic.sort(partitions):
            return
        for partition, queue in topic.queues.items():
            if queue and partition not in topic.given:
                self._give(topic, TopicPartition(name, partition), queue)

    def _give(self, topic: _Topic, place: TopicPartition, queue: deque[Outgoing]) -> None:
        records = self._next(queue)
        if not records or self._producer is None:
            return
        batch = Batch(place, records, self._generation, partial(self._done, topic))
        topic.given[place.partition] = batch
        try:
            give(self._producer, batch, int(SystemClock.wall() * 1000))
        except BaseException as error:
            del topic.given[place.partition]
            queue.extendleft(reversed(records))
            topic.failed_at = time.monotonic()
            if not isinstance(error, KafkaError):
                raise
            self._failed(error)

    def _next(self, queue: deque[Outgoing]) -> list[Outgoing]:
        """Take the records of the next batch; they cannot be taken back any more."""
        records: list[Outgoing] = []
        size = 0
        with self._lock:
            while queue and len(records) < _BATCH_RECORDS:
                record = queue[0]
                if not record.is_given_up:
                    size += record.size_bytes
                    if records and size > _BATCH_BYTES:
                        break
                    record.is_sent = True
                    records.append(record)
                queue.popleft()
        return records

    def _done(self, topic: _Topic, batch: Batch, errors: Errors | None) -> None:
        """In the producer's thread."""
        with self._lock:
            self._ended.append((topic, batch, errors))
            if len(self._ended) == 1:
                self._condition.notify()

    def _settle(self, ended: Sequence[_Ended]) -> None:
        is_broken = False
        for topic, batch, errors in ended:
            if topic.given.get(batch.place.partition) is not batch:
                continue  # answered or taken back when its topic had gone
            del topic.given[batch.place.partition]
            if errors is None:
                self.trouble = ""
                self._answer([(record, None) for record in batch.records])
            else:
                is_broken |= self._settle_failed(topic, batch, errors)
        if is_broken:
            self._begin_again()

    def _settle_failed(self, topic: _Topic, batch: Batch, errors: Errors) -> bool:
        """Return whether the producer may have lost count."""
        again: list[Outgoing] = []
        answers: list[Answer] = []
        is_broken = False
        for record, error in zip(batch.records, errors, strict=True):
            failure = None if error is None else self._failed(error)
            if failure is None or not failure.retryable:
                answers.append((record, failure))
            else:
                again.append(record)
                is_broken |= not isinstance(error, _OF_THE_TOPIC)
        if again:
            topic.failed_at = time.monotonic()
            topic.queues[batch.place.partition].extendleft(reversed(again))
        self._answer(answers)
        return is_broken and batch.generation == self._generation

    def _let_go(self, name: str, topic: _Topic) -> None:
        """The topic is missing and no stream needs it: its records count as written."""
        del self._topics[name]
        with self._lock:
            waiting = [record for record in topic.waiting if not record.is_given_up]
            for record in waiting:
                record.is_sent = True
        given = chain(*(batch.records for batch in topic.given.values()))
        self._answer([(record, None) for record in chain(given, waiting)])
        if topic.given:
            self._leave_over(name)
        topic.given = {}

    def _take_back(self, name: str, topic: _Topic) -> None:
        """It was deleted and made again: what the producer has for the old one might never be answered, and no answer of it counts."""
        for partition, batch in topic.given.items():
            topic.queues[partition].extendleft(reversed(batch.records))
        topic.given = {}
        self._leave_over(name)

    def _leave_over(self, name: str) -> None:
        if not self._left_over:
            self._left_over_at = time.monotonic()
        self._left_over.add(name)

    def _emptied(self, now: float) -> bool:
        """Replace a producer that has only records of deleted topics. True: it gets nothing for now, so that it will have only these."""
        since_s = now - self._left_over_at
        is_awaited = any(name in self._topics for name in self._left_over)
        if any(topic.given for topic in self._topics.values()) and not (is_awaited and since_s >= _GONE_S):
            return is_awaited or since_s % _EMPTYING_S < _EMPTYING_SHARE_S
        self._begin_again()
        return False

    # --- what is known of topics

    def _partitions(self, name: str, topic: _Topic, now: float) -> list[int]:
        """Return the partitions of a topic, in their order; none: it cannot take anything yet, and Kafka was asked if it did not say why."""
        producer = self._open(now)
        if producer is None:
            return []
        partitions = producer._metadata.partitions_for_topic(name)
        if not partitions and now - topic.tried_at >= _RETRY_S:
            try:
                is_wanted = self._make_topic(name)
            except IotHubError as error:
                self.trouble = str(error)
                return []
            finally:
                topic.tried_at = time.monotonic()
            producer._sender.add_topic(name)
            producer._metadata.request_update()
            producer._sender.wakeup()
            partitions = self._await_metadata(producer, name)
            if not is_wanted and not partitions:
                self._let_go(name, topic)
        return sorted(partitions) if partitions and self._is_same(name, topic, producer) else []

    def _is_same(self, name: str, topic: _Topic, producer: KafkaProducer) -> bool:
        """Whether the producer can take records for the topic: it has none for one of that name that is gone."""
        topic_id = producer._metadata.topic_id(name)
        if topic.given and topic.topic_id != topic_id:
            self._take_back(name, topic)
        topic.topic_id = topic_id
        return name not in self._left_over

    def _await_metadata(self, producer: KafkaProducer, name: str) -> set[int] | None:
        """A moment: a topic that was just made is known in some milliseconds."""
        until = time.monotonic() + _RETRY_S / 4
        while time.monotonic() < until and not producer._metadata.partitions_for_topic(name):
            time.sleep(0.01)
        found: set[int] | None = producer._metadata.partitions_for_topic(name)
        return found

    def _open(self, now: float) -> KafkaProducer | None:
        if self._producer is None and now - self._failed_at >= _RETRY_S:
            try:
                with self._cluster.errors_translated():
                    self._producer = self._cluster.producer(_LINGER_MS)
            except IotHubError as error:
                self._failed_at = time.monotonic()
                self.trouble = str(error)
        return self._producer

    def _failed(self, error: BaseException) -> BackendError:
        failure = self._cluster.error(error, is_written=True)
        self._failed_at = time.monotonic()
        self.trouble = str(failure)
        return failure

    def _begin_again(self) -> None:
        """Another producer; what this one has not answered fails, and is given to the next one."""
        self._abandon(_CLOSE_S)

    def _abandon(self, timeout_s: float) -> None:
        producer, self._producer = self._producer, None
        self._generation += 1
        self._left_over.clear()
        if producer is not None:
            producer._sender.force_close()
            producer._sender.join(timeout_s)
            with suppress(KafkaError):  # it is still at it: what it has fails when it ends
                producer.close(timeout=0)

    # --- answers

    def _answer(self, answers: Sequence[Answer]) -> None:
        if answers:
            with self._lock:
                is_first = not self._answers
                self._answers += answers
            if is_first:
                self._call_in_reactor(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            answers, self._answers = self._answers, []
        if self._on_answers is not None:
            self._on_answers(answers)
