"""The event log on Kafka, over a cluster in memory: the contract, places, damage, topics that are not ours any more.

The same contract runs on the real one in `tests/services/test_kafka_events.py`.
"""

from __future__ import annotations

from typing import Any

import pytest
from kafka.structs import TopicPartition

from iothub.base.errors import BackendError, ConflictError, NotFoundError
from iothub.records.events import Event, Topic, encode_event
from iothub.testing.event_contract import CASES, Case, event, refuse_damage, sample
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.port import NOWHERE, DamagedEvent, LoggedEvent, raised
from iothub_services.events.reading import read_between
from tests.support.servers.fake_kafka import SETTINGS, FakeCluster, FakeConsumer

LOG = "iothub.session-events"
STATISTICS = "iothub.analytics-events"


@pytest.fixture
def cluster() -> FakeCluster:
    return FakeCluster()


@pytest.fixture
def log(cluster: FakeCluster) -> KafkaEvents:
    return KafkaEvents(SETTINGS, cluster=cluster)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_events_contract(case: Case, log: KafkaEvents) -> None:
    """As every other driver."""
    case(log)
    log.close()


def test_nothing_is_asked_before_the_first_call(cluster: FakeCluster) -> None:
    """A hub is built before its servers answer; while they do not, `open` says so."""
    cluster.is_away = True
    log = KafkaEvents(SETTINGS, cluster=cluster)
    with pytest.raises(BackendError, match="Kafka at kafka-1:9092: no answer") as caught:
        log.open()
    assert caught.value.retryable

    cluster.is_away = False
    log.open()
    log.open()

    assert list(cluster.topics) == [LOG]
    log.append([sample(1)])
    assert sorted(cluster.topics) == [STATISTICS, LOG]


def test_failed_append_is_not_written_twice(cluster: FakeCluster, log: KafkaEvents) -> None:
    """A second attempt with the same events waits for the answers to the first one."""
    log.open()
    events = [event(number) for number in range(5)]
    cluster.is_away = True
    for _ in range(3):
        with pytest.raises(BackendError, match="5 records are not acknowledged yet") as caught:
            log.append(events)
        assert (caught.value.retryable, caught.value.is_written) == (True, True)
    with pytest.raises(BackendError):
        log.probe()

    cluster.is_away = False
    logged = log.append(events)
    log.probe()

    assert [each.event.at_ms for each in log.read(NOWHERE, 99)] == list(range(5))
    assert log.read(NOWHERE, 99) == logged


def test_event_without_a_place_is_in_the_log(cluster: FakeCluster, log: KafkaEvents) -> None:
    """Kafka may remember that it has a record, and no more where."""
    log.open()
    cluster.is_forgetful = True
    (logged,) = log.append([event(1)])

    assert logged.offset == 0
    assert len(log.read(NOWHERE, 9)) == 1


def test_damaged_events_are_named_one_by_one(cluster: FakeCluster, log: KafkaEvents) -> None:
    """The others of their partition, and of the other ones, are read."""
    whole = [log.append([event(number, f"client-{number % 7}")])[0] for number in range(30)]
    records = cluster.topics[LOG].partitions[0]
    records[1] = b"damaged"
    records[3] = b""
    found: list[DamagedEvent] = []

    read = list(read_between(log, NOWHERE, log.end(), found.append))

    assert [(damaged.partition, damaged.offset) for damaged in found] == [(0, 2), (0, 4)]
    assert found[0].reason == f"topic {LOG}, partition 0, Kafka's offset 1: damaged event (it is not JSON)"
    assert len(read) == len(whole) - 2


def test_event_in_a_wrong_partition_is_not_folded(cluster: FakeCluster, log: KafkaEvents) -> None:
    """Its offset belongs to another partition: the session's next event in its own would look folded. Statistics may be in any partition."""
    (logged,) = log.append([event(1, "c")])
    home = logged.partition
    away = (home + 1) % 3
    cluster.keys[encode_event(event(2, "c"))] = logged.event.key.encode()
    cluster.topics[LOG].partitions[away] += [encode_event(event(2, "c"))] * 2
    found: list[DamagedEvent] = []

    assert list(read_between(log, NOWHERE, log.end(), found.append)) == [logged]
    assert [(damaged.partition, damaged.offset) for damaged in found] == [(away, 1), (away, 2)]
    assert found[1].reason == (
        f"topic {LOG}, partition {away}, Kafka's offset 1: damaged event (its key belongs to partition {home})"
    )

    (counted,) = log.append([sample(1)])
    records = cluster.topics[STATISTICS].partitions
    records[(counted.partition + 1) % 3].append(records[counted.partition][0])
    assert all(isinstance(entry, LoggedEvent) for entry in log.read(NOWHERE, 9, Topic.ANALYTICS))


def test_text_that_cannot_be_stored_is_damage(cluster: FakeCluster, log: KafkaEvents) -> None:
    """It would be a defect in whoever has to find its partition, at every start."""
    log.open()
    cluster.topics[LOG].partitions[0].append(encode_event(event(1, "caf\u00e9")).replace("\u00e9".encode(), b"\\ud800"))

    (entry,) = log.read(NOWHERE, 9)

    assert isinstance(entry, DamagedEvent)
    assert "half a character" in entry.reason


@pytest.mark.parametrize(("key", "words"), [(None, "without a key"), (b"7/other", "under the key of another session")])
def test_session_event_under_another_key_is_damaged(
    cluster: FakeCluster, log: KafkaEvents, key: bytes | None, words: str
) -> None:
    """Hubs would fold it, and a compaction would not. Statistics have no session."""
    log.append([event(1, "c"), sample(1)])
    cluster.keys = {} if key is None else dict.fromkeys(cluster.keys, key)

    (entry,) = log.read(NOWHERE, 9)
    (statistics,) = log.read(NOWHERE, 9, Topic.ANALYTICS)

    assert isinstance(entry, DamagedEvent)
    assert entry.reason.endswith(f"Kafka's offset 0: damaged event (event of 7/c {words})")
    assert isinstance(statistics, LoggedEvent)


def test_reading_on_behind_damage_asks_the_cluster_once_a_page(
    cluster: FakeCluster, log: KafkaEvents, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log with thousands of damaged events is read in seconds; who begins again reads again."""
    whole = [log.append([event(number, f"client-{number % 7}")])[0] for number in range(30)]
    for records in cluster.topics[LOG].partitions:
        records[1:1] = [b"damaged"] * 500
    polls: list[int] = []
    poll = FakeConsumer.poll

    def counted(consumer: FakeConsumer, timeout_ms: int, max_records: int) -> dict[TopicPartition, list[Any]]:
        polls.append(max_records)
        return poll(consumer, timeout_ms, max_records)

    monkeypatch.setattr(FakeConsumer, "poll", counted)
    for _ in range(2):
        found: list[DamagedEvent] = []
        read = list(read_between(log, NOWHERE, log.end(), found.append))

        assert sorted(each.event.at_ms for each in read) == sorted(each.event.at_ms for each in whole)
        assert sorted((each.partition, each.offset) for each in found) == [
            (partition, offset) for partition in range(3) for offset in range(2, 502)
        ]
    assert len(polls) < 20


@pytest.mark.parametrize("names_ids", [True, False])
@pytest.mark.parametrize("is_asked", [True, False])
def test_nothing_is_acknowledged_after_the_topic_was_replaced(
    cluster: FakeCluster, log: KafkaEvents, is_asked: bool, names_ids: bool
) -> None:
    """The states have offsets of the old topic: events in the new one would look folded, and be lost."""
    cluster.names_ids = names_ids
    log.append([event(number) for number in range(3)])
    log.end()
    old = cluster.topics[LOG]
    cluster.make(LOG, 3, old.settings)

    with pytest.raises(BackendError, match="was recreated or truncated while the hub ran; restart the hub"):
        log.probe() if is_asked else log.append([event(4)])
    with pytest.raises(BackendError, match="restart the hub"):
        log.append([event(5)])
    assert sum(map(len, cluster.topics[LOG].partitions)) == (0 if is_asked else 1)


def test_lost_log_goes_on_in_a_topic_of_its_own(cluster: FakeCluster, log: KafkaEvents) -> None:
    """Everybody who comes later finds the newest one."""
    log.append([event(1)])
    log.skip_to(log.after_loss((5, 5, 5)))
    (logged,) = log.append([event(2)])

    assert f"{LOG}.1" in cluster.topics
    assert logged.offset == (1 << 40) + 1
    later = KafkaEvents(SETTINGS, cluster=cluster)
    assert later.read(NOWHERE, 9) == [logged]
    assert later.after_loss(later.end()) == (2 << 40,) * 3


def test_reader_makes_no_topics(cluster: FakeCluster) -> None:
    """It says that there are none; later it finds them, with as many partitions as they have."""
    reader = KafkaEvents(SETTINGS, is_read_only=True, cluster=cluster)
    with pytest.raises(NotFoundError, match=f"no topic {LOG}"):
        reader.open()
    assert cluster.topics == {}
    KafkaEvents(SETTINGS, cluster=cluster).open()
    with pytest.raises(NotFoundError, match=f"no topic {STATISTICS}"):
        reader.end(Topic.ANALYTICS)
    KafkaEvents(SETTINGS, cluster=cluster).append([sample(1)])

    assert reader.end() == (0, 0, 0)
    assert sum(reader.end(Topic.ANALYTICS)) == 1
    assert len(cluster.producers) == 2


def test_log_that_was_trimmed_is_read_from_where_it_begins(log: KafkaEvents) -> None:
    """Also a partition of which nothing is left beside others that have something."""
    some = log.append([event(number, f"client-{number}") for number in range(20)])
    log.trim(tuple(end if partition else end - 2 for partition, end in enumerate(log.end())))

    found = list(read_between(log, NOWHERE, log.end(), refuse_damage))

    assert found == [logged for logged in some if logged.partition == 0][-2:]


def test_reader_whose_place_was_trimmed_away_hears_of_it(log: KafkaEvents) -> None:
    """Else the reader would skip the events between, and fold the later ones."""
    first, *_ = log.append([event(number) for number in range(5)])
    after = raised(NOWHERE, first.partition, 2)
    assert len(log.read(after, 1)) == 1
    log.trim(raised(NOWHERE, first.partition, 4))

    for _ in range(2):
        with pytest.raises(BackendError, match="records were deleted before they were read") as caught:
            log.read(after, 9)
        assert caught.value.retryable
    assert [logged.offset for logged in log.read(raised(NOWHERE, first.partition, 4), 9)] == [5]


def test_topic_with_other_settings_is_refused(cluster: FakeCluster, log: KafkaEvents) -> None:
    """Under which events would be lost, by name."""
    log.open()
    cluster.topics[LOG].settings["cleanup.policy"] = "compact"

    with pytest.raises(ConflictError, match=f"topic {LOG} would lose events: cleanup.policy=compact, needed is delete"):
        KafkaEvents(SETTINGS, cluster=cluster).open()


def test_appending_nothing_asks_nobody(cluster: FakeCluster, log: KafkaEvents) -> None:
    nothing: list[Event] = []
    cluster.is_away = True

    assert log.append(nothing) == []
