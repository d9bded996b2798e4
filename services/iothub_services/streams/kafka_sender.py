"""Takes records of streams to Kafka, in a thread of its own: each once and in the order of its key, however long Kafka is away.

Knows topics as names and records as bytes; knows no stream and no MQTT.

Theory: the producer's own thread sends, repeats and keeps the order; it is given a record only when its topic is known, so that one topic that is
missing holds nobody else up, and what was not given can be taken back (`give_up`). A topic that is not there is made again, if anybody wants it;
else what is for it counts as written. What the producer has for a topic that is gone stays there, and would keep back what comes for a new one of
that name: when the producer has nothing else another one begins, so that nothing goes twice (`_emptied`). What fails for a reason that may pass is
given once more, in its old order, after everything of its topic has an answer, and to another producer where this one may have lost count; then a
record may be in the topic twice, with the same message id.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from iothub import log as logging
from iothub.errors import BackendError, IotHubError
from iothub_services.events.kafka_cluster import KafkaCluster
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.port import Answer, OnAnswers, Outgoing

_LINGER_MS = 2
_RETRY_S = 1.0
_TURN_RECORDS = 4_096
_CLOSE_S = 1.0
_EMPTYING_S = 60.0  # so often nothing is given for a moment, until a producer with records for nobody has nothing else
_EMPTYING_SHARE_S = 1.0
_GONE_S = 5.0  # no longer waits a new topic for a producer that has records for the old one
_OF_THE_TOPIC = (TopicAuthorizationFailedError, UnknownTopicOrPartitionError)  # the producer is as good as before

log = logging.get(__name__)

MakeTopic = Callable[[str], bool]
"""Make a topic unless it is there; False: nobody wants it any more. Blocks; raises IotHubError."""


class _Topic:
    """What is known of one topic. `waiting`: not given to the producer, by number, oldest first; `given`: without an answer yet."""

    __slots__ = ("failed", "failed_at", "given", "topic_id", "tried_at", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Outgoing]] = deque()
        self.failed: list[tuple[int, Outgoing]] = []
        self.given: dict[int, Outgoing] = {}
        self.tried_at = -_RETRY_S
        self.failed_at = -_RETRY_S
        self.topic_id: object = None  # a topic that was deleted and made again has another one


_Ended = tuple[int, int, _Topic, BaseException | None]
"""Which producer had it, its place among all, its topic, what went wrong."""


class KafkaSender:
    """Fulfils `StreamSender`. `trouble`: what was wrong last, "" while nothing is."""

    def __init__(self, cluster: KafkaCluster, call_in_reactor: CallInReactor, make_topic: MakeTopic) -> None:
        self._cluster = cluster
        self._call_in_reactor = call_in_reactor
        self._make_topic = make_topic
        self._on_answers: OnAnswers | None = None
        self._condition = threading.Condition()
        self._taken: deque[Outgoing] = deque()  # this and what follows: under the condition
        self._ended: list[_Ended] = []
        self._answers: list[Answer] = []
        self._is_closing = False
        self._topics: dict[str, _Topic] = {}  # the thread's own
        self._producer: KafkaProducer | None = None
        self._generation = 0  # of producers
        self._number = 0
        self._failed_at = -_RETRY_S
        self._swept_at = 0.0
        self._left_over: set[str] = set()  # topics that are gone, and of which the producer still has records
        self._left_over_at = 0.0
        self._thread: threading.Thread | None = None
        self.trouble = ""

    def start(self, on_answers: OnAnswers) -> None:
        self._on_answers = on_answers
        self._thread = threading.Thread(target=self._run, name="streams", daemon=True)
        self._thread.start()

    def send(self, record: Outgoing) -> None:
        with self._condition:
            self._taken.append(record)
            if len(self._taken) == 1:
                self._condition.notify()

    def give_up(self, record: Outgoing) -> bool:
        with self._condition:
            record.is_given_up = not record.is_sent
            return record.is_given_up

    def close(self, timeout_s: float) -> bool:
        until = time.monotonic() + timeout_s
        with self._condition:
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
        with self._condition:
            if not self._taken and not self._ended:
                if self._is_closing and not any(each.waiting or each.given for each in self._topics.values()):
                    return False
                self._condition.wait(_RETRY_S / 4)
            taken = [self._taken.popleft() for _ in range(min(len(self._taken), _TURN_RECORDS))]
            ended, self._ended = self._ended, []
        for record in taken:
            self._number += 1
            self._topics.setdefault(record.topic, _Topic()).waiting.append((self._number, record))
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
        if now - self._swept_at >= _RETRY_S:
            self._sweep(now)
        if self._left_over and self._emptied(now):
            return
        for name, topic in list(self._topics.items()):
            if not topic.waiting and not topic.given:
                del self._topics[name]
            elif topic.waiting and not topic.failed and now - topic.failed_at >= _RETRY_S:
                if self._is_known(name, topic, now):
                    self._give(topic)
            elif topic.given and now - topic.tried_at > _RETRY_S:
                self._is_known(name, topic, now)

    def _sweep(self, now: float) -> None:
        """What was given up is kept by nobody, however long its topic is not there."""
        self._swept_at = now
        for topic in self._topics.values():
            if any(record.is_given_up for _, record in topic.waiting):
                topic.waiting = deque(each for each in topic.waiting if not each[1].is_given_up)

    def _give(self, topic: _Topic) -> None:
        producer = self._producer
        while topic.waiting and producer is not None:
            number, record = topic.waiting[0]
            with self._condition:
                if record.is_given_up:
                    topic.waiting.popleft()
                    continue
                record.is_sent = True
            try:
                future = producer.send(record.topic, value=record.value, key=record.key, headers=record.headers)
            except (KafkaError, ValueError, AssertionError) as error:
                self._failed(error)
                if self._cluster.error(error).retryable:
                    topic.failed_at = time.monotonic()
                    return
                topic.waiting.popleft()
                self._answer(record, self._cluster.error(error))
                continue
            topic.waiting.popleft()
            topic.given[number] = record
            future.add_both(self._done, self._generation, number, topic, future)

    def _done(self, generation: int, number: int, topic: _Topic, future: object, _result: object) -> None:
        """In the producer's thread."""
        failed = getattr(future, "exception", None)
        with self._condition:
            self._ended.append((generation, number, topic, failed))
            if len(self._ended) == 1:
                self._condition.notify()

    def _settle(self, ended: list[_Ended]) -> None:
        is_broken = False
        for generation, number, topic, error in ended:
            record = topic.given.pop(number, None)
            if record is None:
                continue  # answered when its topic had gone
            if error is None:
                self.trouble = ""
                self._answer(record, None)
                continue
            self._failed(error)
            told = self._cluster.error(error, is_written=True)
            if told.retryable:
                topic.failed.append((number, record))
                topic.failed_at = time.monotonic()
                is_broken |= generation == self._generation and not isinstance(error, _OF_THE_TOPIC)
            else:
                self._answer(record, told)
        if is_broken:
            self._begin_again()
        for topic in self._topics.values():
            if topic.failed and not topic.given:
                topic.waiting = deque(sorted([*topic.failed, *topic.waiting], key=lambda each: each[0]))
                topic.failed = []

    def _let_go(self, name: str, topic: _Topic) -> None:
        """It is not there, and nobody wants it: what is for it counts as written."""
        del self._topics[name]
        for _number, record in [*topic.given.items(), *topic.failed, *topic.waiting]:
            with self._condition:
                if record.is_given_up:
                    continue
                record.is_sent = True
            self._answer(record, None)
        if topic.given:
            self._leave_over(name)
        topic.given = {}

    def _take_back(self, name: str, topic: _Topic) -> None:
        """It was deleted and made again: what the producer has for the old one might never be answered, and by new numbers no answer of it counts."""
        again = sorted([*topic.given.items(), *topic.failed, *topic.waiting], key=lambda each: each[0])
        topic.given, topic.failed = {}, []
        topic.waiting = deque((self._number + place, record) for place, (_, record) in enumerate(again, 1))
        self._number += len(again)
        self._leave_over(name)

    def _leave_over(self, name: str) -> None:
        if not self._left_over:
            self._left_over_at = time.monotonic()
        self._left_over.add(name)

    def _emptied(self, now: float) -> bool:
        """Replace a producer that has records for nobody when it has no others; True: nothing is given just now, so that this moment comes."""
        since_s = now - self._left_over_at
        is_awaited = any(name in self._topics for name in self._left_over)
        if any(topic.given for topic in self._topics.values()) and not (is_awaited and since_s >= _GONE_S):
            return is_awaited or since_s % _EMPTYING_S < _EMPTYING_SHARE_S
        self._begin_again()
        return False

    # --- what is known of topics

    def _is_known(self, name: str, topic: _Topic, now: float) -> bool:
        """Whether a record can be given without waiting for what Kafka says of its topic; if not, it is asked."""
        producer = self._open(now)
        if producer is None:
            return False
        if producer._metadata.partitions_for_topic(name):
            return self._is_same(name, topic, producer)
        if now - topic.tried_at >= _RETRY_S:
            try:
                is_wanted = self._make_topic(name)
            except IotHubError as error:
                self.trouble = str(error)
                return False
            finally:
                topic.tried_at = time.monotonic()
            producer._sender.add_topic(name)
            producer._metadata.request_update()
            producer._sender.wakeup()
            self._await_metadata(producer, name)
            if not is_wanted and not producer._metadata.partitions_for_topic(name):
                self._let_go(name, topic)
                return False
        return bool(producer._metadata.partitions_for_topic(name)) and self._is_same(name, topic, producer)

    def _is_same(self, name: str, topic: _Topic, producer: KafkaProducer) -> bool:
        """Whether the producer can take records for the topic: it has none for one of that name that is gone."""
        topic_id = producer._metadata.topic_id(name)
        if topic.given and topic.topic_id != topic_id:
            self._take_back(name, topic)
        topic.topic_id = topic_id
        return name not in self._left_over

    def _await_metadata(self, producer: KafkaProducer, name: str) -> None:
        """A moment: a topic that was just made is known in some milliseconds."""
        until = time.monotonic() + _RETRY_S / 4
        while time.monotonic() < until and not producer._metadata.partitions_for_topic(name):
            time.sleep(0.01)

    def _open(self, now: float) -> KafkaProducer | None:
        if self._producer is None and now - self._failed_at >= _RETRY_S:
            try:
                with self._cluster.errors_translated():
                    self._producer = self._cluster.producer(_LINGER_MS)
            except IotHubError as error:
                self._failed_at = time.monotonic()
                self.trouble = str(error)
        return self._producer

    def _failed(self, error: BaseException) -> None:
        self._failed_at = time.monotonic()
        self.trouble = str(self._cluster.error(error))

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

    def _answer(self, record: Outgoing, error: BackendError | None) -> None:
        with self._condition:
            self._answers.append((record, error))
            is_first = len(self._answers) == 1
        if is_first:
            self._call_in_reactor(self._deliver)

    def _deliver(self) -> None:
        with self._condition:
            answers, self._answers = self._answers, []
        if self._on_answers is not None:
            self._on_answers(answers)
