"""The hub's heartbeat: ten times a second it says how late it was, which is how long the reactor kept others waiting.

Knows no threshold and no metric.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.clock import Clock

PERIOD_S = 0.1

Later = Callable[[float, Callable[[], None]], object]


class Heartbeat:
    """Beats until stopped. `felt(late_s)` is called at every beat. On the reactor thread."""

    def __init__(self, later: Later, clock: Clock, felt: Callable[[float], None]) -> None:
        self._later = later
        self._clock = clock
        self._felt = felt
        self._due = 0.0
        self._is_stopped = False

    def start(self) -> None:
        self._next()

    def stop(self) -> None:
        self._is_stopped = True

    def _next(self) -> None:
        self._due = self._clock.monotonic() + PERIOD_S
        self._later(PERIOD_S, self._beat)

    def _beat(self) -> None:
        if self._is_stopped:
            return
        self._felt(max(0.0, self._clock.monotonic() - self._due))
        self._next()
