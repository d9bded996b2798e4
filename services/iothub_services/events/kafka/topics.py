"""Our topics in a Kafka cluster: which there are, made when they are missing, refused when they would lose events.

Knows names and settings of topics and no event.

Theory: the session log has generations. The first is the topic PREFIX.session-events; when a log was lost, or its states come from another
log, it goes on in PREFIX.session-events.1 and so on, and the generation is the upper part of every offset.

Invariant: offsets never restart, also in a new topic: events with used offsets would look folded, and be lost.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from kafka import KafkaAdminClient
from kafka.admin import ConfigResource, ConfigResourceType
from kafka.errors import NoError, RetriableError, TopicAlreadyExistsError, for_code

from iothub.base.errors import ConflictError, NotFoundError
from iothub.config.sections import Kafka
from iothub.records.events import Topic
from iothub.records.layout import kafka_base, kafka_topic, newest_generation
from iothub_services.events.kafka.cluster import RECORD_BYTES, KafkaCluster

_SAFE_COPIES = 3  # with this many, two must have a record before it is acknowledged


@dataclass(frozen=True, slots=True)
class KafkaTopic:
    """One topic as it is. `topic_id`: another one of the same name has another id."""

    name: str
    partitions: int
    generation: int = 0
    topic_id: str = ""

    @property
    def base(self) -> int:
        """What is added to an offset of Kafka's (which begin at 0) to get ours (which begin at 1)."""
        return kafka_base(self.generation)


def topic_name(settings: Kafka, topic: Topic, generation: int = 0) -> str:
    """Return the name of a topic in the cluster."""
    return kafka_topic(settings.topic_prefix, topic, generation)


def open_topics(
    cluster: KafkaCluster, generation: int = 0, topics: Collection[Topic] = tuple(Topic)
) -> dict[Topic, KafkaTopic]:
    """Return our topics, or some, the session log in its newest generation but at least in this one; make what is missing.

    Raises:
        BackendError: The cluster does not answer, or does not let us.
        ConflictError: A topic exists with settings under which events would be lost.
    """
    settings = cluster.settings
    with cluster.admin() as admin:
        found = admin.list_topics()
        generations = _generations(settings, found, generation)
        names = {topic: topic_name(settings, topic, generations[topic]) for topic in topics}
        for topic, name in names.items():
            if name not in found:
                make_topic(admin, settings, name, settings.partitions, wanted_settings(settings, topic))
        admin.wait_for_topics(list(names.values()), timeout_ms=int(settings.timeout_s * 1000))
        described = _described(admin, names, generations)
        if Topic.SESSIONS in names:
            _check_partitions(admin, settings, names[Topic.SESSIONS])
            _check_settings(admin, settings, names[Topic.SESSIONS])
    return described


def find_topics(cluster: KafkaCluster, topics: Collection[Topic] = tuple(Topic)) -> dict[Topic, KafkaTopic]:
    """Return our topics, or some, as they are, for a caller that only reads. Raises BackendError, NotFoundError."""
    with cluster.admin() as admin:
        found = admin.list_topics()
        generations = _generations(cluster.settings, found)
        names = {topic: topic_name(cluster.settings, topic, generations[topic]) for topic in topics}
        missing = [name for name in names.values() if name not in found]
        if missing:
            raise NotFoundError(f"{cluster.name} has no topic {missing[0]}: the first `iothub serve` creates it")
        return _described(admin, names, generations)


def look_at_topics(cluster: KafkaCluster) -> list[KafkaTopic]:
    """Return our topics, seen to be as the settings want them; nothing is made. Raises as `open_topics`, and NotFoundError."""
    topics = find_topics(cluster)
    with cluster.admin() as admin:
        _check_partitions(admin, cluster.settings, topics[Topic.SESSIONS].name)
        _check_settings(admin, cluster.settings, topics[Topic.SESSIONS].name)
    return list(topics.values())


def wanted_settings(settings: Kafka, topic: Topic) -> dict[str, str]:
    """Return the settings with which we make a topic."""
    is_log = topic is Topic.SESSIONS
    return {
        "cleanup.policy": "delete",
        "retention.ms": "-1" if is_log else str(int(settings.analytics_retention_s * 1000)),
        "retention.bytes": "-1",
        "max.message.bytes": str(RECORD_BYTES),
        "min.insync.replicas": str(least_in_sync(settings.replication)),
        "unclean.leader.election.enable": "false",
    }


def make_owner_topic(cluster: KafkaCluster, name: str) -> None:
    """Create the topic that names the owner of the others, unless it exists: its first record stays for ever.

    Raises:
        BackendError: The cluster does not answer, or does not let us.
        ConflictError: It refuses.
    """
    wanted = wanted_settings(cluster.settings, Topic.SESSIONS)
    del wanted["max.message.bytes"]
    with cluster.admin() as admin:
        if name not in admin.list_topics():
            make_topic(admin, cluster.settings, name, 1, wanted)
        admin.wait_for_topics([name], timeout_ms=int(cluster.settings.timeout_s * 1000))


def faults(settings: Kafka, found: Mapping[str, str]) -> list[str]:
    """Say what is wrong with the settings of an existing session log: under which of them events would be lost."""
    wanted = wanted_settings(settings, Topic.SESSIONS)
    wrong = [
        f"{name}={found[name]}, needed is {wanted[name]}"
        for name in ("cleanup.policy", "retention.ms", "retention.bytes", "unclean.leader.election.enable")
        if name in found and found[name] != wanted[name]
    ]
    return wrong + [
        f"{name}={found[name]}, needed is {wanted[name]}"
        for name in ("min.insync.replicas", "max.message.bytes")
        if name in found and int(found[name]) < int(wanted[name])
    ]


def least_in_sync(replication: int) -> int:
    return 2 if replication >= _SAFE_COPIES else 1


def _generations(settings: Kafka, found: list[str], least: int = 0) -> dict[Topic, int]:
    """Return the generation of each topic: the newest that was found."""
    newest = newest_generation(settings.topic_prefix, found)
    return {Topic.SESSIONS: max(newest, least), Topic.ANALYTICS: 0}


def make_topic(
    admin: KafkaAdminClient, settings: Kafka, name: str, partitions: int, configs: Mapping[str, str]
) -> None:
    """Make a topic unless another hub was faster. Raises ConflictError when the cluster refuses, KafkaError."""
    wanted = {"num_partitions": partitions, "replication_factor": settings.replication, "configs": dict(configs)}
    (answer,) = admin.create_topics({name: wanted}, raise_errors=False)["topics"]
    error = for_code(answer["error_code"])
    if error is TopicAlreadyExistsError:
        return  # another hub was faster
    if issubclass(error, RetriableError):
        raise error(answer["error_message"])
    if error is not NoError:
        raise ConflictError(
            f"Kafka refuses to make topic {name} with {partitions} partition{'s' * (partitions > 1)} and "
            f"kafka.replication = {settings.replication}: {answer['error_message'] or error.__name__}"
        )


def _described(
    admin: KafkaAdminClient, names: Mapping[Topic, str], generations: Mapping[Topic, int]
) -> dict[Topic, KafkaTopic]:
    found = {each["name"]: each for each in admin.describe_topics(list(names.values()))}
    return {
        topic: KafkaTopic(
            name, len(found[name]["partitions"]), generations[topic], str(found[name].get("topic_id", ""))
        )
        for topic, name in names.items()
    }


def _check_partitions(admin: KafkaAdminClient, settings: Kafka, name: str) -> None:
    """The log must have exactly the configured partitions, since their number decides where a key is, and at least the configured copies."""
    (described,) = admin.describe_topics([name])
    count, copies = len(described["partitions"]), min(len(each["replica_nodes"]) for each in described["partitions"])
    if count != settings.partitions:
        raise ConflictError(
            f"topic {name} has {count} partitions, kafka.partitions says {settings.partitions}: "
            f"set it to {count}, the number never changes while the topic lives"
        )
    if copies < settings.replication:
        raise ConflictError(
            f"topic {name} has {copies} replica{'s' * (copies > 1)}, kafka.replication is {settings.replication}: "
            "add replicas with kafka-reassign-partitions, or lower the setting"
        )


def _check_settings(admin: KafkaAdminClient, settings: Kafka, name: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, name)
    answer = admin.describe_configs([resource], config_filter="all")
    found = {key: str(entry["value"]) for key, entry in answer["topic"][name].items()}
    wrong = faults(settings, found)
    if wrong:
        raise ConflictError(
            f"topic {name} would lose events: {'; '.join(wrong)}. Change it with kafka-configs, or choose another kafka.topic_prefix"
        )
