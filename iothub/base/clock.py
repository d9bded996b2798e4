"""Time, passed in and never read: the one place that looks at a clock.

Knows no timers: deadlines belong to the engine's wheel and to the reactor.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Protocol


class Clock(Protocol):
    """Both times in seconds as float: `monotonic` for intervals, `wall` (Unix time, UTC) for what is stored or shown."""

    def monotonic(self) -> float: ...

    def wall(self) -> float: ...


class BootClock(Protocol):
    """Seconds since the machine's start, those in which it was suspended included: for evidence that somebody lived a moment ago."""

    def boottime(self) -> float: ...


class WholeClock(Clock, BootClock, Protocol):
    """All three."""


class SystemClock:
    """The machine's clocks."""

    monotonic = staticmethod(time.monotonic)  # the functions themselves: a packet's way asks ten times
    wall = staticmethod(time.time)
    boottime = staticmethod(partial(time.clock_gettime, time.CLOCK_BOOTTIME))
