"""`iothub_services.events.statistics`: a log of their own for events that nobody folds; whatever becomes of it, sessions continue."""

from __future__ import annotations

import pytest
from kafka.errors import PolicyViolationError, TopicAuthorizationFailedError
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.records.events import Event, Topic
from iothub.testing.clock import ManualClock
from iothub.testing.event_contract import event, sample
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.port import NOWHERE
from iothub_services.events.statistics import StatisticsJournal, StatisticsThread, StatisticsWriter, statistics_thread
from iothub_services.group_thread import RetryPolicy
from tests.support.servers.fake_kafka import SETTINGS, FakeCluster

STATISTICS = "iothub.analytics-events"


class Harness:
    """A hub's two ways into one cluster."""

    def __init__(self) -> None:
        self.cluster = FakeCluster()
        self.sessions = KafkaEvents(SETTINGS, cluster=self.cluster)
        self.log = KafkaEvents(SETTINGS, cluster=self.cluster)
        self.writer = StatisticsWriter(self.log)
        self.alarms: list[tuple[str, str]] = []
        self.recorded: list[Event] = []

    def thread(self) -> StatisticsThread:
        """The writer's thread, which never retries, to be drained."""
        return statistics_thread(
            self.log,
            lambda call: call(),
            ManualClock(),
            lambda word, text: self.alarms.append((word, text)),
            RetryPolicy(),
        )

    def written(self) -> list[int]:
        """The times of the events for statistics, as a reader finds them."""
        reader = KafkaEvents(SETTINGS, is_read_only=True, cluster=self.cluster)
        return sorted(logged.event.at_ms for logged in reader.read(NOWHERE, 99, Topic.ANALYTICS))


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_lane_writes_what_several_asked_for(harness: Harness) -> None:
    """Its topic is made before anybody counts; the session log is not touched."""
    harness.writer.idle()
    assert list(harness.cluster.topics) == [STATISTICS]

    assert harness.writer([[sample(1), sample(2)], [sample(3)]]) == [None, None]
    assert harness.written() == [1, 2, 3]


def test_sessions_go_on_when_the_topic_of_the_statistics_is_deleted(harness: Harness) -> None:
    """The writer recovers by itself, in a topic that it creates again."""
    harness.sessions.append([event(1)])
    harness.writer([[sample(1)]])
    del harness.cluster.topics[STATISTICS]
    with pytest.raises(BackendError, match="not acknowledged yet"):
        harness.writer([[sample(2)]])

    harness.sessions.append([event(2)])
    harness.sessions.probe()
    assert len(harness.sessions.read(NOWHERE, 9)) == 2

    harness.writer([[sample(2)]])
    harness.writer.probe()
    assert harness.written() == [2]


def test_sessions_go_on_without_the_right_to_write_statistics(harness: Harness) -> None:
    """Each attempt has a producer of its own: one that was refused sends nothing more; a right that is given is seen."""
    harness.writer.idle()
    refused = sample(1)
    harness.cluster.send_error = TopicAuthorizationFailedError("no right")
    for _ in range(2):
        with pytest.raises(BackendError, match="no right") as caught:
            harness.writer([[refused]])
        assert caught.value.retryable

    harness.cluster.send_error = None
    harness.sessions.append([event(1)])
    harness.writer([[refused]])

    assert harness.written() == [1]


def test_topic_that_the_cluster_refuses_to_make_is_an_alarm_until_it_lets_us(harness: Harness) -> None:
    """No right, a policy, too few brokers: somebody puts it right while the hub runs, and what waited is written."""
    harness.cluster.create_error = PolicyViolationError.errno
    thread = harness.thread()
    answers: list[object] = []
    thread.submit([sample(1)], answers.append)
    thread.drain()
    harness.cluster.create_error = 0
    thread.submit([sample(2)], answers.append)
    thread.drain()

    assert isinstance(answers[0], BackendError)
    assert answers[0].retryable
    assert answers[1] is None
    (failing, why), *others = harness.alarms
    assert failing == "statistics_failing"
    assert why.startswith("Kafka refuses to make topic iothub.analytics-events with 3 partitions")
    assert others == [("statistics_failing", "")]
    assert harness.written() == [2]


def test_given_up_events_take_no_memory(harness: Harness) -> None:
    """What waits is with whoever counts, and bounded there."""
    harness.writer([[sample(0)]])
    harness.cluster.is_away = True
    for number in range(1, 50):
        with pytest.raises(BackendError):
            harness.writer([[sample(number)]])

    assert harness.log._writer._sent == {}
    assert all(not producer.waiting for producer in harness.cluster.producers)


def test_journal_answers_when_the_log_has_them(harness: Harness) -> None:
    """A failure is the caller's, who keeps what it cannot lose; the alarm says that sessions go on."""
    thread = harness.thread()
    journal = StatisticsJournal(thread, harness.recorded.append)
    answers: list[object] = []

    def ask(number: int) -> None:
        Deferred.fromCoroutine(journal.record([sample(number)])).addBoth(answers.append)
        thread.drain()

    ask(1)
    harness.cluster.is_away = True
    ask(2)
    harness.cluster.is_away = False
    ask(3)

    assert (answers[0], answers[2]) == (None, None)
    assert "1 records are not acknowledged yet" in str(answers[1])
    assert [one.at_ms for one in harness.recorded] == [1, 2, 3]
    assert [(word, bool(text)) for word, text in harness.alarms] == [
        ("statistics_failing", True),
        ("statistics_failing", False),
    ]
    assert harness.alarms[0][1].endswith("; statistics wait, and some are lost if this lasts; sessions go on")
    assert harness.written() == [1, 3]
