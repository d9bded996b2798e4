"""Streams to devices: rules, filter, limits and rates; refused records; when a page is done; and the sinks of streams out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest

from iothub_services.auth.port import Action, Effect, Rule, Scope
from iothub_services.streams.port import Direction, Headers, Incoming, OnPage, Stream
from iothub_services.streams.sink import Room, Sink, SinkLimits
from iothub_tenants.background.stream_sources import StreamSources
from iothub_tenants.broker.streams import StreamRegistry
from tests.support.clients import property_names as names
from tests.support.in_process.control_harness import Harness

MakeHarness = Callable[..., Harness]


class HandReceiver:
    """Fulfils `StreamReceiver`; pages come from the test."""

    def __init__(self) -> None:
        self.trouble = ""
        self.on_page: OnPage = lambda _stream_id, _page: None
        self.followed: list[Stream] = []
        self.reports: list[tuple[int, dict[int, int]]] = []

    def start(self, on_page: OnPage) -> None:
        self.on_page = on_page

    def follow(self, streams: Sequence[Stream]) -> None:
        self.followed = list(streams)

    def done(self, stream_id: int, upto: Mapping[int, int]) -> None:
        self.reports.append((stream_id, dict(upto)))

    def close(self, timeout_s: float) -> bool:
        return timeout_s > 0


class Beside:
    """Fulfils `RefusedRecords` and the registry's `SinkFactory`."""

    def __init__(self) -> None:
        self.written: list[tuple[str, bytes | None, Headers]] = []
        self.forgotten: list[str] = []

    def write(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers, on_written: Callable[[Any], None]
    ) -> None:
        assert key == b"key"
        self.written.append((topic, value, headers))
        on_written(None)

    def sink(self, stream: Stream) -> Sink:
        return Sink(stream, stream.topic("iothub"), Room(SinkLimits()))

    def forget(self, sink: Sink) -> None:
        self.forgotten.append(sink.topic)


class Scenario:
    """A harness with one stream to devices."""

    def __init__(self, harness: Harness, *rules: Rule) -> None:
        self.harness, self.receiver, self.beside = harness, HandReceiver(), Beside()
        self.book = StreamRegistry(self.beside)
        stream = Stream(3, 7, "acme", "cmd", Direction.IN, "devices/#", 1, 1000, rules)
        self.book.replace_streams([stream], harness.hub.brokers)
        self.sources = StreamSources(harness.hub, self.book, self.receiver, self.beside, "iothub")
        self.sources.start()
        self.sources.follow([stream])

    def page(self, *records: tuple[str, bytes], first: int = 0, qos: bytes = b"1") -> None:
        self.receiver.on_page(
            3,
            [
                Incoming(0, first + number, 1000, b"key", value, (("topic", topic.encode()), ("qos", qos)))
                for number, (topic, value) in enumerate(records)
            ],
        )


@pytest.fixture
def scenario(make_harness: MakeHarness) -> Scenario:
    return Scenario(make_harness())


def test_records_are_published_and_the_page_is_done(scenario: Scenario) -> None:
    """In their order; QoS 0 to nobody waits for nothing."""
    scenario.page(("devices/1", b"a"), ("devices/2", b"b"))

    assert scenario.receiver.reports == [(3, {0: 2})]
    assert (scenario.sources.messages, scenario.sources.refused) == (2, 0)


def test_what_may_never_be_published_is_refused(make_harness: MakeHarness) -> None:
    """By the stream's own rules too, with the reason; the page goes on."""
    rule = Rule(Scope.DEVICE, "stream:cmd", Effect.DENY, Action.PUBLISH, "devices/secret")
    scenario = Scenario(make_harness(), rule)

    scenario.page(("devices/secret", b"a"), ("elsewhere", b"b"), ("", b"c"), ("devices/1", b"d"))

    reasons = [dict(headers)["refused.reason"] for _, _, headers in scenario.beside.written]
    assert reasons == [b"denied", b"not_in_filter", b"malformed"]
    assert {topic for topic, _, _ in scenario.beside.written} == {"iothub.acme.cmd.in.refused"}
    assert scenario.receiver.reports == [(3, {0: 4})]
    progress = scenario.sources.progress(3)
    assert progress is not None
    assert (progress.messages, progress.refused) == (1, {"denied": 1, "not_in_filter": 1, "malformed": 1})


@pytest.mark.parametrize("topic", ["devices/+", "devices/#", "$SYS/x", "devices/\0"])
def test_topic_that_is_no_topic_name_has_a_reason_of_its_own(scenario: Scenario, topic: str) -> None:
    """Before it is compared with the stream's filter, as the guide has it."""
    scenario.page((topic, b"a"))

    assert [dict(headers)["refused.reason"] for _, _, headers in scenario.beside.written] == [b"topic_invalid"]


def test_a_rate_makes_records_wait_and_drops_none(scenario: Scenario) -> None:
    """The page is done when the last has passed."""
    broker = scenario.harness.acme
    broker.plane.sink_messages = meter = _Meter(1)

    scenario.page(("devices/1", b"a"), ("devices/2", b"b"))
    assert (scenario.sources.messages, scenario.receiver.reports) == (1, [])
    meter.units = 5
    scenario.harness.pass_time(1)

    assert (scenario.sources.messages, scenario.receiver.reports) == (2, [(3, {0: 2})])


def test_records_wait_while_publishers_of_the_tenant_do(scenario: Scenario) -> None:
    """A subscription at another hub may not be known here."""
    tenant = scenario.harness.acme.plane
    tenant.is_held = True

    scenario.page(("devices/1", b"a"))
    scenario.harness.pass_time(1)
    assert (scenario.sources.messages, scenario.receiver.reports) == (0, [])

    tenant.is_held = False
    scenario.harness.pass_time(1)
    assert scenario.receiver.reports == [(3, {0: 1})]


def test_records_wait_while_the_disk_is_left_to_consumers(scenario: Scenario) -> None:
    scenario.harness.plane.turn.note_disk(True)
    scenario.page(("devices/1", b"a"))
    scenario.harness.pass_time(1)
    assert (scenario.sources.messages, scenario.receiver.reports) == (0, [])

    scenario.harness.plane.turn.note_disk(False)
    scenario.harness.pass_time(1)
    assert scenario.receiver.reports == [(3, {0: 1})]


def test_record_that_the_store_gave_up_waits_too(scenario: Scenario) -> None:
    """It is routed anew."""
    harness = scenario.harness
    kept = harness.join("kept", clean=False, props=[(names.SESSION_EXPIRY, 100)])
    kept.subscribe(("devices/#", 1))
    harness.store.fails = False
    scenario.page(("devices/1", b"a"))
    harness.settle()
    harness.store.fails = None
    appends = harness.store.appends
    harness.plane.hold_publishers_of(harness.acme.plane, True)

    harness.pass_time(10)
    assert harness.store.appends == appends

    harness.plane.hold_publishers_of(harness.acme.plane, False)
    harness.pass_time(1)
    assert harness.store.appends == appends + 1
    assert scenario.receiver.reports == [(3, {0: 1})]


def test_a_page_that_comes_again_while_it_is_worked_on_is_not_published_twice(scenario: Scenario) -> None:
    """The receiver may begin again at any time."""
    broker = scenario.harness.acme
    broker.plane.sink_messages = meter = _Meter(1)
    scenario.page(("devices/1", b"a"), ("devices/2", b"b"))

    scenario.page(("devices/1", b"a"), ("devices/2", b"b"), ("devices/3", b"c"))
    meter.units = 5
    scenario.harness.pass_time(2)

    assert scenario.sources.messages == 3
    assert scenario.receiver.reports == [(3, {0: 2}), (3, {0: 3})]


def test_a_stream_that_is_followed_no_more_publishes_nothing(scenario: Scenario) -> None:
    """What was under way is left to who follows it now."""
    broker = scenario.harness.acme
    broker.plane.sink_messages = meter = _Meter(0)
    scenario.page(("devices/1", b"a"))

    scenario.sources.follow([])
    scenario.page(("devices/1", b"on its way"))
    meter.units = 5
    scenario.harness.pass_time(1)

    assert (scenario.sources.messages, scenario.receiver.reports, scenario.receiver.followed) == (0, [], [])


def test_streams_out_are_in_the_routers_of_their_tenant(scenario: Scenario) -> None:
    """From the moment that they are known, and until they are not."""
    broker = scenario.harness.acme
    out = Stream(9, 7, "acme", "tele", Direction.OUT, "t/#", 1, 1000)

    scenario.book.replace_streams([out], [broker])
    [target] = broker.plane.router.match(b"t/1").targets
    assert (target.session.is_sink, broker.plane.sinks, len(scenario.book)) == (True, 1, 1)
    assert scenario.book.sink_of(9) is target.session.control
    scenario.book.replace_streams([], [broker])

    assert (broker.plane.router.match(b"t/1").targets, broker.plane.sinks) == ([], 0)
    assert scenario.beside.forgotten == ["iothub.acme.tele"]


class _Meter:
    def __init__(self, units: int) -> None:
        self.units = units

    def take(self, units: int, _now: float) -> float:
        if units > self.units:
            return 0.5
        self.units -= units
        return 0.0
