"""Kafka's topics of streams, for commands: the way to them, whose they are, and those of a tenant that is being deleted.

Knows no stream's accounts. Kafka's library is imported where it is needed: it is an extra.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iothub.base.errors import ConfigError, IotHubError, NotOursError, UnavailableError
from iothub.cli.app import App
from iothub_services.streams.port import Stream

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


def require_kafka(app: App, tenant: str) -> None:
    """Raise ConfigError when this process, which is to delete the topics of a tenant, lacks the packages for that."""
    from iothub.hub.stream_drivers import no_kafka

    why = no_kafka(app.loaded.config) if app.loaded.config.kafka.brokers else ""
    if why:
        raise ConfigError(
            f"tenant {tenant} has streams, whose topics cannot be deleted: {why}; nothing was deleted: install them, or repeat this while "
            "the hub runs"
        )


def delete_of_tenant(app: App, tenant: str, streams: Sequence[Stream]) -> None:
    """Delete the topics of a tenant that is being deleted, or tell of those that stay because they are not ours. Idempotent.

    Raises:
        UnavailableError: Kafka does not answer, or refuses; the text says what is deleted and what is not.
    """
    config = app.loaded.config
    names = [name for stream in streams for name in stream.topics(config.kafka.topic_prefix)]
    if not config.kafka.brokers:
        app.say(
            "iothub: warning: kafka.brokers is not set: where a Kafka has topics of the tenant's streams, they stay: "
            f"{', '.join(names)}"
        )
        return
    try:
        topics = reached(app)
        whose = _not_ours(app)
        if whose is None:
            topics.delete(streams)
    except IotHubError as error:
        raise UnavailableError(
            f"its devices and stored messages are gone, the topics of its streams are not, for {error}"
        ) from None
    if whose is not None:
        app.say(
            f"iothub: warning: the topics of tenant {tenant} stay, for they are not this installation's: {whose}; delete them by hand if "
            f"nobody uses them: {topics.by_hand(names)}"
        )


def _not_ours(app: App) -> NotOursError | None:
    try:
        owned(app).check()
    except NotOursError as error:
        return error
    return None
