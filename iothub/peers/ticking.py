"""When the links of a hub tick: at what is due next, and soon after anything has happened to them.

Knows no link and no reactor: who owns the links says that something has happened, and each tick returns when the next one is due.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from iothub.base.clock import BootClock

TICK_S = 0.02  # the shortest time between two ticks, and the longest one from anything that happens to the next tick


class Ticking:
    """One timer for all that waits for time to pass.

    Invariants: what is due is computed from what there is, at the end of each tick, never noted by whoever changes it. Whatever is changed
    from outside is followed by a tick within `TICK_S`, which computes it anew; so nothing that is due can be missed, and nothing but the
    time has to be looked at in between. `at`: when the next tick is due, of `boottime`; infinity: when something happens.
    """

    def __init__(self, clock: BootClock, tick: Callable[[float], float], set_timer: Callable[[float], None]) -> None:
        """`tick`: do what is due now, and return when something is due next. `set_timer`: have `run` called at a time, and at none named before."""
        self.at = math.inf
        self._clock = clock
        self._tick = tick
        self._set_timer = set_timer
        self._is_soon = False

    def changed(self) -> None:
        """Something has happened: what is due next may be another time."""
        if not self._is_soon:
            self._is_soon = True
            self._tick_by(self._clock.boottime() + TICK_S)

    def run(self) -> None:
        now = self._clock.boottime()
        self.at, self._is_soon = math.inf, False
        due = self._tick(now)
        self._tick_by(max(due, now + TICK_S))

    def _tick_by(self, at: float) -> None:
        if at < self.at:
            self.at = at
            self._set_timer(at)
