"""`iothub_spark.stores.log_kafka` without a cluster: what is trimmed of which partition, and what is said when the cluster does not let us."""

from __future__ import annotations

import pytest
from kafka.errors import (
    ClusterAuthorizationFailedError,
    KafkaTimeoutError,
    PolicyViolationError,
    TopicAuthorizationFailedError,
)
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError, ConfigError
from iothub.base.units import Endpoint
from iothub.records.events import GENERATION_BITS, Topic
from iothub.records.job_spec import KafkaLog
from iothub.records.layout import kafka_base
from iothub_spark.stores import log_kafka
from iothub_spark.stores.log import Offsets
from iothub_spark.stores.log_kafka import KafkaStretches

ABOVE = 1 << GENERATION_BITS


class Admin:
    """Takes what is to be deleted."""

    asked: list[dict[TopicPartition, int]]
    error: Exception | None

    def __init__(self, **_: object) -> None:
        """Every client is the same."""

    def delete_records(self, keep: dict[TopicPartition, int]) -> None:
        if Admin.error is not None:
            raise Admin.error
        Admin.asked.append(keep)

    def close(self) -> None:
        """Nothing is open."""


@pytest.fixture(autouse=True)
def _admin(monkeypatch: pytest.MonkeyPatch) -> None:
    Admin.asked, Admin.error = [], None
    monkeypatch.setattr(log_kafka, "KafkaAdminClient", Admin)


def log(monkeypatch: pytest.MonkeyPatch, begin: Offsets, generation: int = 0) -> KafkaStretches:
    made = KafkaStretches(KafkaLog((Endpoint("kafka", 9092),)))
    made._places[Topic.SESSIONS] = log_kafka._Place("t", len(begin), kafka_base(generation))
    monkeypatch.setattr(made, "begin", lambda *_: begin)
    return made


def test_each_partition_is_trimmed_up_to_its_own_offset(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's offsets begin at 0, ours at 1; nothing is asked for what is trimmed already."""
    assert log(monkeypatch, (1, 8, 1)).trim((5, 7, 0)) == 5
    assert log(monkeypatch, (6, 8, 1)).trim((5, 7, 0)) == 0

    assert Admin.asked == [{TopicPartition("t", 0): 5}]


def test_offsets_of_an_older_generation_trim_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """What they were of is another topic."""
    log(monkeypatch, (ABOVE + 1, ABOVE + 1), generation=1).trim((90, ABOVE + 4))

    assert Admin.asked == [{TopicPartition("t", 1): 4}]


@pytest.mark.parametrize(
    ("error", "remedy", "other"),
    [
        (
            TopicAuthorizationFailedError("no right"),
            "grant the job's user Delete on topic t;",
            "cleanup.policy",
        ),
        (ClusterAuthorizationFailedError("no"), "grant the job's user Delete on topic t;", "cleanup.policy"),
        (PolicyViolationError("compacted"), "set cleanup.policy=delete on topic t;", "right"),
    ],
)
def test_cluster_that_does_not_let_us_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str, other: str
) -> None:
    """A right does not help where the topic is compacted alone."""
    Admin.error = error

    with pytest.raises(ConfigError, match=remedy) as caught:
        log(monkeypatch, (1,)).trim((5,))
    assert other not in str(caught.value)


def test_cluster_that_does_not_answer_is_tried_again_by_the_next_run(monkeypatch: pytest.MonkeyPatch) -> None:
    Admin.error = KafkaTimeoutError("no answer")

    with pytest.raises(BackendError) as caught:
        log(monkeypatch, (1,)).trim((5,))
    assert caught.value.retryable
