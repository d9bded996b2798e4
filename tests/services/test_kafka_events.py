"""The event log on the real Kafka: the contract of the port, our topics, and what kill, pause and restart do to what was acknowledged."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, suppress
from dataclasses import replace

import pytest

from iothub.base.errors import BackendError, ConflictError
from iothub.config.sections import Kafka
from iothub.records import events
from iothub.records.events import Event, Subject, Topic, encode_event, partition_of
from iothub.testing.event_contract import CASES, Case, event, refuse_damage, sample
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.events.kafka.log import KafkaEvents
from iothub_services.events.kafka.topics import open_topics, topic_name
from iothub_services.events.kafka.writer import KafkaWriter, Record
from iothub_services.events.port import NOWHERE
from iothub_services.events.reading import read_between
from iothub_services.events.statistics import StatisticsWriter
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.service import StateService
from iothub_services.state.verification import Verification, verify
from ops.services.services import Services
from tests.support.servers.kafka import change_topic, delete_topic

_ATTEMPTS = 20  # each as long as the timeout; a broker removes a topic when it has time


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_events_contract(case: Case, kafka: Kafka) -> None:
    """Kafka does what every driver does."""
    log = KafkaEvents(kafka)
    try:
        case(log)
    finally:
        log.close()


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def resumed(client_id: str, epoch: int) -> Event:
    return events.session_resumed(Subject(7, client_id, epoch, 100), protocol_version=5, session_expiry_s=60)


class Harness:
    """A log, states and alarms of one hub on these topics."""

    def __init__(self, kafka: Kafka, store: MemoryStates | None = None) -> None:
        self.log = KafkaEvents(kafka)
        self.store = store or MemoryStates()
        self.alarms: list[str] = []
        self.damaged: list[str] = []
        self.service = StateService(
            self.log,
            self.store,
            lambda name, _text: self.alarms.append(name),
            on_damage=lambda _store, _key, reason: self.damaged.append(reason),
        )

    def verified(self) -> Verification:
        self.service.idle()
        return verify(self.log, self.store)

    def start(self) -> dict[str, int]:
        """Load; returns the epochs of the sessions."""
        return {state.client_id: state.epoch for state in self.service.load()}


@pytest.fixture
def hub(kafka: Kafka) -> Iterator[Callable[..., Harness]]:
    """Makes hubs on these topics; what they have begun ends behind the test."""
    with ExitStack() as stack:

        def made(store: MemoryStates | None = None) -> Harness:
            harness = Harness(kafka, store)
            stack.callback(harness.log.close)
            return harness

        yield made


@pytest.fixture
def harness(hub: Callable[..., Harness]) -> Harness:
    return hub()


def test_start_folds_what_the_states_do_not_have(hub: Callable[..., Harness], harness: Harness) -> None:
    """From the place of the states to the end of each partition; states that were lost come back from the log alone."""
    harness.start()
    names = [f"client-{number}" for number in range(40)]
    harness.service([[created(name)] for name in names])
    harness.service.idle()
    harness.service([[resumed(name, 2)] for name in names[:20]])
    expected = {name: 2 if name in names[:20] else 1 for name in names}

    for store in (harness.store, MemoryStates()):
        later = hub(store)
        assert later.start() == expected
        assert later.store.applied_offsets() == later.log.end()
        assert (later.alarms, later.verified().differences) == ([], [])


def test_two_hubs_share_the_log(hub: Callable[..., Harness], harness: Harness) -> None:
    """Each folds what the other appended, in the order of the log."""
    other = hub()
    harness.start()
    other.start()
    for epoch in range(1, 10, 2):
        harness.service([[created(f"client-{number}", epoch)] for number in range(20)])
        other.service([[resumed(f"client-{number}", epoch + 1)] for number in range(20)])
    for each in (harness, other):
        each.service.idle()

        assert each.verified().differences == []
        states = each.service.states_of([(7, f"client-{number}") for number in range(20)])
        assert [state.epoch for state in states] == [10] * 20


def test_event_in_a_wrong_partition_changes_no_session(
    kafka: Kafka, hub: Callable[..., Harness], harness: Harness
) -> None:
    """Nor does a damaged one. Each is named and counted once, by a hub that runs and by one that starts."""
    harness.start()
    harness.service([[created("a")]])
    harness.service.idle()
    astray = events.session_discarded(Subject(7, "a", 1, 200), reason="astray")
    home = partition_of(astray.key, kafka.partitions)
    away = (home + 1) % kafka.partitions
    key, name = astray.key.encode(), topic_name(kafka, Topic.SESSIONS)
    values = (encode_event(astray), b"{", encode_event(astray))
    KafkaWriter(KafkaCluster(kafka)).write([Record(value, name, away, key, value) for value in values])

    harness.service([[resumed("a", 2)]])
    harness.service.idle()
    later = hub()

    assert later.start() == {"a": 2}
    for each in (harness, later):
        (state,) = each.service.states_of([(7, "a")])
        assert (state.epoch, each.alarms) == (2, [])
        assert each.damaged == [
            f"topic {name}, partition {away}, Kafka's offset 0: damaged event (its key belongs to partition {home})",
            f"topic {name}, partition {away}, Kafka's offset 1: damaged event (it is not JSON)",
            f"topic {name}, partition {away}, Kafka's offset 2: damaged event (its key belongs to partition {home})",
        ]


def test_hub_goes_on_in_another_topic_when_the_log_was_deleted(
    broker_alone: Services, kafka: Kafka, hub: Callable[..., Harness], harness: Harness
) -> None:
    """With the sessions as the states have them; what is written then is found by the next start."""
    harness.start()
    harness.service([[created("a")], [created("b")]])
    harness.service.idle()
    harness.log.close()
    delete_topic(broker_alone, topic_name(kafka, Topic.SESSIONS))

    later = hub(harness.store)
    assert later.start() == {"a": 1, "b": 1}
    assert later.alarms == ["event_log_lost"]
    later.service([[resumed("a", 2)]])

    last = hub(harness.store)
    assert last.start() == {"a": 2, "b": 1}
    assert last.alarms == []


def test_topic_that_is_deleted_under_a_hub_takes_no_acknowledgement(
    broker_alone: Services, kafka: Kafka, harness: Harness
) -> None:
    """Neither while it is gone, nor when somebody has made it anew."""
    harness.start()
    harness.service([[created("a")]])
    delete_topic(broker_alone, topic_name(kafka, Topic.SESSIONS))
    with pytest.raises(BackendError, match="not acknowledged yet"):
        harness.service([[resumed("a", 2)]])
    open_topics(KafkaCluster(kafka))

    with pytest.raises(BackendError, match="was recreated or truncated while the hub ran; restart the hub"):
        harness.service([[resumed("a", 3)]])


def test_sessions_go_on_when_the_topic_of_the_statistics_is_deleted(
    broker_alone: Services, kafka: Kafka, hub: Callable[..., Harness], harness: Harness
) -> None:
    """Session events do not wait for it, and the writer creates the topic again by itself."""
    log = KafkaEvents(kafka)
    writer = StatisticsWriter(log)
    writer.idle()
    writer([[sample(1)]])
    harness.start()
    harness.service([[created("a")]])
    delete_topic(broker_alone, topic_name(kafka, Topic.ANALYTICS))

    with pytest.raises(BackendError):
        writer([[sample(2)]])
    harness.service([[resumed("a", 2)], [created("b")]])
    harness.log.probe()
    assert {state.client_id: state.epoch for state in hub(harness.store).service.load()} == {"a": 2, "b": 1}

    for _ in range(_ATTEMPTS):
        with suppress(BackendError):
            writer([[sample(2)]])
            break
    writer.probe()
    assert [logged.event.at_ms for logged in harness.log.read((), 9, Topic.ANALYTICS)] == [2]
    log.close()


def test_trimmed_log_is_read_from_where_it_begins(kafka: Kafka, hub: Callable[..., Harness], harness: Harness) -> None:
    """By who asks for all of it; who stands in the gap hears of it, and who has neither states nor checkpoint does not start."""
    harness.start()
    names = [f"client-{number}" for number in range(40)]
    harness.service([[created(name)] for name in names])
    assert not harness.service.idle()
    end = harness.log.end()
    harness.log.trim((*end[:-1], end[-1] - 1))

    assert harness.log.begin() == (*(offset + 1 for offset in end[:-1]), end[-1])
    assert len(list(read_between(harness.log, NOWHERE, end, refuse_damage))) == 1
    with (
        closing(KafkaEvents(kafka, is_read_only=True)) as reader,
        pytest.raises(BackendError, match="records were deleted before they were read"),
    ):
        reader.read(tuple(1 for _ in end), 9)
    assert len(hub(harness.store).start()) == len(names)
    with pytest.raises(ConflictError, match="neither checkpoint nor session states have the events before it"):
        hub().start()


def test_gap_between_log_and_states_is_refused(hub: Callable[..., Harness], harness: Harness) -> None:
    """Sessions would be missing or wrong, and nobody could tell."""
    harness.start()
    harness.service([[created("a")], [created("b")]])
    harness.service.idle()
    harness.log.append([resumed("a", 2), resumed("b", 2)])
    harness.log.append([resumed("a", 3), resumed("b", 3)])
    end = harness.log.end()
    harness.log.trim(tuple(max(offset - 1, 0) for offset in end))

    with pytest.raises(ConflictError, match="the session states need it from"):
        hub(harness.store).start()


def test_topic_under_which_events_would_be_lost_is_refused(
    broker_alone: Services, kafka: Kafka, harness: Harness
) -> None:
    """As Kafka tells its settings; so is another number of partitions."""
    harness.log.open()
    change_topic(broker_alone, topic_name(kafka, Topic.SESSIONS), **{"retention.ms": "60000"})

    with pytest.raises(ConflictError, match=r"would lose events: retention\.ms=60000, needed is -1"):
        KafkaEvents(kafka).open()
    with pytest.raises(ConflictError, match=r"has 4 partitions, kafka\.partitions says 8"):
        KafkaEvents(replace(kafka, partitions=8)).open()
    with pytest.raises(ConflictError, match=r"refuses to make topic .* kafka\.replication = 3"):
        KafkaEvents(replace(kafka, topic_prefix=f"{kafka.topic_prefix}.other", replication=3)).open()


def test_event_that_is_too_large_fails_alone(kafka: Kafka, harness: Harness) -> None:
    """Its neighbours are written once."""
    harness.log.open()
    large = events.session_discarded(Subject(7, "large", 3, 1), reason="x" * (3 << 20))
    batch = [event(1), large, event(2)]
    with pytest.raises(BackendError) as caught:
        harness.log.append(batch)
    assert not caught.value.retryable

    harness.log.append([batch[0]])
    with pytest.raises(BackendError):
        harness.log.append([batch[1]])
    harness.log.append([batch[2]])
    assert [logged.event.at_ms for logged in harness.log.read((), 9)] == [1, 2]
