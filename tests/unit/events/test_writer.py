"""Writing to Kafka over a cluster in memory: what is sent once, what is sent again, what fails for good, and how much may wait."""

from __future__ import annotations

import pytest
from kafka.errors import ClusterAuthorizationFailedError, MessageSizeTooLargeError, OutOfOrderSequenceNumberError

from iothub.base.errors import BackendError
from iothub_services.events.kafka.cluster import RECORD_BYTES
from iothub_services.events.kafka.writer import UNANSWERED_BYTES, KafkaWriter, Record
from tests.support.servers.fake_kafka import FakeCluster

TOPIC = "t"


@pytest.fixture
def cluster() -> FakeCluster:
    cluster = FakeCluster()
    cluster.make(TOPIC, 1, {})
    return cluster


def record(value: bytes) -> Record:
    return Record(object(), TOPIC, 0, b"key", value)


def written(cluster: FakeCluster) -> list[bytes]:
    return cluster.topics[TOPIC].partitions[0]


def test_writer_returns_the_offsets(cluster: FakeCluster) -> None:
    writer = KafkaWriter(cluster)

    assert writer.write([record(b"a"), record(b"b")]) == [0, 1]
    assert writer.write([record(b"c")]) == [2]


def test_given_up_records_come_before_later_ones(cluster: FakeCluster) -> None:
    """What nobody waits for any more is still the producer's, in its place; its memory is given back."""
    writer = KafkaWriter(cluster)
    writer.open()
    cluster.is_away = True
    first, second = record(b"given up"), record(b"kept")
    with pytest.raises(BackendError):
        writer.write([first, second])
    with pytest.raises(BackendError):
        writer.write([second])

    cluster.is_away = False
    assert writer.write([second, record(b"later")]) == [1, 2]
    assert written(cluster) == [b"given up", b"kept", b"later"]
    writer.write([record(b"new")])
    assert writer._sent == {}


def test_record_that_is_too_large_is_not_sent(cluster: FakeCluster) -> None:
    """No repetition will do, and nothing of it is written."""
    writer = KafkaWriter(cluster)
    with pytest.raises(BackendError, match="is too large, at most 2097152 fit") as caught:
        writer.write([record(b"a"), record(b"x" * RECORD_BYTES)])

    assert (caught.value.retryable, caught.value.is_written) == (False, False)
    assert written(cluster) == []


def test_neighbours_of_a_refused_record_are_not_written_twice(cluster: FakeCluster) -> None:
    """The thread of the log takes a batch apart when it cannot succeed: those that are there stay there once."""
    writer = KafkaWriter(cluster)
    whole = [record(b"a"), record(b"refused"), record(b"b")]
    cluster.refusals[b"refused"] = MessageSizeTooLargeError("too large")
    with pytest.raises(BackendError) as caught:
        writer.write(whole)
    assert (caught.value.retryable, caught.value.is_written) == (False, True)

    assert writer.write([whole[0]]) == [0]
    cluster.refusals[b"refused"] = MessageSizeTooLargeError("too large")
    with pytest.raises(BackendError) as caught:
        writer.write([whole[1]])
    assert (caught.value.retryable, caught.value.is_written) == (False, False)
    assert writer.write([whole[2]]) == [1]
    assert written(cluster) == [b"a", b"b"]


@pytest.mark.parametrize("error", [OutOfOrderSequenceNumberError("lost"), ClusterAuthorizationFailedError("no right")])
def test_producer_that_lost_count_is_replaced(cluster: FakeCluster, error: Exception) -> None:
    """What it did not write is sent by the next one; rights may be given while the hub waits."""
    writer = KafkaWriter(cluster)
    wanted = record(b"a")
    cluster.refusals[b"a"] = error
    with pytest.raises(BackendError) as caught:
        writer.write([wanted])
    assert (caught.value.retryable, caught.value.is_written) == (True, True)

    assert writer.write([wanted]) == [0]
    assert len(cluster.producers) == 2


def test_send_that_fails_midway_is_taken_up_where_it_was(cluster: FakeCluster) -> None:
    """Metadata that did not come, above all."""
    writer = KafkaWriter(cluster)
    wanted = [record(b"a"), record(b"b")]
    cluster.send_error = ValueError("Unrecognized partition 7 for topic t")
    with pytest.raises(BackendError, match="Unrecognized partition") as caught:
        writer.write(wanted)
    assert (caught.value.retryable, caught.value.is_written) == (True, False)

    cluster.send_error = None
    assert writer.write(wanted) == [0, 1]


def test_nothing_is_added_above_the_bound(cluster: FakeCluster) -> None:
    """While a server is away, memory is not."""
    writer = KafkaWriter(cluster)
    writer.open()
    cluster.is_away = True
    part = RECORD_BYTES - 1000
    count = UNANSWERED_BYTES // RECORD_BYTES
    with pytest.raises(BackendError) as caught:
        writer.write([record(b"x" * part) for _ in range(count)])
    assert caught.value.is_written
    with pytest.raises(BackendError) as caught:
        writer.write([record(b"y" * part)])

    assert (caught.value.retryable, caught.value.is_written) == (True, False)
    assert len(cluster.producers[0].waiting) == count


def test_writer_closes_what_it_opened(cluster: FakeCluster) -> None:
    writer = KafkaWriter(cluster)
    writer.close()
    writer.open()
    writer.close()

    assert cluster.producers[0].is_closed
