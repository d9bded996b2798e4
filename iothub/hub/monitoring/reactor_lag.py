"""How long the reactor keeps others waiting: measured ten times a second by a call that should come at once.

Knows no threshold and no metric.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.clock import Clock

PERIOD_S = 0.1

Later = Callable[[float, Callable[[], None]], object]


class ReactorLag:
    """Measures until stopped: `on_sample(late_s)` is called every `PERIOD_S`. On the reactor thread."""

    def __init__(self, later: Later, clock: Clock, on_sample: Callable[[float], None]) -> None:
        self._later = later
        self._clock = clock
        self._on_sample = on_sample
        self._due = 0.0
        self._is_stopped = False

    def start(self) -> None:
        self._next()

    def stop(self) -> None:
        self._is_stopped = True

    def _next(self) -> None:
        self._due = self._clock.monotonic() + PERIOD_S
        self._later(PERIOD_S, self._sample)

    def _sample(self) -> None:
        if self._is_stopped:
            return
        self._on_sample(max(0.0, self._clock.monotonic() - self._due))
        self._next()
