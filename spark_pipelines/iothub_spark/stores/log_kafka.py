"""The event log on Kafka, read by place and in no group: offsets are captured once, then each partition is read up to there. And trimmed.

Knows topics, generations and bytes. The session log is the newest generation of its topic; a generation is the upper part of every offset, so what
an older one was read up to lies below, as a gap.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from kafka import KafkaAdminClient, KafkaConsumer
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError, ConfigError, NotFoundError
from iothub.records.events import Topic, partition_of
from iothub.records.job_spec import KafkaLog
from iothub.records.layout import kafka_base, kafka_topic, newest_generation
from iothub_spark.stores.log import Offsets, Page, StoredEvent, Stretch

_FORBIDDEN = (TopicAuthorizationFailedError, ClusterAuthorizationFailedError)
_PAGE = 10_000  # records per poll
_FETCH_BYTES = 16 << 20
_POLL_MS = 500
_PATIENCE = 10  # times the timeout: so long may nothing come although there is something


@dataclass(frozen=True, slots=True)
class _Place:
    """One topic as it is. `base`: added to Kafka's offsets to get ours."""

    name: str
    partitions: int
    base: int


class KafkaStretches:
    """Fulfils `Log`. For one thread; clients are made when they are needed."""

    def __init__(self, settings: KafkaLog) -> None:
        self._settings = settings
        self._name = f"Kafka at {', '.join(map(str, settings.brokers))}"
        self._places: dict[Topic, _Place] = {}
        self._consumer: KafkaConsumer | None = None

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        place = self._place(topic)
        with self._errors_translated():
            found = self._client().beginning_offsets(_all(place), timeout_ms=self._timeout_ms)
        return tuple(found[each] + place.base for each in _all(place))

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        place = self._place(topic)
        with self._errors_translated():
            found = self._client().end_offsets(_all(place), timeout_ms=self._timeout_ms)
        return tuple(found[each] + place.base - 1 for each in _all(place))

    def read(self, stretch: Stretch, topic: Topic = Topic.SESSIONS, keys: tuple[bytes, ...] = ()) -> Iterator[Page]:
        place = self._place(topic)
        homes = {partition_of(key.decode(errors="replace"), place.partitions) for key in keys}
        if homes and stretch.partition not in homes:
            return
        for page in self._pages(place, stretch):
            wanted = [event for event in page if event.key in keys] if keys else page
            if wanted:
                yield wanted

    def trim(self, upto: Offsets) -> int:
        """Remove the session events up to and including these offsets; returns how many. What lies in an older generation is not looked for.

        Raises ConfigError: the cluster does not let us.
        """
        place, begin = self._place(Topic.SESSIONS), self.begin()
        wanted = [(part, offset) for part, offset in enumerate(upto) if offset >= begin[part]]
        keep = {TopicPartition(place.name, part): offset - place.base + 1 for part, offset in wanted}
        if keep:
            self._delete(place, keep)
        return sum(offset - begin[part] + 1 for part, offset in wanted)

    def _delete(self, place: _Place, keep: dict[TopicPartition, int]) -> None:
        try:
            with self._errors_translated():
                admin = KafkaAdminClient(**self._options())
                try:
                    admin.delete_records(keep)
                finally:
                    admin.close()
        except BackendError as error:
            if isinstance(error.__cause__, _FORBIDDEN):
                remedy = f"grant the job's user Delete on topic {place.name}"
            elif isinstance(error.__cause__, PolicyViolationError):
                remedy = f"set cleanup.policy=delete on topic {place.name}"
            else:
                raise
            raise ConfigError(
                f"{self._name} refuses to trim the session log ({error.__cause__}): {remedy}; "
                "the new checkpoint is valid all the same"
            ) from error

    def where(self, partition: int, offset: int, topic: Topic = Topic.SESSIONS) -> str:
        place = self._place(topic)
        return f"topic {place.name}, partition {partition}, Kafka's offset {offset - place.base}"

    def close(self) -> None:
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _pages(self, place: _Place, stretch: Stretch) -> Iterator[Page]:
        """Read until the position has passed the end: the last offsets may be none of ours."""
        consumer, where = self._client(), TopicPartition(place.name, stretch.partition)
        end = stretch.upto - place.base + 1
        with self._errors_translated():
            consumer.assign([where])
            consumer.seek(where, max(0, stretch.after - place.base + 1))
        deadline = self._deadline()
        while True:
            with self._errors_translated():
                if consumer.position(where, timeout_ms=self._timeout_ms) >= end:
                    return
                found = consumer.poll(timeout_ms=_POLL_MS, max_records=_PAGE).get(where, [])
            if found:
                deadline = self._deadline()
                yield [
                    StoredEvent(record.offset + place.base, record.key or b"", record.value or b"")
                    for record in found
                    if record.offset < end
                ]
            elif time.monotonic() > deadline:
                raise BackendError(f"{self._name}: the topic has records, but none arrived in time", retryable=True)

    def _place(self, topic: Topic) -> _Place:
        if topic not in self._places:
            self._places[topic] = self._find(topic)
        return self._places[topic]

    def _find(self, topic: Topic) -> _Place:
        prefix = self._settings.topic_prefix
        with self._errors_translated():
            admin = KafkaAdminClient(**self._options())
            try:
                found = admin.list_topics()
                generation = newest_generation(prefix, found) if topic is Topic.SESSIONS else 0
                name = kafka_topic(prefix, topic, generation)
                if name not in found:
                    raise NotFoundError(f"{self._name} has no topic {name}: the first `iothub serve` creates it")
                (described,) = admin.describe_topics([name])
            finally:
                admin.close()
        return _Place(name, len(described["partitions"]), kafka_base(generation))

    def _client(self) -> KafkaConsumer:
        if self._consumer is None:
            self._consumer = KafkaConsumer(
                **self._options(),
                group_id=None,
                enable_auto_commit=False,
                auto_offset_reset="none",
                fetch_max_bytes=_FETCH_BYTES,
                max_partition_fetch_bytes=_FETCH_BYTES // 4,
                allow_auto_create_topics=False,
                metrics_enabled=False,
            )
        return self._consumer

    def _options(self) -> dict[str, Any]:
        return {
            "bootstrap_servers": list(map(str, self._settings.brokers)),
            "client_id": "iothub-job",
            "request_timeout_ms": self._timeout_ms,
            "bootstrap_timeout_ms": self._timeout_ms,
            **self._settings.security.options(),
        }

    @property
    def _timeout_ms(self) -> int:
        return int(self._settings.timeout_s * 1000)

    def _deadline(self) -> float:
        return time.monotonic() + self._settings.timeout_s * _PATIENCE

    @contextmanager
    def _errors_translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            text = str(error).removeprefix(f"{type(error).__name__}: ") or type(error).__name__
            raise BackendError(f"{self._name}: {text}", retryable=True) from error


def _all(place: _Place) -> list[TopicPartition]:
    return [TopicPartition(place.name, partition) for partition in range(place.partitions)]
