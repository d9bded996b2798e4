"""Mosquitto's tree from the hub's metrics: counts, maxima, and averages of what rises."""

from __future__ import annotations

from typing import Any

import pytest

from iothub.hub.monitoring.broker_figures import BrokerFigures
from iothub.testing.clock import ManualClock
from iothub_services.metrics import metrics


class Scenario:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.figures: dict[Any, Any] = {}
        self.resident = 100

        async def read() -> Any:
            return self.figures

        self.broker = BrokerFigures(read, lambda: self.resident, "1.2.3", self.clock)

    def refresh(self) -> None:
        with pytest.raises(StopIteration):
            self.broker.refresh().send(None)

    def __getitem__(self, name: str) -> str:
        return self.broker.named[name]


@pytest.fixture
def scenario() -> Scenario:
    return Scenario()


def test_there_is_nothing_before_the_first_reading(scenario: Scenario) -> None:
    assert scenario.broker.named == {}


def test_names_are_mosquittos(scenario: Scenario) -> None:
    scenario.figures = {
        metrics.SESSIONS: {("connected",): 3, ("offline",): 4},
        metrics.SESSION_EVENTS: {("created",): 9, ("expired",): 2},
        metrics.PACKETS_RECEIVED: {("connect",): 5, ("publish",): 6},
        metrics.QUEUED_MESSAGES: {(): 10},
        metrics.RETAINED_MESSAGES: {(): 1},
        metrics.QUEUED_BYTES: {(): 70},
        metrics.RETAINED_BYTES: {(): 7},
        metrics.MESSAGES_RECEIVED: {("0",): 1, ("1",): 2},
        metrics.MESSAGES_DROPPED: {("queue_full",): 5, ("no_subscribers",): 50},
        metrics.BYTES_SENT: {(): 123},
        metrics.SUBSCRIPTIONS: {("plain",): 8, ("shared",): 2},
    }
    scenario.refresh()

    expected = {
        "clients/total": "7",
        "clients/connected": "3",
        "clients/disconnected": "4",
        "clients/maximum": "3",
        "clients/expired": "2",
        "messages/received": "11",
        "messages/stored": "11",
        "store/messages/count": "11",
        "store/messages/bytes": "77",
        "publish/messages/received": "3",
        "publish/messages/dropped": "5",
        "bytes/sent": "123",
        "subscriptions/count": "8",
        "shared_subscriptions/count": "2",
        "retained messages/count": "1",
        "heap/current": "100",
        "uptime": "0 seconds",
        "version": "iothub version 1.2.3",
    }
    assert expected.items() <= scenario.broker.named.items()


def test_maxima_stay(scenario: Scenario) -> None:
    scenario.figures = {metrics.SESSIONS: {("connected",): 3}}
    scenario.refresh()
    scenario.figures, scenario.resident = {metrics.SESSIONS: {("connected",): 1}}, 50
    scenario.clock.advance(90)
    scenario.refresh()

    assert (scenario["clients/connected"], scenario["clients/maximum"]) == ("1", "3")
    assert (scenario["heap/current"], scenario["heap/maximum"]) == ("50", "100")
    assert scenario["uptime"] == "90 seconds"


def test_loads_are_averages_for_a_minute_that_near_a_steady_rate(scenario: Scenario) -> None:
    for number in range(400):
        scenario.figures = {metrics.BYTES_RECEIVED: {(): number * 10}, metrics.CONNECTS: {("accepted",): number}}
        scenario.refresh()
        scenario.clock.advance(10)

    assert float(scenario["load/bytes/received/1min"]) == pytest.approx(60, abs=0.1)
    assert float(scenario["load/bytes/received/15min"]) == pytest.approx(60, rel=0.05)
    assert float(scenario["load/connections/1min"]) == pytest.approx(6, abs=0.1)
    assert float(scenario["load/messages/sent/1min"]) == 0


def test_the_short_average_follows_a_burst_first_and_forgets_it_first(scenario: Scenario) -> None:
    scenario.figures = {metrics.BYTES_SENT: {(): 0}}
    scenario.refresh()
    scenario.clock.advance(10)
    scenario.figures = {metrics.BYTES_SENT: {(): 1000}}
    scenario.refresh()
    burst = [float(scenario[f"load/bytes/sent/{minutes}min"]) for minutes in (1, 5, 15)]
    scenario.clock.advance(600)
    scenario.refresh()
    after = [float(scenario[f"load/bytes/sent/{minutes}min"]) for minutes in (1, 5, 15)]

    assert burst == sorted(burst, reverse=True)
    assert after == sorted(after)


def test_a_counter_that_begins_again_is_no_negative_load(scenario: Scenario) -> None:
    for value in (1000, 0):
        scenario.figures = {metrics.BYTES_SENT: {(): value}}
        scenario.refresh()
        scenario.clock.advance(10)

    assert scenario["load/bytes/sent/1min"] == "0.00"
