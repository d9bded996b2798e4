"""The streams of one hub: whose they are among several hubs, what is told of them, and what is wrong without Kafka."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, ConflictError, IotHubError, NotOursError
from iothub.base.units import Endpoint
from iothub.config.sections import Config, Kafka, Queues
from iothub.hub.stores.installation import Installation
from iothub.hub.stores.stream_drivers import make_topic, no_kafka, stream_drivers
from iothub.hub.streaming import Pace, Streaming, Work, stream_parts
from iothub.testing.clock import ManualClock
from iothub_services.events.kafka.cluster import KafkaCluster
from iothub_services.streams.kafka.topics import StreamTopics
from iothub_services.streams.port import Direction, Stream
from iothub_tenants.accounts import streams
from iothub_tenants.accounts.changes import Change
from iothub_tenants.accounts.store import ChangeKind
from iothub_tenants.background.membership import Members
from tests.support.in_process.control_harness import Harness

STREAMS = [Stream(number, 7, "acme", f"s{number}", Direction.IN, "#", 1, 1000) for number in range(20)]


def now(steps: Any) -> Any:
    answers: list[Any] = []
    Deferred.fromCoroutine(steps).addBoth(answers.append)
    return answers[0]


class Scenario:
    """The streaming of a hub without Kafka; the accounts say what the test says."""

    def __init__(
        self, harness: Harness, monkeypatch: Any, members: Members | None = None, topics: StreamTopics | None = None
    ) -> None:
        self.troubles: list[str] = []
        self.found: list[Stream] | BackendError = STREAMS
        drivers = stream_drivers(Config(), Installation(Config()), lambda call: call(), lambda: STREAMS)
        parts = stream_parts(
            Config(), harness.store, replace(drivers, topics=topics), harness.clock, lambda: harness.plane
        )
        run = cast("Any", self.run)
        self.streaming = Streaming(parts, harness.hub, cast("Any", None), run, members, "iothub", self.troubles.append)
        monkeypatch.setattr(streams, "active", self.active)
        self.streaming.start()

    async def run(self, _name: str, call: Callable[..., Any], *args: Any) -> Any:
        return call(*args)

    def active(self, _store: object) -> list[Stream]:
        if isinstance(self.found, BackendError):
            raise self.found
        return self.found


def test_each_stream_is_read_by_one_of_the_hubs_that_live(tmp_path: Any, monkeypatch: Any) -> None:
    """And by all of those that are left when one goes."""
    harness = Harness(tmp_path)
    living = {1: frozenset({2, 3}), 2: frozenset({1, 3}), 3: frozenset({1, 2})}
    members = {node: SimpleNamespace(number=node, living=others) for node, others in living.items()}
    stages = {node: Scenario(harness, monkeypatch, cast("Members", each)) for node, each in members.items()}
    for scenario in stages.values():
        now(scenario.streaming.refresh())
    shares = [set(scenario.streaming._followed) for scenario in stages.values()]
    assert set().union(*shares) == set(STREAMS)
    assert sum(map(len, shares)) == len(STREAMS)

    members[1].living, members[2].living = frozenset({2}), frozenset({1})
    for scenario in stages.values():
        scenario.streaming.share_out()
    left = [set(stages[node].streaming._followed) for node in (1, 2)]

    assert (left[0] | left[1], left[0] & left[1]) == (set(STREAMS), set())
    harness.close()


def test_accounts_that_do_not_answer_are_asked_again(tmp_path: Any, monkeypatch: Any) -> None:
    """What was known stays."""
    harness = Harness(tmp_path)
    scenario = Scenario(harness, monkeypatch)
    now(scenario.streaming.refresh())
    scenario.found = BackendError("away", retryable=True)
    scenario.streaming.on_changes([Change(1, 7, ChangeKind.STREAM, "s1", 0)])

    now(scenario.streaming.refresh())
    assert (scenario.streaming.is_stale, len(scenario.streaming.registry)) == (True, len(STREAMS))
    scenario.found = []
    now(scenario.streaming.refresh())

    assert (scenario.streaming.is_stale, len(scenario.streaming.registry)) == (False, 0)
    harness.close()


def test_only_changes_that_concern_streams_are_looked_at(tmp_path: Any, monkeypatch: Any) -> None:
    """Their own, those of tenants, and their rules."""
    harness = Harness(tmp_path)
    scenario = Scenario(harness, monkeypatch)
    heard = {}
    for kind, subject in (
        (ChangeKind.STREAM, "s"),
        (ChangeKind.TENANT, "acme"),
        (ChangeKind.ACL, "device:stream:s"),
        (ChangeKind.ACL, "device:dev1"),
        (ChangeKind.DEVICE, "dev1"),
    ):
        scenario.streaming.is_stale = False
        scenario.streaming.on_changes([Change(1, 7, kind, subject, 0)])
        heard[subject] = scenario.streaming.is_stale

    assert heard == {"s": True, "acme": True, "device:stream:s": True, "device:dev1": False, "dev1": False}
    harness.close()


def test_streams_without_kafka_are_an_alarm(tmp_path: Any, monkeypatch: Any) -> None:
    """Somebody made them with other settings; without streams nothing is wrong."""
    harness = Harness(tmp_path)
    scenario = Scenario(harness, monkeypatch)
    now(scenario.streaming.run_once())
    now(scenario.streaming.refresh())
    now(scenario.streaming.run_once())

    assert scenario.troubles == ["", "the streams can do nothing: there is no Kafka: kafka.brokers is not set"]
    assert scenario.streaming.describe("acme", "s1") == {
        "state": "stopped: there is no Kafka: kafka.brokers is not set",
        "messages": 0,
        "bytes": 0,
        "messages_per_s": 0,
        "pending": 0,
        "refused": 0,
    }
    assert scenario.streaming.describe("acme", "unknown") is None
    assert scenario.streaming.close(1)
    harness.close()


def test_streams_without_traffic_stand_still_while_the_watch_says_so(tmp_path: Any, monkeypatch: Any) -> None:
    """Nothing is looked at while there are none; what the watch does not know is told as it says it."""
    harness = Harness(tmp_path)
    scenario = Scenario(harness, monkeypatch)
    asked: list[bool] = []
    watch = SimpleNamespace(trouble="", doubt="", watch=lambda is_needed: asked.append(is_needed), close=lambda: None)
    scenario.streaming._watch = cast("Any", watch)
    outward = Stream(99, 7, "acme", "telemetry", Direction.OUT, "#", 1, 1000)
    scenario.found = []
    now(scenario.streaming.refresh())
    now(scenario.streaming.run_once())
    scenario.found, scenario.streaming.is_stale = [STREAMS[0], outward], True
    now(scenario.streaming.refresh())
    now(scenario.streaming.run_once())
    watch.trouble = "no answer"
    now(scenario.streaming.run_once())

    assert (asked, scenario.troubles) == ([False, True, True], ["", "", "the streams can do nothing: no answer"])
    described = [scenario.streaming.describe("acme", name) for name in ("s0", "telemetry")]
    assert [each and each["state"] for each in described] == ["stopped: no answer", "held back: no answer"]
    watch.trouble, watch.doubt = "", "not known"
    now(scenario.streaming.run_once())
    described = [scenario.streaming.describe("acme", name) for name in ("s0", "telemetry")]
    assert [scenario.troubles[-1], *(each and each["state"] for each in described)] == ["not known"] * 3
    harness.close()


def test_a_topic_is_made_again_only_while_the_accounts_have_its_stream() -> None:
    """The book hears of a deletion later than Kafka: what was just deleted would come back."""
    made: list[Stream] = []
    topics = cast("Any", SimpleNamespace(make=made.append, names=lambda each: [each.topic("iothub")]))

    assert make_topic(topics, lambda: STREAMS[1:], "iothub.acme.s1.in")
    assert not make_topic(topics, lambda: STREAMS[1:], "iothub.acme.s0.in")

    assert made == [STREAMS[1]]


@pytest.mark.parametrize(
    ("answer", "is_done"),
    [
        (None, True),
        (NotOursError("belongs to another installation"), True),
        (ConflictError("Kafka refuses to make topic iothub.installation: not authorized"), False),
        (BackendError("away", retryable=True), False),
    ],
    ids=["deleted", "somebody else's", "refused", "away"],
)
def test_a_deleted_tenant_waits_for_its_topics_but_not_for_anothers(
    tmp_path: Any, monkeypatch: Any, capsys: pytest.CaptureFixture[str], answer: IotHubError | None, is_done: bool
) -> None:
    """What Kafka refuses today it may allow tomorrow; the topics of another installation are told of, and stay."""
    harness = Harness(tmp_path)
    topics = StreamTopics(KafkaCluster(Kafka((Endpoint("k1", 9092), Endpoint("k2", 9092)))))
    monkeypatch.setattr(topics, "delete", Mock(side_effect=answer))
    monkeypatch.setattr(streams, "of_tenant", lambda *_: STREAMS[:1])
    scenario = Scenario(harness, monkeypatch, topics=topics)

    assert now(scenario.streaming.delete_topics(7, "acme")) is is_done

    line = capsys.readouterr().err
    command = "--bootstrap-server k1:9092,k2:9092 --delete --topic 'iothub[.]acme[.]s0[.]in,iothub[.]acme[.]s0[.]in[.]refused'"
    for words in ("iothub.acme.s0.in, iothub.acme.s0.in.refused", command):
        assert (words in line) == isinstance(answer, NotOursError)
    harness.close()


def test_a_hub_without_kafka_names_the_topics_of_a_deleted_tenant(
    tmp_path: Any, monkeypatch: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """It cannot know whether there are any."""
    harness = Harness(tmp_path)
    scenario = Scenario(harness, monkeypatch)
    described = []
    for found in ([], STREAMS[:1]):
        monkeypatch.setattr(streams, "of_tenant", lambda *_, found=found: found)
        assert now(scenario.streaming.delete_topics(7, "acme"))
        described.append("iothub.acme.s0.in, iothub.acme.s0.in.refused" in capsys.readouterr().err)

    assert described == [False, True]
    harness.close()


def test_pace_is_of_the_last_whole_span() -> None:
    """Not since the start."""
    clock = ManualClock()
    pace = Pace(clock)

    clock.advance(5)
    pace.note_counts({1: 100})
    first = pace.of(1)
    clock.advance(5)
    pace.note_counts({1: 100})

    assert (first, pace.of(1), pace.of(2)) == (20.0, 0.0, 0.0)
    assert Work() == Work(0, 0, 0, 0)


def test_kafka_is_there_when_its_brokers_are_named() -> None:
    """And its packages are installed, as they are for the tests."""
    assert no_kafka(Config()) == "kafka.brokers is not set"
    assert no_kafka(Config(kafka=Kafka((Endpoint("k", 9092),)), queues=Queues())) == ""
