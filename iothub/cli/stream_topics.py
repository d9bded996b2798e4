"""The Kafka topics of streams, for commands: how to reach them, and which installation they belong to.

Knows no stream of the accounts. Kafka's library is an extra, so it is imported where it is needed.
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
    """Return the Kafka topics of the prefix as stores that an installation owns. Call `reached` before."""
    from iothub.hub.installation import installation_of
    from iothub.hub.stream_drivers import owned_topics

    return owned_topics(app.loaded.config, installation_of(app.loaded.config, app.data_dir))
