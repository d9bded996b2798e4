"""Which lines of kafka-python are passed on."""

from __future__ import annotations

import logging

import pytest
from kafka.errors import KafkaConnectionError, KafkaTimeoutError, TopicAuthorizationFailedError

from iothub_services.events.kafka.cluster import ADVICE, KafkaCluster
from iothub_services.events.kafka.troubles import LastFailures
from tests.support.servers.fake_kafka import SETTINGS

TIME_OVER = KafkaTimeoutError("Unable to bootstrap from ['kafka-1:9092']")


def failed(why: str) -> None:
    """Complain as the library does: the cause, then what comes of it."""
    logger = logging.getLogger("kafka.net.manager")
    logger.warning("Bootstrap connection to bootstrap-0 failed: %s (backoff 0.05 secs)", why)
    logger.warning("Bootstrap bootstrap-0 not ready; waiting 0.05 secs")
    logger.error("Bootstrap failed: %s", TIME_OVER)


def heard(now_s: float, *lines: tuple[float, str]) -> str:
    words = LastFailures(lambda: now_s)
    for at_s, why in lines:
        words.emit(logging.makeLogRecord({"msg": f"Connection failed: {why}", "created": at_s}))
    return words.take_recent()


def test_cause_is_told_with_where_to_read_on() -> None:
    """The error alone says that time is over."""
    failed("[Error 58] SaslAuthenticationFailedError: no")

    error = KafkaCluster(SETTINGS).error(TIME_OVER)

    assert error.fact == "Kafka at kafka-1:9092: no answer ([Error 58] SaslAuthenticationFailedError: no)"
    assert error.remedy == str(ADVICE)
    assert error.retryable


def test_refusal_is_told_beside_what_follows_it() -> None:
    """A broker that refused hangs up, too, and the last attempt ends with the time; attempts that end alike are told once."""
    failed("SaslAuthenticationFailedError: no")
    failed("KafkaConnectionError: socket disconnected")
    failed("SaslAuthenticationFailedError: no")

    assert (
        KafkaCluster(SETTINGS)
        .error(KafkaConnectionError("no"))
        .fact.endswith("no answer (SaslAuthenticationFailedError: no; KafkaConnectionError: socket disconnected)")
    )


def test_refused_call_has_the_brokers_words_alone() -> None:
    """Its connection is well."""
    error = KafkaCluster(SETTINGS).error(TopicAuthorizationFailedError("no right"))

    assert ("no right" in error.fact, error.remedy) == (True, "")


def test_number_of_lines_is_bounded() -> None:
    """The newest ones stay."""
    assert heard(104.0, *((100.0 + number, f"cause {number}") for number in range(5))) == "cause 2; cause 3; cause 4"


def test_line_of_an_older_failure_gives_way() -> None:
    """It may have been mended since."""
    assert heard(140.0, (100.0, "UnsupportedSaslMechanismError"), (131.0, "111 ECONNREFUSED")) == "111 ECONNREFUSED"


@pytest.mark.parametrize(("now_s", "text"), [(130.0, "UnsupportedSaslMechanismError"), (131.0, "")])
def test_line_of_long_ago_is_no_cause(now_s: float, text: str) -> None:
    """Of a failure that nobody asked about: of another client, perhaps, and mended since."""
    assert heard(now_s, (100.0, "UnsupportedSaslMechanismError")) == text
