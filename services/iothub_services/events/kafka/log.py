"""The event-log port on Kafka: a topic for the sessions, one for analytics; `kafka-python` does the talking.

Knows places, topics and stored events; how records are written, read and administered is in the modules beside.
A topic is found, or made, when it is first needed: what becomes of the one for analytics is nothing to the session log.
`append` and `trim` belong to one thread; everything else may be called from another one.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence

from kafka.structs import TopicPartition

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.config.sections import Kafka
from iothub.records.events import GENERATION_BITS, Event, Topic, encode_event, partition_of, read_event
from iothub.records.owner import Owner
from iothub_services.events.kafka.cluster import FETCH_WAIT_MS, KafkaCluster
from iothub_services.events.kafka.owner import claim_topics, topics_owner
from iothub_services.events.kafka.probe import probe
from iothub_services.events.kafka.reader import Fetched, KafkaReader
from iothub_services.events.kafka.topics import KafkaTopic, find_topics, open_topics
from iothub_services.events.kafka.writer import KafkaWriter, Record
from iothub_services.events.port import NOWHERE, DamagedEvent, LoggedEvent, Offsets, raised, reached
from iothub_services.probing import Probe


class KafkaEvents:
    """Fulfils `EventLog`. Nothing is asked of the cluster before the first call.

    Invariants, for each partition of the session log: `_ends` is the highest end that was seen, `_acknowledged` the highest own offset.
    Neither goes back, and the topic's id never changes: then it is another topic, and nothing is acknowledged any more.
    """

    is_shared = True

    def __init__(
        self,
        settings: Kafka,
        *,
        is_read_only: bool = False,
        cluster: KafkaCluster | None = None,
        wait_ms: int = FETCH_WAIT_MS,
    ) -> None:
        self._is_read_only = is_read_only
        self._cluster = cluster or KafkaCluster(settings)
        self._writer = KafkaWriter(self._cluster)
        self._reader = KafkaReader(self._cluster, wait_ms)
        self._topics: dict[Topic, KafkaTopic] = {}
        self._ends: Offsets = NOWHERE
        self._acknowledged: Offsets = NOWHERE
        self._is_replaced = False

    def open(self) -> None:
        """Find the cluster, and the session log in it or make it. May be called again after it has failed.

        Raises:
            BackendError: It does not answer.
            ConflictError: The topic has settings under which events would be lost.
            NotFoundError: Nothing is to be made, and there is no topic.
        """
        self._topic(Topic.SESSIONS)

    def reach(self) -> Probe:
        """Ask the cluster one question."""
        return probe(self._cluster)

    def owner(self) -> Owner | None:
        """Return the owner of the topics; None: they have none yet. Raises BackendError, ConflictError, CorruptRecordError."""
        return topics_owner(self._cluster, self._reader)

    def claim(self, owner: Owner) -> Owner:
        """Claim the topics unless they have an owner; returns their owner. Raises ConflictError, and as `owner`."""
        return claim_topics(self._cluster, self._reader, self._writer, owner)

    def begin_again(self) -> None:
        """Forget the topics and the unanswered records: for events that are not folded, when a topic or a right is gone."""
        self._writer.begin_again()
        self._reader.close()
        self._topics = {}

    def close(self) -> None:
        self._writer.close()
        self._reader.close()

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        has_sessions = any(event.type.topic is Topic.SESSIONS for event in events)
        if has_sessions:
            self.open()
            self._require(not self._is_replaced, is_written=False)
        if not events:
            return []
        records = [self._record(event) for event in events]
        offsets = self._writer.write(records)
        logged = [
            self._logged(event, record, offset) for event, record, offset in zip(events, records, offsets, strict=True)
        ]
        if has_sessions:
            place = self._topics[Topic.SESSIONS]
            self._require(self._writer.topic_id(place.name) in ("", place.topic_id), is_written=True)
        for each in logged:
            if each.event.type.topic is Topic.SESSIONS and each.offset:
                self._require(each.offset > reached(self._acknowledged, each.partition), is_written=True)
                self._acknowledged = raised(self._acknowledged, each.partition, each.offset)
        return logged

    def probe(self, topic: Topic = Topic.SESSIONS) -> None:
        """Raises BackendError while the cluster does not answer, or has not acknowledged everything that it was sent."""
        self._writer.probe()
        self.end(topic)

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> Sequence[LoggedEvent | DamagedEvent]:
        place = self._topic(topic)
        starts = {
            partition: max(reached(after, partition) - place.base + 1, 0) for partition in range(place.partitions)
        }
        return [_entry(place, fetched, topic) for fetched in self._reader.fetch(place.name, starts, count)]

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        place = self._topic(topic)
        return tuple(offset + place.base for offset in self._reader.begins(place.name, place.partitions))

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        place = self._topic(topic)
        ends = tuple(offset + place.base - 1 for offset in self._reader.ends(place.name, place.partitions))
        if topic is Topic.SESSIONS:
            self._require(all(map(operator.ge, ends, self._ends)), is_written=True)
            self._ends = ends
        return ends

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        place, before = self._topic(topic), self.begin(topic)
        wanted = map(min, (reached(upto, partition) for partition in range(place.partitions)), self.end(topic))
        keep = {
            TopicPartition(place.name, partition): offset - place.base + 1
            for partition, offset in enumerate(wanted)
            if offset >= before[partition]
        }
        if keep:
            with self._cluster.admin() as admin:
                admin.delete_records(keep)
        return sum(offset + place.base - before[partition.partition] for partition, offset in keep.items())

    def after_loss(self, seen: Offsets) -> Offsets:
        generation = (max(seen, default=0) >> GENERATION_BITS) + 1
        return (generation << GENERATION_BITS,) * self._topic(Topic.SESSIONS).partitions

    def skip_to(self, offsets: Offsets) -> None:
        place = self._topic(Topic.SESSIONS)
        needed = -(-max(offsets, default=0) >> GENERATION_BITS)  # the first that begins above
        if needed > place.generation and any(map(operator.gt, offsets, self.end())):
            self._use(open_topics(self._cluster, needed, (Topic.SESSIONS,)))

    def _use(self, topics: dict[Topic, KafkaTopic]) -> None:
        self._topics |= topics
        if Topic.SESSIONS in topics:
            self._ends = self._acknowledged = NOWHERE

    def _topic(self, topic: Topic) -> KafkaTopic:
        """Find the cluster, and the topic in it or make it."""
        if topic not in self._topics:
            if self._is_read_only:
                self._use(find_topics(self._cluster, (topic,)))
            else:
                self._writer.open()
                self._use(open_topics(self._cluster, topics=(topic,)))
        return self._topics[topic]

    def _record(self, event: Event) -> Record:
        place = self._topic(event.type.topic)
        key = event.key
        return Record(event, place.name, partition_of(key, place.partitions), key.encode(), encode_event(event))

    def _logged(self, event: Event, record: Record, offset: int) -> LoggedEvent:
        base = self._topics[event.type.topic].base
        return LoggedEvent(record.partition, offset + base if offset >= 0 else 0, event)

    def _require(self, is_same: bool, *, is_written: bool) -> None:
        """Raises BackendError when the topic has another id: it was deleted, and created again by somebody else."""
        if not is_same:
            self._is_replaced = True
            name = self._topics[Topic.SESSIONS].name
            raise BackendError(
                f"{self._cluster.name}: topic {name} was recreated or truncated while the hub ran; restart the hub",
                retryable=True,
                is_written=is_written,
            )


def _entry(place: KafkaTopic, fetched: Fetched, topic: Topic) -> LoggedEvent | DamagedEvent:
    partition, offset = fetched.partition, fetched.offset + place.base
    try:
        event = read_event(fetched.value or b"", fetched.key or b"", partition, place.partitions, topic)
    except CorruptRecordError as error:
        where = f"topic {place.name}, partition {partition}, Kafka's offset {fetched.offset}"
        return DamagedEvent(partition, offset, f"{where}: {error}")
    return LoggedEvent(partition, offset, event)
