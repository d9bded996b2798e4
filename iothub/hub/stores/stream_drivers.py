"""What streams are made of: the drivers that talk to Kafka, or those that say why there is none; and whose that Kafka is.

Knows concrete drivers and no stream. Kafka's library is imported where it is needed: it is an extra.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import TYPE_CHECKING

from iothub.config.sections import Config
from iothub.hub.stores.installation import Installation, Owned
from iothub_services.group_thread import CallInReactor
from iothub_services.streams.null import NullReceiver, NullSender, NullWatch
from iothub_services.streams.port import Stream, StreamReceiver, StreamSender, StreamWatch

if TYPE_CHECKING:
    from iothub_services.streams.kafka.topics import StreamTopics

Living = Callable[[], Iterable[Stream]]
"""Blocks: the streams that the accounts have now."""


@dataclass(frozen=True, slots=True)
class StreamDrivers:
    """Those of one hub. `topics`: None where there is no Kafka."""

    sender: StreamSender
    receiver: StreamReceiver
    watch: StreamWatch
    topics: StreamTopics | None = None


def stream_drivers(
    settings: Config, installation: Installation, call_in_reactor: CallInReactor, living: Living
) -> StreamDrivers:
    """Make them; nothing is asked of Kafka yet, and nothing will be sent or read there while it is another installation's."""
    why = no_kafka(settings)
    if why:
        return StreamDrivers(NullSender(why), NullReceiver(), NullWatch(f"there is no Kafka: {why}"))
    from iothub_services.streams.kafka.own_cluster import OwnCluster
    from iothub_services.streams.kafka.receiver import KafkaReceiver
    from iothub_services.streams.kafka.sender import KafkaSender
    from iothub_services.streams.kafka.topics import StreamTopics
    from iothub_services.streams.kafka.watch import KafkaWatch

    cluster = OwnCluster(settings.kafka, lambda: owned_topics(settings, installation).claim())
    topics = StreamTopics(cluster)
    return StreamDrivers(
        KafkaSender(cluster, call_in_reactor, partial(make_topic, topics, living)),
        KafkaReceiver(cluster, call_in_reactor, topics.make),
        KafkaWatch(cluster),
        topics,
    )


def make_topic(topics: StreamTopics, living: Living, name: str) -> bool:
    """In the sender's thread: a topic that is not there is made as its stream says; False: it has none any more.

    The accounts are asked: a hub hears of a deletion later than Kafka, and would make again what was just deleted.
    """
    for stream in living():
        if name in topics.names(stream):
            topics.make(stream)
            return True
    return False


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
