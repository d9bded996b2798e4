"""Which line of kafka-python counts, and what somebody must correct."""

from __future__ import annotations

import logging

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError

from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.events.kafka.troubles import LastWords
from tests.support.fake_kafka import SETTINGS

TIME_OVER = KafkaTimeoutError("Unable to bootstrap from ['kafka-1:9092']")


def failed(why: str) -> None:
    """Complain as the library does: the cause, then what comes of it."""
    logger = logging.getLogger("kafka.net.manager")
    logger.warning("Bootstrap connection to bootstrap-0 failed: %s (backoff 0.05 secs)", why)
    logger.warning("Bootstrap bootstrap-0 not ready; waiting 0.05 secs")
    logger.error("Bootstrap failed: %s", TIME_OVER)


@pytest.mark.parametrize(
    ("why", "key"),
    [
        ("[Error 58] SaslAuthenticationFailedError: Invalid username or password", "kafka.sasl_password_file"),
        ("[Error 33] UnsupportedSaslMechanismError", "kafka.sasl_mechanism"),
        ("[Error 34] IllegalSaslStateError", "kafka.security_protocol"),
        ("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] self-signed certificate", "kafka.ca_file"),
        ("Handshake failed: [SSL: CERTIFICATE_VERIFY_FAILED] certificate is not valid for 'b'", "kafka.brokers"),
        ("[X509: KEY_VALUES_MISMATCH] key values mismatch", "kafka.key_file"),
        ("[SSL: SSLV3_ALERT_BAD_CERTIFICATE] sslv3 alert bad certificate", "kafka.cert_file"),
        ("Handshake failed: [SSL: UNEXPECTED_EOF_WHILE_READING]", "may speak no TLS"),
        ("InvalidReceiveError: Invalid frame length: 352518912", "may speak TLS"),
    ],
    ids=lambda each: each.partition(":")[0],
)
def test_cause_and_key_are_told(why: str, key: str) -> None:
    """Somebody is there: it is not "no answer"."""
    failed(why)

    told = KafkaCluster(SETTINGS).error(TIME_OVER)

    assert told.fact == f"Kafka at kafka-1:9092: no connection ({why})"
    assert key in told.remedy
    assert told.retryable


def test_refusal_counts_more_than_what_follows_it() -> None:
    """A broker that refused hangs up, too, and the last attempt ends with the time."""
    failed("[Error 58] SaslAuthenticationFailedError: no")
    failed("KafkaConnectionError: socket disconnected")
    failed("[Error 7] RequestTimedOutError: Request timed out after 60 ms")

    assert "SaslAuthenticationFailed" in KafkaCluster(SETTINGS).error(TIME_OVER).fact


def test_broker_that_hangs_up_may_want_more() -> None:
    """Or it ends: nothing else is known."""
    failed("KafkaConnectionError: socket disconnected")

    told = KafkaCluster(SETTINGS).error(TIME_OVER)

    assert told.fact.endswith("no answer (KafkaConnectionError: socket disconnected)")
    assert "may speak TLS or want SASL" in told.remedy


def test_broker_that_is_away_has_no_remedy() -> None:
    failed("KafkaConnectionError: 111 ECONNREFUSED")

    told = KafkaCluster(SETTINGS).error(KafkaConnectionError("no"))

    assert (told.remedy, "111 ECONNREFUSED" in told.fact) == ("", True)


def test_missing_right_is_told_of_any_call() -> None:
    assert "ACL" in KafkaCluster(SETTINGS).error(TopicAuthorizationFailedError("no")).remedy


def test_line_of_an_older_failure_gives_way() -> None:
    """It may have been mended since."""
    words = LastWords(lambda: 140.0)
    for at_s, why in ((100.0, "UnsupportedSaslMechanismError"), (131.0, "111 ECONNREFUSED")):
        record = logging.makeLogRecord({"msg": f"Connection failed: {why}", "created": at_s})
        words.emit(record)

    assert words.take().text == "111 ECONNREFUSED"


@pytest.mark.parametrize(("now_s", "text"), [(130.0, "UnsupportedSaslMechanismError"), (131.0, "")])
def test_line_of_long_ago_is_no_cause(now_s: float, text: str) -> None:
    """Of a failure that nobody asked about: of another client, perhaps, and mended since."""
    words = LastWords(lambda: now_s)
    words.emit(logging.makeLogRecord({"msg": "Connection failed: UnsupportedSaslMechanismError", "created": 100.0}))

    assert words.take().text == text
