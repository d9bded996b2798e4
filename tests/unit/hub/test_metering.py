"""Metering: every figure of the counters is in exactly one event, whatever the log does and whenever a broker goes."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError
from iothub.base.reasons import Drop
from iothub.hub.metering import Metering
from iothub.records.events import Event, EventType
from iothub.testing.clock import ManualClock
from iothub_services.metrics.tallies import Tally
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.place_time import PlaceTime

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


class House:
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
                places=PlaceTime(self.clock), ledger=SimpleNamespace(used=lambda quota: used.get(quota, 0))
            ),
        )
        self.brokers.append(broker)
        return broker

    def look(self, seconds: float = 60) -> None:
        self.clock.advance(seconds)
        assert Deferred.fromCoroutine(self.metering.look()).called

    def finish(self) -> None:
        assert Deferred.fromCoroutine(self.metering.finish()).called

    def events(self, kind: EventType) -> list[Event]:
        return [event for event in self.log if event.type is kind]

    def usage(self, name: str = "messages_in") -> list[object]:
        return [event.facts[name] for event in self.events(EventType.USAGE_COUNTED)]


@pytest.fixture
def house() -> House:
    return House()


def test_period_ends_with_the_minute(house: House) -> None:
    """Not before, and once; what was counted since is the next one's."""
    counters = house.broker().plane.counters
    counters.accepted = 3
    house.look(59)
    assert house.log == []
    house.look(1)
    counters.accepted = 10
    house.look(1)
    house.look(59)

    first, second = house.events(EventType.USAGE_COUNTED)
    assert (first.facts["messages_in"], second.facts["messages_in"]) == (3, 7)
    assert (first.facts["from_ms"], first.at_ms) == (MINUTE * 1000, (MINUTE + 60) * 1000)
    assert (second.facts["from_ms"], second.at_ms) == (first.at_ms, (MINUTE + 120) * 1000)
    assert (first.tenant_id, first.facts["incarnation"]) == (1, "hub-1/1/1")


def test_every_figure_comes_from_its_counter(house: House) -> None:
    broker = house.broker()
    counters = broker.plane.counters
    counters.accepted, counters.delivered = 1, 2
    counters.blocks_received, counters.blocks_delivered = 3, 4
    counters.bytes_received, counters.bytes_sent, counters.fanout = 5, 6, 7
    broker.allowance.places.taken()

    house.look()

    (event,) = house.events(EventType.USAGE_COUNTED)
    names = ("messages_in", "messages_out", "blocks_in", "blocks_out", "bytes_in", "bytes_out", "fanout")
    assert [event.facts[name] for name in names] == [1, 2, 3, 4, 5, 6, 7]
    assert event.facts["connection_ms"] == 60_000


def test_minute_in_which_nothing_happened_is_not_written(house: House) -> None:
    """An idle tenant costs nothing."""
    house.broker()
    house.look()
    house.look()

    assert house.log == []


def test_event_that_the_log_refused_is_written_later_under_its_number(house: House) -> None:
    """A log that is down costs nothing and doubles nothing: a reader tells a second attempt by its number."""
    counters = house.broker().plane.counters
    house.fails = True
    for accepted in (1, 3, 6):
        counters.accepted = accepted
        house.look()
    house.fails = False
    house.look()

    numbers = [event.facts["sequence"] for event in house.events(EventType.USAGE_COUNTED)]
    assert house.usage() == [1, 2, 3]
    assert len(set(numbers)) == 3
    assert (house.metering.written, house.metering.lost) == (3, 0)


def test_what_waits_for_a_log_that_fails_is_bounded(house: House) -> None:
    """The periods grow instead of their number."""
    counters = house.broker().plane.counters
    house.fails = True
    for accepted in range(1, 101):
        counters.accepted = accepted
        house.look()
    house.fails = False
    house.look()
    house.look()

    assert sum(cast("list[int]", house.usage())) == 100
    assert len(house.usage()) == 11


def test_numbers_of_a_worker_are_all_different(house: House) -> None:
    """Over tenants, kinds and periods."""
    for tenant_id in (1, 2):
        house.broker(tenant_id, retained_bytes=5).plane.counters.accepted = 1
    house.refusals.add(1, "d", "connections")
    house.look()
    house.look()

    numbers = [event.facts["sequence"] for event in house.log]
    assert sorted(cast("list[int]", numbers)) == list(range(1, len(numbers) + 1))


def test_broker_that_goes_is_counted_to_its_end(house: House) -> None:
    """And the next one of its tenant from its beginning."""
    first = house.broker()
    first.plane.counters.accepted = 5
    house.look(10)
    house.brokers.clear()
    house.metering.retire(first)
    house.broker().plane.counters.accepted = 2
    house.look()

    assert house.usage() == [7]


def test_broker_that_nobody_has_looked_at_is_counted(house: House) -> None:
    """Made and dropped within one minute."""
    broker = house.broker()
    broker.plane.counters.accepted = 5
    house.brokers.clear()

    house.metering.retire(broker)
    house.look()

    assert house.usage() == [5]


def test_clean_stop_writes_the_minute_that_was_begun(house: House) -> None:
    house.broker().plane.counters.accepted = 5
    house.drops.add(1, "d", "expired")
    house.look(10)

    house.finish()

    assert house.usage() == [5]
    assert [event.facts["count"] for event in house.events(EventType.MESSAGE_DROPPED)] == [1]
    assert house.log[0].at_ms == (MINUTE + 10) * 1000


def test_hub_that_never_opened_has_nothing_to_say(house: House) -> None:
    """A start that failed closes the same stores."""
    unopened = Metering(house.each(), cast("Any", house), house.queued_of, house.record, house.clock, "hub-1/1/2")
    house.broker(retained_bytes=9)

    assert Deferred.fromCoroutine(unopened.finish()).called

    assert house.log == []


def test_sample_says_what_a_tenant_has(house: House) -> None:
    """At the end of the minute; a tenant that has nothing is not sampled."""
    broker = house.broker(retained_bytes=9)
    broker.plane.sessions.update(a=None, b=None)
    broker.plane.connections = 1
    house.queued[1] = TenantUsage(4, 400)
    house.broker(2)

    house.look()

    (event,) = house.events(EventType.TENANT_SAMPLED)
    names = ("sessions", "connected", "queued_messages", "queued_bytes", "retained_bytes")
    assert [event.facts[name] for name in names] == [2, 1, 4, 400, 9]


def test_drops_refusals_and_failed_logins_are_told_by_reason_and_device(house: House) -> None:
    """Messages for nobody are read from the counter: no observer hears of each."""
    house.broker().plane.counters.dropped[Drop.NO_SUBSCRIBERS] = 6
    house.drops.add(1, "d", "queue_full", 2)
    house.refusals.add(1, "", "connections", 3)
    house.failed_logins.add(0, "", "unknown_tenant", 4)

    house.look()

    dropped = {(event.facts["reason"], event.facts["device"]): event.facts["count"] for event in house.log[:2]}
    assert dropped == {("queue_full", "d"): 2, ("no_subscribers", ""): 6}
    assert [(event.tenant_id, event.facts["count"]) for event in house.log[2:]] == [(1, 3), (0, 4)]


def test_counts_that_the_log_refused_are_lost_and_counted(house: House) -> None:
    """They are no bill: nothing is kept for them."""
    house.refusals.add(1, "", "connections", 3)
    house.fails = True
    house.look()
    house.fails = False
    house.look()

    assert (house.log, house.metering.lost) == ([], 1)


def test_clock_that_is_set_back_closes_a_period_of_no_length(house: House) -> None:
    counters = house.broker().plane.counters
    counters.accepted = 1
    house.clock.jump_wall(-7_200)
    house.look(1)

    (event,) = house.events(EventType.USAGE_COUNTED)
    assert event.facts["from_ms"] == event.at_ms
