"""The way to a Kafka cluster: options for TLS and SASL, and what becomes of the library's errors and lines."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.errors import (
    KafkaConnectionError,
    KafkaTimeoutError,
    MessageSizeTooLargeError,
    NotEnoughReplicasError,
    TopicAuthorizationFailedError,
    UnsupportedVersionError,
)

from iothub.base.errors import BackendError, ConfigError
from iothub_services.events.kafka.cluster import ADVICE, KafkaCluster, security_options
from tests.support.servers.fake_kafka import SETTINGS


@pytest.mark.parametrize(
    ("error", "is_retryable"),
    [
        (KafkaTimeoutError("no"), True),
        (NotEnoughReplicasError("no"), True),
        (TopicAuthorizationFailedError("no"), True),  # somebody may give the right
        (MessageSizeTooLargeError("no"), False),
        (UnsupportedVersionError("no"), False),
    ],
)
def test_errors_say_whether_a_repetition_may_help(error: Exception, is_retryable: bool) -> None:
    found = KafkaCluster(SETTINGS).error(error)

    assert isinstance(found, BackendError)
    assert (found.retryable, found.is_written) == (is_retryable, False)
    assert str(found).startswith("Kafka at kafka-1:9092: ")


def test_time_out_says_what_the_library_complained_of() -> None:
    """Its own error says only that time is over. Nothing of it goes to our log."""
    cluster, error = KafkaCluster(SETTINGS), KafkaConnectionError("Unable to bootstrap")
    str(cluster.error(error))
    logging.getLogger("kafka.net.manager").error("Connection failed: %s", "111 ECONNREFUSED")

    first, second = str(cluster.error(error)), str(cluster.error(error))

    assert first == f"Kafka at kafka-1:9092: no answer (111 ECONNREFUSED); {ADVICE}"
    assert second == f"Kafka at kafka-1:9092: no answer (Unable to bootstrap); {ADVICE}"
    assert not logging.getLogger("kafka").propagate


def test_plain_connections_need_no_options() -> None:
    assert security_options(SETTINGS) == {"security_protocol": "PLAINTEXT"}


def test_tls_takes_the_files_that_are_given(tmp_path: Path) -> None:
    settings = replace(SETTINGS, security_protocol="SSL", ca_file=tmp_path / "ca", cert_file=tmp_path / "c")

    assert security_options(settings) == {
        "security_protocol": "SSL",
        "ssl_cafile": str(tmp_path / "ca"),
        "ssl_certfile": str(tmp_path / "c"),
    }


def test_password_comes_from_its_file(tmp_path: Path) -> None:
    """Without the end of the line that editors write."""
    file = tmp_path / "password"
    file.write_text("s3cret\n")
    settings = replace(
        SETTINGS, security_protocol="SASL_SSL", sasl_username="hub", sasl_password_file=file, ca_file=tmp_path / "ca"
    )

    assert security_options(settings) == {
        "security_protocol": "SASL_SSL",
        "ssl_cafile": str(tmp_path / "ca"),
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "hub",
        "sasl_plain_password": "s3cret",
    }


def test_password_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    settings = replace(
        SETTINGS, security_protocol="SASL_SSL", sasl_username="hub", sasl_password_file=tmp_path / "none"
    )

    with pytest.raises(ConfigError, match=r"kafka.sasl_password_file: .*none: No such file"):
        security_options(settings)
    with pytest.raises(ConfigError, match=r"needs kafka\.sasl_password_file"):
        security_options(replace(settings, sasl_password_file=None))
