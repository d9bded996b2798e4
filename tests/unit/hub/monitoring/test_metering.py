"""Metering: every figure of the counters is in exactly one event, whatever the log does and whenever a broker goes."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.hub.monitoring.metering import Metering
from iothub.records.events import Event, EventType
from iothub.testing.clock import ManualClock
from iothub_services.metrics.tallies import Tally
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.connection_time import ConnectionTime

MINUTE = 1_700_000_040  # Unix time at which one begins


class Counters:
    """As the engine's, set by hand."""

    def __init__(self) -> None:
        self.accepted = self.delivered = 0
        self.blocks_received = self.blocks_delivered = self.bytes_received = self.bytes_sent = self.fanout = 0
        self.dropped: dict[Drop, int] = {}

    def messages_received(self) -> tuple[int, int, int]:
        return (0, self.accepted, 0)

    def messages_delivered(self) -> tuple[int, int, int]:
        return (self.delivered, 0, 0)


class Harness:
    """A hub with brokers of a few counters, and a log that can fail."""

    def __init__(self) -> None:
        self.clock = ManualClock(wall=float(MINUTE))
        self.brokers: list[Any] = []
        self.drops, self.refusals, self.failed_logins = Tally(), Tally(), Tally()
        self.queued: dict[int, TenantUsage] = {}
        self.log: list[Event] = []
        self.fails = False
        self.metering = Metering(self.each(), cast("Any", self), self.queued_of, self.record, self.clock, "hub-1/1/1")
        self.metering.begin()

    def each(self) -> Iterable[TenantBroker]:
        return cast("Iterable[TenantBroker]", self.brokers)

    def queued_of(self, tenant_id: int) -> TenantUsage:
        return self.queued.get(tenant_id, TenantUsage(0, 0))

    async def record(self, events: list[Event]) -> None:
        if self.fails:
            raise BackendError("events.db: disk I/O error", retryable=True)
        self.log += events

    def broker(self, tenant_id: int = 1, retained_bytes: int = 0) -> Any:
        used = {Quota.RETAINED_BYTES: retained_bytes}
        broker = SimpleNamespace(
            tenant_id=tenant_id,
            plane=SimpleNamespace(counters=Counters(), sessions={}, connections=0),
            allowance=SimpleNamespace(
                connection_time=ConnectionTime(self.clock),
                ledger=SimpleNamespace(used=lambda quota: used.get(quota, 0)),
            ),
        )
        self.brokers.append(broker)
        return broker

    def look(self, seconds: float = 60) -> None:
        self.clock.advance(seconds)
        assert Deferred.fromCoroutine(self.metering.run_once()).called

    def finish(self) -> None:
        assert Deferred.fromCoroutine(self.metering.finish()).called

    def events(self, kind: EventType) -> list[Event]:
        return [event for event in self.log if event.type is kind]

    def usage(self, name: str = "messages_in") -> list[object]:
        return [event.facts[name] for event in self.events(EventType.USAGE_COUNTED)]


@pytest.fixture
def harness() -> Harness:
    return Harness()


def test_period_ends_with_the_minute(harness: Harness) -> None:
    """Not before, and once; what was counted since is the next one's."""
    counters = harness.broker().plane.counters
    counters.accepted = 3
    harness.look(59)
    assert harness.log == []
    harness.look(1)
    counters.accepted = 10
    harness.look(1)
    harness.look(59)

    first, second = harness.events(EventType.USAGE_COUNTED)
    assert (first.facts["messages_in"], second.facts["messages_in"]) == (3, 7)
    assert (first.facts["from_ms"], first.at_ms) == (MINUTE * 1000, (MINUTE + 60) * 1000)
    assert (second.facts["from_ms"], second.at_ms) == (first.at_ms, (MINUTE + 120) * 1000)
    assert (first.tenant_id, first.facts["incarnation"]) == (1, "hub-1/1/1")


def test_every_figure_comes_from_its_counter(harness: Harness) -> None:
    broker = harness.broker()
    counters = broker.plane.counters
    counters.accepted, counters.delivered = 1, 2
    counters.blocks_received, counters.blocks_delivered = 3, 4
    counters.bytes_received, counters.bytes_sent, counters.fanout = 5, 6, 7
    broker.allowance.connection_time.on_reserved()

    harness.look()

    (event,) = harness.events(EventType.USAGE_COUNTED)
    names = ("messages_in", "messages_out", "blocks_in", "blocks_out", "bytes_in", "bytes_out", "fanout")
    assert [event.facts[name] for name in names] == [1, 2, 3, 4, 5, 6, 7]
    assert event.facts["connection_ms"] == 60_000


def test_minute_in_which_nothing_happened_is_not_written(harness: Harness) -> None:
    """An idle tenant costs nothing."""
    harness.broker()
    harness.look()
    harness.look()

    assert harness.log == []


def test_event_that_the_log_refused_is_written_later_under_its_number(harness: Harness) -> None:
    """A log that is down costs nothing and doubles nothing: a reader tells a second attempt by its number."""
    counters = harness.broker().plane.counters
    harness.fails = True
    for accepted in (1, 3, 6):
        counters.accepted = accepted
        harness.look()
    harness.fails = False
    harness.look()

    numbers = [event.facts["sequence"] for event in harness.events(EventType.USAGE_COUNTED)]
    assert harness.usage() == [1, 2, 3]
    assert len(set(numbers)) == 3
    assert (harness.metering.written, harness.metering.lost) == (3, 0)


def test_what_waits_for_a_log_that_fails_is_bounded(harness: Harness) -> None:
    """The periods grow instead of their number."""
    counters = harness.broker().plane.counters
    harness.fails = True
    for accepted in range(1, 101):
        counters.accepted = accepted
        harness.look()
    harness.fails = False
    harness.look()
    harness.look()

    assert sum(cast("list[int]", harness.usage())) == 100
    assert len(harness.usage()) == 11


def test_numbers_of_a_worker_are_all_different(harness: Harness) -> None:
    """Over tenants, kinds and periods."""
    for tenant_id in (1, 2):
        harness.broker(tenant_id, retained_bytes=5).plane.counters.accepted = 1
    harness.refusals.add(1, "d", "connections")
    harness.look()
    harness.look()

    numbers = [event.facts["sequence"] for event in harness.log]
    assert sorted(cast("list[int]", numbers)) == list(range(1, len(numbers) + 1))


def test_broker_that_goes_is_counted_to_its_end(harness: Harness) -> None:
    """And the next one of its tenant from its beginning."""
    first = harness.broker()
    first.plane.counters.accepted = 5
    harness.look(10)
    harness.brokers.clear()
    harness.metering.retire(first)
    harness.broker().plane.counters.accepted = 2
    harness.look()

    assert harness.usage() == [7]


def test_broker_that_nobody_has_looked_at_is_counted(harness: Harness) -> None:
    """Made and dropped within one minute."""
    broker = harness.broker()
    broker.plane.counters.accepted = 5
    harness.brokers.clear()

    harness.metering.retire(broker)
    harness.look()

    assert harness.usage() == [5]


def test_clean_stop_writes_the_minute_that_was_begun(harness: Harness) -> None:
    harness.broker().plane.counters.accepted = 5
    harness.drops.add(1, "d", "expired")
    harness.look(10)

    harness.finish()

    assert harness.usage() == [5]
    assert [event.facts["count"] for event in harness.events(EventType.MESSAGE_DROPPED)] == [1]
    assert harness.log[0].at_ms == (MINUTE + 10) * 1000


def test_hub_that_never_opened_has_nothing_to_say(harness: Harness) -> None:
    """A start that failed closes the same stores."""
    unopened = Metering(
        harness.each(), cast("Any", harness), harness.queued_of, harness.record, harness.clock, "hub-1/1/2"
    )
    harness.broker(retained_bytes=9)

    assert Deferred.fromCoroutine(unopened.finish()).called

    assert harness.log == []


def test_sample_says_what_a_tenant_has(harness: Harness) -> None:
    """At the end of the minute; a tenant that has nothing is not sampled."""
    broker = harness.broker(retained_bytes=9)
    broker.plane.sessions.update(a=None, b=None)
    broker.plane.connections = 1
    harness.queued[1] = TenantUsage(4, 400)
    harness.broker(2)

    harness.look()

    (event,) = harness.events(EventType.TENANT_SAMPLED)
    names = ("sessions", "connected", "queued_messages", "queued_bytes", "retained_bytes")
    assert [event.facts[name] for name in names] == [2, 1, 4, 400, 9]


def test_drops_refusals_and_failed_logins_are_told_by_reason_and_device(harness: Harness) -> None:
    """Messages for nobody are read from the counter: no observer hears of each."""
    harness.broker().plane.counters.dropped[Drop.NO_SUBSCRIBERS] = 6
    harness.drops.add(1, "d", "queue_full", 2)
    harness.refusals.add(1, "", "connections", 3)
    harness.failed_logins.add(0, "", "unknown_tenant", 4)

    harness.look()

    dropped = {(event.facts["reason"], event.facts["device"]): event.facts["count"] for event in harness.log[:2]}
    assert dropped == {("queue_full", "d"): 2, ("no_subscribers", ""): 6}
    assert [(event.tenant_id, event.facts["count"]) for event in harness.log[2:]] == [(1, 3), (0, 4)]


def test_counts_that_the_log_refused_are_lost_and_counted(harness: Harness) -> None:
    """They are no bill: nothing is kept for them."""
    harness.refusals.add(1, "", "connections", 3)
    harness.fails = True
    harness.look()
    harness.fails = False
    harness.look()

    assert (harness.log, harness.metering.lost) == ([], 1)


def test_clock_that_is_set_back_closes_a_period_of_no_length(harness: Harness) -> None:
    counters = harness.broker().plane.counters
    counters.accepted = 1
    harness.clock.jump_wall(-7_200)
    harness.look(1)

    (event,) = harness.events(EventType.USAGE_COUNTED)
    assert event.facts["from_ms"] == event.at_ms
