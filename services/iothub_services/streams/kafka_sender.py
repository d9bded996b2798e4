"""Takes records of streams to Kafka, in a thread of its own: each once and in the order of its key, however long Kafka is away.

Knows topics as names and records as bytes; knows no stream and no MQTT.

Theory: the producer's own thread sends, repeats and keeps the order; it is given a record only when its topic is known, so that one topic that is
missing holds nobody else up, and what was not given can be taken back (`give_up`). A topic that is not there is made again. What fails for a
reason that may pass is given once more, in its old order, after everything of its topic has an answer, and to another producer where this one may
have lost count; then a record may be in the topic twice, with the same message id.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

from kafka import KafkaProducer
from kafka.errors import KafkaError, TopicAuthorizationFailedError, UnknownTopicOrPartitionError

from iothub.errors import BackendError, IotHubError
from iothub_services.events.kafka_cluster import KafkaCluster
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.port import Answer, OnAnswers, Outgoing

_LINGER_MS = 2
_RETRY_S = 1.0
_TURN_RECORDS = 4_096
_CLOSE_S = 1.0
_GONE_S = 5.0
_OF_THE_TOPIC = (TopicAuthorizationFailedError, UnknownTopicOrPartitionError)  # the producer is as good as before

MakeTopic = Callable[[str], None]
"""Make a topic unless it is there. Blocks; raises IotHubError."""

_Ended = tuple[int, int, Outgoing, BaseException | None]
"""Which producer had it, its place among all, the record, what went wrong."""


class _Topic:
    """What is known of one topic. `waiting`: not given to the producer, oldest first; `given`: without an answer yet."""

    __slots__ = ("failed", "given", "gone_at", "tried_at", "waiting")

    def __init__(self) -> None:
        self.waiting: deque[tuple[int, Outgoing]] = deque()
        self.failed: list[tuple[int, Outgoing]] = []
        self.given = 0
        self.tried_at = -_RETRY_S
        self.gone_at = 0.0


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
        self._forgotten: set[str] = set()
        self._is_closing = False
        self._topics: dict[str, _Topic] = {}  # the thread's own
        self._producer: KafkaProducer | None = None
        self._generation = 0  # of producers
        self._number = 0
        self._failed_at = -_RETRY_S
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

    def forget(self, topic: str) -> None:
        """Its stream was deleted: what is on its way there is answered as written, nobody wants it."""
        with self._condition:
            self._forgotten.add(topic)
            self._condition.notify()

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
        while True:
            with self._condition:
                if not self._taken and not self._ended and not self._forgotten:
                    if self._is_closing and not any(each.waiting or each.given for each in self._topics.values()):
                        break
                    self._condition.wait(_RETRY_S / 4)
                taken = [self._taken.popleft() for _ in range(min(len(self._taken), _TURN_RECORDS))]
                ended, self._ended = self._ended, []
                forgotten, self._forgotten = self._forgotten, set()
            self._settle(ended)
            self._let_go(forgotten)
            for record in taken:
                self._number += 1
                self._topics.setdefault(record.topic, _Topic()).waiting.append((self._number, record))
            self._work()

    def _work(self) -> None:
        """Give the producer whatever it can take now."""
        now = time.monotonic()
        for name, topic in list(self._topics.items()):
            if not topic.waiting and not topic.given:
                del self._topics[name]
            elif topic.gone_at and topic.given and now - topic.gone_at > _GONE_S:
                self._begin_again()
            elif topic.waiting and not topic.failed and self._is_known(name, topic, now):
                self._give(topic)
            elif topic.given and now - topic.tried_at > _RETRY_S:
                self._is_known(name, topic, now)

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
                topic.waiting.popleft()
                if not self._cluster.error(error).retryable:
                    self._answer(record, self._cluster.error(error))
                    continue
                topic.waiting.appendleft((number, record))
                return
            topic.waiting.popleft()
            topic.given += 1
            future.add_both(self._done, self._generation, number, record, future)

    def _done(self, generation: int, number: int, record: Outgoing, future: object, _result: object) -> None:
        """In the producer's thread."""
        failed = getattr(future, "exception", None)
        with self._condition:
            self._ended.append((generation, number, record, failed))
            if len(self._ended) == 1:
                self._condition.notify()

    def _settle(self, ended: list[_Ended]) -> None:
        is_broken = False
        for generation, number, record, error in ended:
            topic = self._topics[record.topic]
            topic.given -= 1
            if error is None or topic.gone_at:
                self.trouble = ""
                self._answer(record, None)
                continue
            self._failed(error)
            told = self._cluster.error(error, is_written=True)
            if told.retryable:
                topic.failed.append((number, record))
                is_broken |= generation == self._generation and not isinstance(error, _OF_THE_TOPIC)
            else:
                self._answer(record, told)
        if is_broken:
            self._begin_again()
        for topic in self._topics.values():
            if topic.failed and not topic.given:
                topic.waiting = deque(sorted([*topic.failed, *topic.waiting], key=lambda each: each[0]))
                topic.failed = []

    def _let_go(self, names: set[str]) -> None:
        for name in names:
            topic = self._topics.get(name)
            if topic is not None:
                topic.gone_at = time.monotonic()
                for _number, record in topic.waiting:
                    with self._condition:
                        if record.is_given_up:
                            continue
                        record.is_sent = True
                    self._answer(record, None)
                topic.waiting.clear()

    # --- what is known of topics

    def _is_known(self, name: str, topic: _Topic, now: float) -> bool:
        """Whether a record can be given without waiting for what Kafka says of its topic; if not, it is asked."""
        producer = self._open(now)
        if producer is None:
            return False
        if producer._metadata.partitions_for_topic(name):
            return True
        if now - topic.tried_at >= _RETRY_S and not topic.gone_at:
            topic.tried_at = now
            try:
                self._make_topic(name)
            except IotHubError as error:
                self.trouble = str(error)
                return False
            producer._sender.add_topic(name)
            producer._metadata.request_update()
            producer._sender.wakeup()
            self._await_metadata(producer, name)
        return bool(producer._metadata.partitions_for_topic(name))

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
            except BackendError as error:
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
        if producer is not None:
            producer._sender.force_close()
            producer._sender.join(timeout_s)
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
