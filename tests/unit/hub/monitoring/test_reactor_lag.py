"""Samples of what the reactor kept others waiting."""

from __future__ import annotations

import pytest

from iothub.hub.monitoring.reactor_lag import PERIOD_S, ReactorLag
from iothub.testing.clock import ManualClock


class Reactor:
    """Calls what is due when told to."""

    def __init__(self) -> None:
        self.planned: list[tuple[float, object]] = []

    def later(self, seconds: float, call: object) -> None:
        self.planned.append((seconds, call))

    def run(self) -> None:
        planned, self.planned = self.planned, []
        for _, call in planned:
            call()  # type: ignore[operator]


def test_sample_says_how_late_it_is() -> None:
    clock, reactor, samples = ManualClock(), Reactor(), list[float]()
    ReactorLag(reactor.later, clock, samples.append).start()
    for pause in (PERIOD_S, PERIOD_S + 0.4):
        clock.advance(pause)
        reactor.run()

    assert samples == [pytest.approx(0.0), pytest.approx(0.4)]


def test_sampling_stops() -> None:
    clock, reactor, samples = ManualClock(), Reactor(), list[float]()
    lag = ReactorLag(reactor.later, clock, samples.append)
    lag.start()
    lag.stop()
    reactor.run()

    assert (samples, reactor.planned) == ([], [])
