"""What streams are made of: the drivers that talk to Kafka, or those that say why there is none; and whose that Kafka is.

Knows concrete drivers and no stream. Kafka's library is imported where it is needed: it is an extra.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING

from iothub.config.sections import Config
from iothub.hub.installation import Installation, Owned
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.null import NowhereReceiver, NowhereSender, NowhereWatch
from iothub_services.streams.port import StreamReceiver, StreamSender, StreamWatch

if TYPE_CHECKING:
    from iothub_services.streams.kafka.topics import StreamTopics

MakeTopic = Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class StreamDrivers:
    """Those of one hub. `topics`: None where there is no Kafka."""

    sender: StreamSender
    receiver: StreamReceiver
    watch: StreamWatch
    topics: StreamTopics | None = None


def stream_drivers(
    settings: Config, installation: Installation, call_in_reactor: CallInReactor, make_topic: MakeTopic
) -> StreamDrivers:
    """Make them; nothing is asked of Kafka yet, and nothing will be sent or read there while it is another installation's."""
    why = no_kafka(settings)
    if why:
        return StreamDrivers(NowhereSender(why), NowhereReceiver(), NowhereWatch(f"there is no Kafka: {why}"))
    from iothub_services.streams.kafka.own_cluster import OwnCluster
    from iothub_services.streams.kafka.receiver import KafkaReceiver
    from iothub_services.streams.kafka.sender import KafkaSender
    from iothub_services.streams.kafka.topics import StreamTopics
    from iothub_services.streams.kafka.watch import KafkaWatch

    cluster = OwnCluster(settings.kafka, lambda: owned_topics(settings, installation).claim())
    topics = StreamTopics(cluster)
    return StreamDrivers(
        KafkaSender(cluster, call_in_reactor, make_topic),
        KafkaReceiver(cluster, call_in_reactor, topics.make),
        KafkaWatch(cluster),
        topics,
    )


def owned_topics(settings: Config, installation: Installation) -> Owned:
    """Return the topics of the prefix, as stores that are somebody's. Needs Kafka's library."""
    from iothub_services.events.kafka.cluster import KafkaCluster
    from iothub_services.events.kafka.owner import PrefixOwner

    return installation.topics(PrefixOwner(KafkaCluster(settings.kafka)))


def no_kafka(settings: Config) -> str:
    """Say why this hub can have no streams; "": it can."""
    if not settings.kafka.brokers:
        return "kafka.brokers is not set"
    if any(find_spec(package) is None for package in ("kafka", "crc32c")):
        return "packages are not installed: pip install 'iothub[kafka]'"
    return ""
