"""Streams out: what waits for Kafka, who is held back, what is given up, and what the queues and the worker's books see of it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.engine.limits import PlaneLimits
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.testing.engine import Bench, Client, ack, packets, publish
from iothub_services.streams import sink
from iothub_services.streams.port import Direction, OnAnswers, Outgoing, Stream
from iothub_services.streams.sink import Sink, SinkLimits, SinkStore

PUBACK = ack(0x40, 1)
STREAM = Stream(7, 1, "acme", "telemetry", Direction.OUT, "t/#", 1, 1000)


class HandSender:
    """Fulfils `StreamSender`: answers when the test says so. `is_away`: nothing is sent, so all can be taken back."""

    def __init__(self) -> None:
        self.records: list[Outgoing] = []
        self.trouble = ""
        self.is_away = False
        self.on_answers: OnAnswers = _nobody

    def start(self, on_answers: OnAnswers) -> None:
        self.on_answers = on_answers

    def send(self, record: Outgoing) -> None:
        record.is_sent = not self.is_away
        self.records.append(record)

    def give_up(self, record: Outgoing) -> bool:
        return not record.is_sent

    def close(self, timeout_s: float) -> bool:
        return timeout_s > 0

    def answer(self, error: BackendError | None = None) -> None:
        """Answer everything."""
        records, self.records = self.records, []
        self.on_answers([(record, error) for record in records])


def _nobody(_answers: Sequence[object]) -> None:
    raise AssertionError("not started")


class Scenario:
    """A bench with a sink store in front of its store, and one stream."""

    def __init__(self, **bounds: float) -> None:
        self.bench = Bench(PlaneLimits())
        self.sender = HandSender()
        self.alarms: list[str] = []
        given = SinkLimits(**bounds)  # type: ignore[arg-type]
        self.sink_store = SinkStore(
            self.bench.store,
            self.sender,
            self.bench.clock,
            "iothub",
            given,
            self.alarms.append,
            lambda: self.bench.plane,
        )
        self.soon: list[object] = []
        self.bench.plane.turn.store = self.sink_store
        self.bench.plane.call_soon = self.soon.append
        self.sink_store.start()
        self.sink = self.add(STREAM)

    def add(self, stream: Stream) -> Sink:
        self.session = session = Session(self.bench.tenant, "", stream.subject, True)
        session.is_sink = True
        session.control = sink = self.sink_store.sink(stream)
        self.bench.tenant.router.subscribe(
            Subscription(session, stream.filter.encode(), qos=2, retain_as_published=True)
        )
        self.bench.tenant.sinks += 1
        return sink

    def publisher(self, version: int = 4) -> Client:
        return self.bench.client("p", version=version)

    def pass_time(self, seconds: float) -> None:
        self.bench.pass_time(seconds)
        self.sink_store.check_waiting()


def test_a_publisher_is_answered_when_kafka_has_the_message() -> None:
    """Not before; the record has the topic, the publisher's key and what is to be known."""
    scenario = Scenario()
    client = scenario.publisher()

    assert client.send(publish(b"t/1", b"a", 1, 1)) == b""
    [record] = scenario.sender.records
    assert (record.topic, record.key, record.value) == ("iothub.acme.telemetry", b"p", b"a")
    assert dict(record.headers)["topic"] == b"t/1"
    scenario.sender.answer()

    assert client.take() == PUBACK
    assert (scenario.sink.messages, scenario.sink.pending, scenario.sink_store.pending) == (1, 0, (0, 0))


def test_the_queues_get_it_after_kafka() -> None:
    """And the acknowledgement waits for both."""
    scenario = Scenario()
    subscriber = scenario.bench.client("s", queue_id=5)
    subscriber.subscribe(b"t/#", 1)
    client = scenario.publisher()

    client.send(publish(b"t/1", b"a", 1, 1))
    assert scenario.bench.store.appends == 0
    scenario.sender.answer()
    assert (scenario.bench.store.appends, client.take()) == (1, b"")
    scenario.bench.store.commit_all()

    assert client.take() == PUBACK
    assert len(scenario.bench.store.queue(5).records) == 1


def test_what_waits_for_kafka_is_not_on_the_workers_books() -> None:
    """Those bound what all tenants store."""
    scenario = Scenario()

    scenario.publisher().send(publish(b"t/1", b"a", 1, 1))
    turn = scenario.bench.plane.turn
    assert (turn.unstored_messages, turn.unstored_bytes) == (0, 0)
    scenario.sender.answer()

    assert (turn.unstored_messages, turn.unstored_bytes) == (0, 0)


def test_a_tenant_with_much_on_its_way_is_held_back_and_goes_on() -> None:
    """By bytes; a publish elsewhere passes."""
    scenario = Scenario(tenant_bytes=1000)
    client, free = scenario.publisher(), scenario.bench.client("free")

    client.send(b"".join(publish(b"t/1", b"x" * 400, 1, number) for number in (1, 2, 3, 4)))
    assert len(scenario.sender.records) == 2
    assert client.transport.is_paused
    assert free.send(publish(b"x", b"", 1, 1)) == PUBACK
    scenario.sender.answer()
    scenario.pass_time(0.2)

    assert len(scenario.sender.records) == 2
    assert not client.transport.is_paused


def test_the_bound_of_all_tenants_holds_each_of_them() -> None:
    """However little it has on its way itself."""
    scenario = Scenario(bytes=100)
    other = scenario.sink_store.sink(Stream(8, 2, "other", "s", Direction.OUT, "#", 1, 1000))

    scenario.publisher().send(publish(b"t/1", b"a", 1, 1))

    assert other.is_full


@pytest.mark.parametrize("version", [4, 5])
def test_what_was_not_sent_is_given_up_with_a_refusal(version: int) -> None:
    """5.0 hears 0x97: nothing was written for certain. 3.x is closed, as no code can tell it."""
    scenario = Scenario(give_up_s=2)
    scenario.sender.is_away = True
    client = scenario.publisher(version)

    client.send(publish(b"t/1", b"a", 1, 1, properties=b"" if version == 5 else None))
    scenario.pass_time(2.1)

    answers = packets(client.take())
    assert answers == ([(0x40, b"\x00\x01\x97")] if version == 5 else [])
    assert client.transport.is_closed is (version == 4)
    assert scenario.sink_store.pending == (0, 0)
    assert (Drop.STORE_FAILED, 1) in scenario.bench.observer.drops


def test_what_was_sent_and_is_given_up_ends_the_connection_without_an_answer() -> None:
    """Nobody knows whether it is written; it stays on the books until Kafka says so."""
    scenario = Scenario(give_up_s=2)
    client = scenario.publisher(5)

    client.send(publish(b"t/1", b"a", 1, 1, properties=b""))
    scenario.pass_time(2.1)
    assert [header for header, _ in packets(client.take())] == [0xE0]
    assert scenario.sink_store.pending[0] == 0
    assert scenario.sink_store.pending_bytes(1) > 0
    scenario.sender.answer()

    assert scenario.sink_store.pending_bytes(1) == 0


def test_silence_of_kafka_is_an_alarm_and_its_return_the_end_of_it() -> None:
    """With what was wrong last."""
    scenario = Scenario()
    scenario.sender.trouble = "Kafka at k:9092: no answer"

    scenario.publisher().send(publish(b"t/1", b"a", 1, 1))
    scenario.pass_time(3.5)
    assert scenario.alarms[-1].endswith("for streams are not acknowledged: Kafka at k:9092: no answer")
    scenario.sender.answer()
    scenario.sink_store.check_waiting()

    assert scenario.alarms[-1] == ""


def test_a_message_that_is_too_large_for_a_record_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Never tried: it would come again and again."""
    monkeypatch.setattr(sink, "RECORD_MOST_BYTES", 100)
    scenario = Scenario()
    client = scenario.publisher(5)

    client.send(publish(b"t/1", b"a" * 200, 1, 1, properties=b""))
    scenario.soon.pop()()  # type: ignore[operator]

    assert packets(client.take()) == [(0x40, b"\x00\x01\x97")]
    assert scenario.bench.observer.drops == [(Drop.STREAM_REFUSED, 1)]
    assert scenario.sink.refused == 1


def test_what_kafka_will_never_take_is_refused_by_name() -> None:
    """The publisher goes on."""
    scenario = Scenario()
    client = scenario.publisher()

    client.send(publish(b"t/1", b"a", 1, 1))
    scenario.sender.answer(BackendError("too large", retryable=False))

    assert client.take() == PUBACK
    assert scenario.bench.observer.drops == [(Drop.STREAM_REFUSED, 1)]


def test_qos_0_is_sent_and_held_back_like_the_rest() -> None:
    """Bounded by the same bytes."""
    scenario = Scenario(tenant_bytes=500)
    client = scenario.publisher()

    client.send(publish(b"t/1", b"x" * 300) * 3)

    assert len(scenario.sender.records) == 1
    assert client.transport.is_paused


def test_a_message_for_two_streams_waits_for_both() -> None:
    """One answer alone is none."""
    scenario = Scenario()
    scenario.add(Stream(8, 1, "acme", "second", Direction.OUT, "t/+", 1, 1000))
    client = scenario.publisher()

    client.send(publish(b"t/1", b"a", 1, 1))
    first, second = scenario.sender.records
    scenario.sender.on_answers([(first, None)])
    assert client.take() == b""
    scenario.sender.on_answers([(second, None)])

    assert client.take() == PUBACK


def test_a_message_that_no_stream_and_nobody_else_took_is_refused_to_its_publisher() -> None:
    """Kafka's own limit may be lower than ours; an acknowledgement would be a lie."""
    scenario = Scenario()
    client = scenario.publisher(5)

    client.send(publish(b"t/1", b"a", 1, 1, properties=b""))
    scenario.sender.answer(BackendError("too large", retryable=False))

    assert packets(client.take()) == [(0x40, b"\x00\x01\x97")]


def test_nothing_overtakes_what_was_on_its_way_to_a_stream_that_is_deleted() -> None:
    """Else an older message would be retained, or come last in a queue. What is on its way goes on, on its tenant's books."""
    scenario = Scenario()
    client = scenario.publisher()
    client.send(publish(b"t/1", b"older", 1, 1, retain=True))

    scenario.bench.tenant.sinks -= 1
    scenario.bench.tenant.router.unsubscribe(scenario.session, b"t/#", None)
    scenario.sink_store.forget(scenario.sink)
    client.send(publish(b"t/1", b"newer", 1, 2, retain=True))

    appended = [operation[1].message.payload for operation in scenario.bench.store.waiting]
    assert appended == [b"older", b"newer"]
    assert scenario.sink_store.pending_bytes(1) > 0
    scenario.sender.answer()
    assert (scenario.sink_store.pending_bytes(1), scenario.bench.plane.turn.unstored_messages) == (0, 2)


def test_a_deleted_stream_frees_only_what_waits_for_no_other() -> None:
    """Two streams, one of them deleted: the publisher waits for the one that is left."""
    scenario = Scenario()
    scenario.add(Stream(8, 1, "acme", "second", Direction.OUT, "t/+", 1, 1000))
    client = scenario.publisher()
    client.send(publish(b"t/1", b"a", 1, 1))
    first, second = scenario.sender.records

    scenario.sink_store.forget(scenario.sink)
    assert client.take() == b""
    scenario.sender.on_answers([(second, None)])
    assert client.take() == PUBACK
    scenario.sender.on_answers([(first, None)])

    assert scenario.sink_store.pending == (0, 0)


def test_a_qos_2_message_that_is_repeated_at_a_new_connection_is_in_the_topic_once() -> None:
    """While the first is on its way to Kafka; the answer goes to the connection that is there."""
    scenario = Scenario()
    client = scenario.bench.client("p", queue_id=5)
    client.send(publish(b"t/1", b"a", 2, 1))
    for _ in range(2):
        client.drop()
        client = scenario.bench.client("p", queue_id=5)
        client.send(publish(b"t/1", b"a", 2, 1, dup=True))

    assert (len(scenario.sender.records), client.take()) == (1, b"")
    scenario.sender.answer()
    scenario.bench.store.commit_all()

    assert client.take() == ack(0x50, 1)
    turn = scenario.bench.plane.turn
    assert (turn.unstored_messages, turn.unstored_bytes, client.connection.unstored) == (0, 0, 0)


def test_a_repeat_is_given_up_with_the_first() -> None:
    """Its connection hears so, and the next repeat is sent to Kafka."""
    scenario = Scenario(give_up_s=2)
    scenario.bench.client("p", queue_id=5).send(publish(b"t/1", b"a", 2, 1))
    client = scenario.bench.client("p", queue_id=5)
    client.send(publish(b"t/1", b"a", 2, 1, dup=True))

    scenario.pass_time(2.1)
    assert client.transport.is_closed
    assert scenario.bench.plane.turn.unstored_messages == 0
    scenario.bench.client("p", queue_id=5).send(publish(b"t/1", b"a", 2, 1, dup=True))

    assert len(scenario.sender.records) == 2


def test_repeats_of_what_was_given_up_wait_for_room_like_anything_else() -> None:
    """Kafka may be away for hours, and clients come again with the same."""
    scenario = Scenario(tenant_bytes=500, give_up_s=2)
    client = scenario.bench.client("p")
    for _ in range(5):
        client.send(publish(b"t/1", b"x" * 300, 2, 1) + publish(b"t/2", b"x" * 300, 2, 2))
        scenario.pass_time(2.1)
        client.session.connection = None
        client = scenario.bench.client("p")
    client.send(publish(b"t/1", b"x" * 300, 2, 1))

    assert scenario.sink_store.pending_bytes(1) < 1000
    assert client.transport.is_paused


def test_an_alarm_ends_under_load() -> None:
    """When Kafka takes messages again there is always one on its way."""
    scenario = Scenario()
    client = scenario.publisher()
    client.send(publish(b"t/1", b"a", 1, 1))
    scenario.pass_time(3.5)
    assert scenario.alarms[-1] != ""

    scenario.sender.answer()
    client.send(publish(b"t/1", b"b", 1, 2))
    scenario.sink_store.check_waiting()

    assert scenario.alarms[-1] == ""
