"""A Kafka cluster as the settings describe it: makes clients for it, and translates their errors into ours.

Knows kafka-python's options and no topic. Clients are made when they are needed: making one asks the brokers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka import errors as kafka_errors
from kafka.errors import KafkaConnectionError, KafkaError, KafkaTimeoutError

from iothub.base.errors import BackendError
from iothub.config.sections import Kafka
from iothub.records.kafka_security import KafkaSecurity
from iothub_services.events.kafka.connections import PROXY_URL, ended_unless_made
from iothub_services.events.kafka.metadata import ask_once
from iothub_services.events.kafka.troubles import listen
from iothub_services.probing import Advice

Client = TypeVar("Client")

ADVICE = Advice("kafka.brokers and the rest of [kafka]", "docs/guide/kafka.md#the-hub-does-not-reach-kafka")

RECORD_BYTES = 2 << 20  # a Will Message in base64 with its properties is below that
REQUEST_BYTES = 8 << 20
_FETCH_BYTES = 16 << 20
FETCH_WAIT_MS = 500
_BACKOFF_MS = 50
_BACKOFF_MOST_MS = 1_000  # a server that has returned is found within this
_LINGER_MS = 10  # never waited for: every write is flushed
_AGES_MS = 1 << 31  # a batch stays with its producer, which alone can send it again without doubling it
_METADATA_AGE_MS = 30_000

# Errors that no retry repairs, whatever happens to the cluster.
_FINAL = (
    kafka_errors.MessageSizeTooLargeError,
    kafka_errors.RecordListTooLargeError,
    kafka_errors.InvalidRecordError,
    kafka_errors.InvalidTimestampError,
    kafka_errors.UnsupportedVersionError,
)


_last_words = listen()


class KafkaCluster:
    """Makes clients for one cluster."""

    def __init__(self, settings: Kafka) -> None:
        self.settings = settings
        self.name = f"Kafka at {', '.join(map(str, settings.brokers))}"

    def producer(self, linger_ms: int = _LINGER_MS) -> KafkaProducer:
        """An idempotent one: what it sends again is in the log once, in its place. `linger_ms`: so long it gathers more for a request."""
        made = self._made(
            KafkaProducer,
            acks="all",
            enable_idempotence=True,
            delivery_timeout_ms=_AGES_MS,
            max_block_ms=self._timeout_ms(),
            max_request_size=REQUEST_BYTES,
            batch_size=REQUEST_BYTES // 8,
            linger_ms=linger_ms,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )
        ask_once(made)
        return made

    def consumer(self, wait_ms: int = FETCH_WAIT_MS, group: str | None = None) -> KafkaConsumer:
        """Return a consumer that reads what it is assigned, and joins no group. `group`: the name under which its offsets are kept, if any."""
        return self._made(
            KafkaConsumer,
            group_id=group,
            enable_auto_commit=False,
            auto_offset_reset="none",  # to jump from an offset that was trimmed away would skip events unseen
            fetch_max_bytes=_FETCH_BYTES,
            fetch_max_wait_ms=wait_ms,
            max_partition_fetch_bytes=_FETCH_BYTES // 4,
            allow_auto_create_topics=False,
            metrics_enabled=False,
        )

    @contextmanager
    def admin(self) -> Iterator[KafkaAdminClient]:
        """A client for the administration of topics, for a moment."""
        with self.errors_translated():
            client = self._made(KafkaAdminClient)
            try:
                yield client
            finally:
                client.close()

    @contextmanager
    def errors_translated(self) -> Iterator[None]:
        try:
            yield
        except KafkaError as error:
            raise self.error(error) from error

    def error(self, error: BaseException, *, is_written: bool = False) -> BackendError:
        """Translate. Not retryable: what can never succeed; rights and settings of a cluster can be put right."""
        text = str(error).removeprefix(f"{type(error).__name__}: ") or type(error).__name__
        remedy = ""
        if isinstance(error, KafkaTimeoutError | KafkaConnectionError):
            text = f"no answer ({_last_words.take_recent() or text})"
            remedy = str(ADVICE)
        is_final = isinstance(error, _FINAL)
        return BackendError(f"{self.name}: {text}", retryable=not is_final, is_written=is_written, remedy=remedy)

    def _made(self, make: Callable[..., Client], **options: Any) -> Client:
        with ended_unless_made() as kafka_client:
            return make(**self._common(), **options, kafka_client=kafka_client)

    def _common(self) -> dict[str, Any]:
        settings = self.settings
        timeout_ms = self._timeout_ms()
        return {
            "bootstrap_servers": list(map(str, settings.brokers)),
            "client_id": "iothub",
            "request_timeout_ms": timeout_ms,
            "bootstrap_timeout_ms": timeout_ms,
            "reconnect_backoff_ms": _BACKOFF_MS,
            "reconnect_backoff_max_ms": _BACKOFF_MOST_MS,
            "retry_backoff_ms": _BACKOFF_MS,
            "metadata_max_age_ms": _METADATA_AGE_MS,
            "proxy_url": PROXY_URL,
            **security_options(settings),
        }

    def _timeout_ms(self) -> int:
        return int(self.settings.timeout_s * 1000)


def security_options(settings: Kafka) -> dict[str, Any]:
    """Return TLS and SASL as kafka-python wants them. Raises ConfigError for a file that cannot be read."""
    files = (settings.ca_file, settings.cert_file, settings.key_file)
    sasl = (settings.sasl_mechanism, settings.sasl_username, settings.sasl_password_file)
    return KafkaSecurity(settings.security_protocol, *files, *sasl).options()
