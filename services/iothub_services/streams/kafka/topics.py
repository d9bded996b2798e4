"""The topics of streams in Kafka: made, deleted, and how far they are.

Knows names and numbers of topics and no message. All calls block and raise BackendError; making may raise ConflictError.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from kafka.errors import NoError, UnknownTopicOrPartitionError, for_code
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import RECORD_BYTES, KafkaCluster
from iothub_services.events.kafka.topics import least_in_sync, make_topic
from iothub_services.streams.port import Stream


@dataclass(frozen=True, slots=True)
class TopicState:
    """How far a topic is: what it holds, and what a consumer group has not committed yet (None: it has committed nothing)."""

    partitions: int
    messages: int
    lag: int | None


class StreamTopics:
    """Everything that is asked of Kafka about a stream's topics by name."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def make(self, stream: Stream) -> None:
        """Make a stream's topics unless they are there."""
        settings = self._cluster.settings
        configs = {
            "cleanup.policy": "delete",
            "retention.ms": str(stream.retention_ms),
            "max.message.bytes": str(RECORD_BYTES),
            "min.insync.replicas": str(least_in_sync(settings.replication)),
            "unclean.leader.election.enable": "false",
        }
        wanted = self.names(stream)
        with self._cluster.admin() as admin:
            found = set(admin.list_topics())
            for name in wanted:
                if name not in found:
                    make_topic(admin, settings, name, stream.partitions, configs)
            admin.wait_for_topics(wanted, timeout_ms=int(settings.timeout_s * 1000))

    def names(self, stream: Stream) -> list[str]:
        """Return the names of a stream's topics."""
        return stream.topics(self._cluster.settings.topic_prefix)

    def delete(self, streams: Sequence[Stream]) -> None:
        """Delete their topics with all that is in them. Idempotent."""
        wanted = [name for stream in streams for name in self.names(stream)]
        with self._cluster.admin() as admin:
            found = set(admin.list_topics())
            names = [name for name in wanted if name in found]
            if not names:
                return
            answer = admin.delete_topics(names, raise_errors=False)
            for each in answer["topics"]:
                error = for_code(each["error_code"])
                if error not in (NoError, UnknownTopicOrPartitionError):
                    raise BackendError(
                        f"{self._cluster.name} does not delete topic {each['name']}: {each.get('error_message') or error.__name__}",
                        retryable=True,
                    )

    def by_hand(self, names: Sequence[str]) -> str:
        """Return the command that deletes topics without us; Kafka's tool takes regular expressions, a log line doubles backslashes."""
        brokers = ",".join(map(str, self._cluster.settings.brokers))
        pattern = ",".join(names).replace(".", "[.]")
        return f"kafka-topics.sh --bootstrap-server {brokers} --delete --topic '{pattern}'"

    def there(self, names: Collection[str]) -> list[str]:
        """Return those that Kafka has."""
        with self._cluster.admin() as admin:
            found = set(admin.list_topics())
        return [name for name in names if name in found]

    def state(self, topic: str, group: str | None = None) -> TopicState | None:
        """Say how far a topic is, and the consumer group in it; None: there is no such topic."""
        with self._cluster.errors_translated():
            consumer = self._cluster.consumer(group=group)
            try:
                numbers = consumer.partitions_for_topic(topic)
                if not numbers:
                    return None
                partitions = [TopicPartition(topic, number) for number in sorted(numbers)]
                timeout_ms = int(self._cluster.settings.timeout_s * 1000)
                begins = consumer.beginning_offsets(partitions, timeout_ms=timeout_ms)
                ends = consumer.end_offsets(partitions, timeout_ms=timeout_ms)
                committed = {} if group is None else {each: consumer.committed(each) for each in partitions}
            finally:
                consumer.close()
        return TopicState(
            len(partitions), sum(ends[each] - begins[each] for each in partitions), _lag(committed, begins, ends)
        )


def _lag(
    committed: Mapping[TopicPartition, int | None],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> int | None:
    if not any(offset is not None for offset in committed.values()):
        return None
    return sum(ends[each] - (begins[each] if offset is None else offset) for each, offset in committed.items())
