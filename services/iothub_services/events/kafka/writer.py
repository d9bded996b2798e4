"""Writing to Kafka so that every record is there once, in its order, however often it was tried.

Knows records as bytes with a place; knows no event.

Theory: what was handed to the producer stays with it until a broker has answered: it alone can send a record again without doubling it or
letting a later one overtake. So a write that is not answered in time is left where it is, and a second attempt with the same objects waits
for the same answers. A record that was given up by its caller may therefore still be written: the error says so (`is_written`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kafka import KafkaProducer
from kafka.errors import KafkaError, KafkaTimeoutError
from kafka.producer.future import FutureRecordMetadata

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import RECORD_BYTES, KafkaCluster

UNANSWERED_BYTES = 32 << 20  # what may be with the producer without an answer
_RECORD_BYTES = 512  # what a record takes beside its value
_CLOSE_S = 2.0


class Record(NamedTuple):
    """One record. `owner`: the object by which a second attempt is recognised; it must be the same one."""

    owner: object
    topic: str
    partition: int
    key: bytes
    value: bytes

    @property
    def size_bytes(self) -> int:
        return len(self.value) + len(self.key) + _RECORD_BYTES


@dataclass(frozen=True, slots=True)
class _Sent:
    owner: object  # keeps its identity from being given to another object
    size_bytes: int
    future: FutureRecordMetadata


class KafkaWriter:
    """Belongs to one thread. Invariant: `_sent` has every record without an answer, and every record whose answer was not returned yet."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._producer: KafkaProducer | None = None
        self._sent: dict[int, _Sent] = {}
        self._asked: dict[int, object] = {}  # the last batch that was new, of which parts may be asked for again

    def open(self) -> KafkaProducer:
        """Find the brokers. Raises BackendError."""
        if self._producer is None:
            with self._cluster.errors_translated():
                self._producer = self._cluster.producer()
        return self._producer

    def write(self, records: Sequence[Record]) -> list[int]:
        """Return the offsets when every record is durable; -1 for one whose place Kafka does not remember.

        Raises BackendError: not all of them are, or it is not known yet. Call it again with records of the same owners.
        """
        producer = self.open()
        if not any(id(record.owner) in self._asked for record in records):
            self._forget_answered()
            self._asked = {id(record.owner): record.owner for record in records}
        self._require_size(records)
        self._require_room(producer, records)
        try:
            for record in records:
                if id(record.owner) not in self._sent:
                    self._send(producer, record)
        except (KafkaError, ValueError) as error:
            raise self._cluster.error(error, is_written=self._is_any_sent(records)) from error
        self._await(producer, records)
        offsets = [self._sent[id(record.owner)].future.value.offset for record in records]
        for record in records:
            self._sent.pop(id(record.owner), None)
        return offsets

    def topic_id(self, topic: str) -> str:
        """Return which topic of that name the producer has found last; empty when it does not know."""
        found = None if self._producer is None else self._producer._metadata.topic_id(topic)
        return "" if found is None else str(found)

    def probe(self) -> None:
        """Raises BackendError while something that was sent is without an answer."""
        self._flush(self.open())
        self._forget_answered()
        if self._sent:
            raise self._unanswered()

    def begin_again(self) -> None:
        """Give up what has no answer; it may be written all the same."""
        self.close()
        self._sent, self._asked = {}, {}

    def close(self) -> None:
        """Wait a moment for what is under way."""
        producer, self._producer = self._producer, None
        if producer is None:
            return
        try:
            producer.close(timeout=_CLOSE_S)
        except KafkaTimeoutError:  # the brokers are gone: give up what they have not answered, so that its thread ends
            producer._sender.force_close()
            producer._sender.join(_CLOSE_S)
            with contextlib.suppress(
                KafkaTimeoutError
            ):  # its thread hangs in a system call: it ends by itself behind that
                producer.close(timeout=0)

    def _send(self, producer: KafkaProducer, record: Record) -> None:
        future = producer.send(record.topic, value=record.value, key=record.key, partition=record.partition)
        self._sent[id(record.owner)] = _Sent(record.owner, record.size_bytes, future)

    def _await(self, producer: KafkaProducer, records: Sequence[Record]) -> None:
        self._flush(producer)
        sent = [self._sent[id(record.owner)] for record in records]
        if any(one.future.failed() for one in sent):
            raise self._failure(sent)
        if not all(one.future.is_done for one in sent):
            raise self._unanswered()

    def _failure(self, sent: list[_Sent]) -> BackendError:
        """Forget what failed, so that it is sent again by another producer: this one may have lost count of its records, or given up all."""
        failed = [one for one in sent if one.future.failed()]
        error = self._cluster.error(failed[0].future.exception, is_written=len(failed) < len(sent))
        error.is_written |= error.retryable
        self.close()
        for one in failed:
            self._sent.pop(id(one.owner), None)
        return error

    def _flush(self, producer: KafkaProducer) -> None:
        """Wait for the answers, but not for long."""
        with contextlib.suppress(KafkaTimeoutError):  # the caller looks at the answers that have come
            producer.flush(timeout=self._cluster.settings.timeout_s)

    def _forget_answered(self) -> None:
        """Forget answers that are not asked for again: their callers gave up."""
        self._sent = {key: sent for key, sent in self._sent.items() if not sent.future.is_done}

    def _require_size(self, records: Sequence[Record]) -> None:
        """A broker that refuses one record makes the producer give up all: it does not get it. Raises BackendError."""
        too_large = [record for record in records if record.size_bytes > RECORD_BYTES]
        if too_large:
            raise BackendError(
                f"{self._cluster.name}: a record of {too_large[0].size_bytes} bytes is too large, at most {RECORD_BYTES} fit",
                retryable=False,
                is_written=self._is_any_sent(records),
            )

    def _require_room(self, producer: KafkaProducer, records: Sequence[Record]) -> None:
        """Nothing waits without bound: when too much is unanswered, nothing is added."""
        if not self._sent:
            return
        waiting_bytes = sum(sent.size_bytes for sent in self._sent.values())
        more_bytes = sum(record.size_bytes for record in records if id(record.owner) not in self._sent)
        if more_bytes and waiting_bytes + more_bytes > UNANSWERED_BYTES:
            self._flush(producer)
            raise self._unanswered(is_written=self._is_any_sent(records))

    def _is_any_sent(self, records: Sequence[Record]) -> bool:
        return any(id(record.owner) in self._sent for record in records)

    def _unanswered(self, *, is_written: bool = True) -> BackendError:
        count = sum(not sent.future.is_done for sent in self._sent.values())
        return BackendError(
            f"{self._cluster.name}: {count} records are not acknowledged yet", retryable=True, is_written=is_written
        )
