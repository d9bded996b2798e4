"""The streams: does Kafka have the topic of each?

Knows no message. Creates nothing; only the hub does.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from iothub.base.errors import IotHubError
from iothub.config.datadir import DataDir
from iothub.config.sections import Config
from iothub.doctor.findings import Check, Finding, State, timed, unless_down
from iothub.hub.stores.drivers import require_extra
from iothub_services.streams.port import Stream
from iothub_tenants.accounts import streams
from iothub_tenants.accounts.database import accounts_url
from iothub_tenants.accounts.store import AccountStore

_NAME = "streams"


def check(data_dir: DataDir, settings: Config) -> Check:
    return unless_down(Check(_NAME, lambda: _check(data_dir, settings)))


def _check(data_dir: DataDir, settings: Config) -> Iterator[Finding]:
    found = known(data_dir, settings)
    if not found:
        yield Finding(_NAME, State.OK, "there are no streams")
        return
    require_extra("streams", "kafka", "kafka", "crc32c")
    missing, seconds = timed(lambda: _missing(settings, found))
    if missing:
        yield Finding(
            _NAME,
            State.WARN,
            f"Kafka has no topic {missing[0]}" + (f", and {len(missing) - 1} more are missing" if missing[1:] else ""),
            "the hub creates it with the next message; find out who deleted it",
            seconds,
        )
    else:
        yield Finding(_NAME, State.OK, f"{len(found)}, Kafka has all their topics", seconds=seconds)


def known(data_dir: DataDir, settings: Config) -> list[Stream]:
    """Return the streams that a hub serves. Raises BackendError, ConfigError."""
    with closing(AccountStore(accounts_url(settings.sql.url_file, data_dir.accounts))) as store:
        return streams.active(store)


def need_kafka(data_dir: DataDir, settings: Config) -> bool:
    """Whether a hub refuses work or does not start without Kafka. True if the accounts do not answer."""
    if settings.events.driver == "kafka":
        return True
    try:
        return data_dir.is_initialised and bool(known(data_dir, settings))
    except IotHubError:
        return True


def _missing(settings: Config, found: list[Stream]) -> list[str]:
    from iothub_services.events.kafka.cluster import KafkaCluster
    from iothub_services.streams.kafka.topics import StreamTopics

    names = [stream.topic(settings.kafka.topic_prefix) for stream in found]
    there = StreamTopics(KafkaCluster(settings.kafka)).there(names)
    return [name for name in names if name not in there]
