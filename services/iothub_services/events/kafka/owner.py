"""The owner of the topics of a prefix: the first record of a topic of its own, with one partition, names it.

Knows no event and no accounts; what follows from another owner is `iothub.hub.stores.installation`'s.

Theory: Kafka has no compare-and-swap, but all readers see the records of a partition in one order. Of several installations that write into an empty
topic one is first, and stays first, since nothing is removed. So a hub that finds the topic empty writes its record, and then reads which is first.
"""

from __future__ import annotations

from contextlib import closing

from iothub.base.errors import BackendError
from iothub.records.layout import kafka_owner_topic
from iothub.records.owner import Owner, decode_owner, encode_owner
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.events.kafka.reader import KafkaReader
from iothub_services.events.kafka.topics import make_owner_topic
from iothub_services.events.kafka.writer import KafkaWriter, Record


class PrefixOwner:
    """Fulfils `iothub.hub.stores.installation.Topics` for who has no log: asks with clients that live for a moment."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster

    def owner(self) -> Owner | None:
        """As `topics_owner`."""
        with closing(KafkaReader(self._cluster)) as reader:
            return topics_owner(self._cluster, reader)

    def claim(self, owner: Owner) -> Owner:
        """As `claim_topics`."""
        with closing(KafkaReader(self._cluster)) as reader, closing(KafkaWriter(self._cluster)) as writer:
            return claim_topics(self._cluster, reader, writer, owner)


def topics_owner(cluster: KafkaCluster, reader: KafkaReader) -> Owner | None:
    """Return the owner of the topics; None: they have none yet. Raises BackendError, ConflictError, CorruptRecordError."""
    name = kafka_owner_topic(cluster.settings.topic_prefix)
    with cluster.admin() as admin:
        is_there = name in admin.list_topics()
    return _first(name, reader) if is_there else None


def claim_topics(cluster: KafkaCluster, reader: KafkaReader, writer: KafkaWriter, owner: Owner) -> Owner:
    """Claim the topics unless they have an owner, and return their owner.

    Raises:
        ConflictError: The cluster refuses to make the topic.
        As `topics_owner`.
    """
    found = topics_owner(cluster, reader)
    if found is not None:
        return found
    name = kafka_owner_topic(cluster.settings.topic_prefix)
    make_owner_topic(cluster, name)
    writer.write([Record(owner, name, 0, b"", encode_owner(owner))])
    found = _first(name, reader)
    if found is None:
        raise BackendError(
            f"{cluster.name}: topic {name} is empty, although a record was written to it", retryable=True
        )
    return found


def _first(name: str, reader: KafkaReader) -> Owner | None:
    records = reader.fetch(name, {0: 0}, 1)
    return decode_owner(records[0].value or b"", f"topic {name}") if records else None
