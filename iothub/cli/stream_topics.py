"""Kafka's topics of streams, for commands: the way to them, and whose they are.

Knows no stream's accounts. Kafka's library is imported where it is needed: it is an extra.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from iothub.base.errors import ConfigError
from iothub.cli.app import App

if TYPE_CHECKING:
    from iothub.hub.installation import Owned
    from iothub_services.streams.kafka.topics import StreamTopics


def reached(app: App) -> StreamTopics:
    """Raises ConfigError: no Kafka is configured, or its packages are not installed."""
    from iothub.hub.stream_drivers import no_kafka

    settings = app.loaded.config
    why = no_kafka(settings)
    if why:
        raise ConfigError(f"a stream needs Kafka: {why}")
    from iothub_services.events.kafka.cluster import KafkaCluster
    from iothub_services.streams.kafka.topics import StreamTopics

    return StreamTopics(KafkaCluster(settings.kafka))


def owned(app: App) -> Owned:
    """Return Kafka's topics of the prefix as stores that are somebody's. Needs what `reached` has seen."""
    from iothub.hub.installation import installation_of
    from iothub.hub.stream_drivers import owned_topics

    return owned_topics(app.loaded.config, installation_of(app.loaded.config, app.data_dir))
