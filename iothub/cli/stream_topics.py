"""Streams with their Kafka topics, for commands and the REST API: how to reach the topics, whose they are, and creating and deleting both.

Prints nothing. Kafka's library is an extra, so it is imported where it is needed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from iothub.base.errors import ConfigError, ConflictError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub_services.streams.port import Direction, Stream, topic_name

if TYPE_CHECKING:
    from iothub.hub.stores.installation import Owned
    from iothub_services.streams.kafka.topics import StreamTopics
    from iothub_tenants.accounts.store import AccountStore

Row = dict[str, object]


def reached(settings: Config) -> StreamTopics:
    """Raises ConfigError: no Kafka is configured, or its packages are not installed."""
    from iothub.hub.stores.stream_drivers import no_kafka

    why = no_kafka(settings)
    if why:
        raise ConfigError(f"a stream needs Kafka: {why}")
    from iothub_services.events.kafka.cluster import KafkaCluster
    from iothub_services.streams.kafka.topics import StreamTopics

    return StreamTopics(KafkaCluster(settings.kafka))


def owned(settings: Config, data_dir: DataDir) -> Owned:
    """Return the Kafka topics of the prefix as stores that an installation owns. Call `reached` before."""
    from iothub.hub.stores.installation import installation_of
    from iothub.hub.stores.stream_drivers import owned_topics

    return owned_topics(settings, installation_of(settings, data_dir))


def create(  # noqa: PLR0913 - where it is made, and what
    settings: Config,
    data_dir: DataDir,
    store: AccountStore,
    tenant: str,
    name: str,
    topic_filter: str,
    *,
    direction: Direction,
    partitions: int | None = None,
    retention_s: float | None = None,
) -> tuple[Stream, list[str]]:
    """Create a stream and its topic; return it, and those of its topics that were there already.

    Raises:
        ConfigError: there is no Kafka, or the name or the filter is malformed.
        ConflictError: the topics belong to another installation, or there is such a stream.
        NotFoundError: no such tenant.
        TenantLimitError: the tenant may have no more streams.
        UnavailableError: Kafka does not answer; no stream is created.
    """
    from iothub_tenants.accounts import streams  # loads a database library

    topics, ownership = reached(settings), owned(settings, data_dir)
    ownership.check()
    kept_ms = int((settings.streams.retention_s if retention_s is None else retention_s) * 1000)
    partitions = partitions or settings.streams.partitions
    wanted = streams.Wanted(name, topic_filter, direction, partitions, kept_ms)
    found = topics.there([topic_name(settings.kafka.topic_prefix, tenant, name, direction)])
    made = streams.create(store, tenant, wanted)
    try:
        ownership.claim()
        topics.make(made)
    except BaseException:
        streams.remove(store, tenant, name)
        raise
    return made, list(found)


def delete(settings: Config, data_dir: DataDir, store: AccountStore, stream: Stream, *, is_topic_kept: bool) -> None:
    """Delete a stream, its rules and, unless it is kept, its topic.

    Raises:
        ConflictError: the topic belongs to another installation; nothing is deleted.
        UnavailableError: Kafka does not answer; the stream is deleted, and the text says how to delete its topic.
    """
    from iothub_tenants.accounts import streams  # loads a database library

    topics = None if is_topic_kept else reached(settings)
    why_kept = None if is_topic_kept else _require_own(settings, data_dir)
    streams.remove(store, stream.tenant, stream.name)
    if topics is not None:
        _delete_topics(topics, stream, why_kept)


def rows(store: AccountStore, settings: Config, tenant: str) -> list[Row]:
    """Return the streams of a tenant as they are shown. Raises NotFoundError."""
    from iothub_tenants.accounts import streams  # loads a database library

    return [row(settings, found) for found in streams.list_all(store, tenant)]


def shown(store: AccountStore, settings: Config, tenant: str, name: str) -> Row:
    """Return one stream as it is shown. Raises NotFoundError."""
    from iothub_tenants.accounts import streams  # loads a database library

    return row(settings, streams.show(store, tenant, name))


def created(  # noqa: PLR0913 - where it is made, and what
    store: AccountStore,
    settings: Config,
    data_dir: DataDir,
    tenant: str,
    name: str,
    topic_filter: str,
    *,
    direction: Direction,
    partitions: int | None = None,
    retention_s: float | None = None,
) -> Row:
    """Create a stream and its topic; return it as it is shown, with its `existing_topics`. Raises as `create`."""
    options = {"partitions": partitions, "retention_s": retention_s}
    made, found = create(settings, data_dir, store, tenant, name, topic_filter, direction=direction, **options)  # type: ignore[arg-type]
    return {**row(settings, made), "existing_topics": found}


def deleted(
    store: AccountStore, settings: Config, data_dir: DataDir, tenant: str, name: str, *, is_topic_kept: bool
) -> None:
    """Delete a stream. Raises NotFoundError, and as `delete`."""
    from iothub_tenants.accounts import streams  # loads a database library

    delete(settings, data_dir, store, streams.show(store, tenant, name), is_topic_kept=is_topic_kept)


def row(settings: Config, stream: Stream) -> Row:
    """Return a stream as it is shown."""
    return {
        "name": stream.name,
        "tenant": stream.tenant,
        "direction": stream.direction.value,
        "filter": stream.filter,
        "topic": stream.topic(settings.kafka.topic_prefix),
        "partitions": stream.partitions,
        "retention_s": stream.retention_ms / 1000,
    }


def by_hand(topics: StreamTopics, names: Sequence[str]) -> str:
    return f"delete it, else a new stream of that name starts with its messages: {topics.by_hand(names)}"


def _require_own(settings: Config, data_dir: DataDir) -> UnavailableError | None:
    """Return the error of a Kafka that does not answer. Raises ConflictError: the topics belong to another installation."""
    try:
        owned(settings, data_dir).check()
    except ConflictError as error:
        raise ConflictError(f"{error}; to delete the stream only, use --keep-topic") from None
    except UnavailableError as error:
        return error
    return None


def _delete_topics(topics: StreamTopics, stream: Stream, why_not: UnavailableError | None) -> None:
    try:
        if why_not is not None:
            raise why_not
        topics.delete([stream])
    except UnavailableError as error:
        raise UnavailableError(
            f"stream {stream.name} of tenant {stream.tenant} is deleted, its topic is not: {error}; "
            f"{by_hand(topics, topics.names(stream))}"
        ) from None
