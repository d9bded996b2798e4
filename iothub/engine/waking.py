# cython: annotation_typing=False
"""The message plane's clock of a hub among others: it notices that the machine was suspended before the first packet after that is handled.

Knows no hub and no plane. The monotonic clock, by which turns go, stands still while a machine is suspended; the clock since the boot does not.
Compiled: each batch reads it.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base.clock import BootClock, Clock

SUSPENDED_S = 0.1  # less is no news: others wait for seconds
_SUSPENDED_S = SUSPENDED_S  # as a C number


class WakingClock:
    """Fulfils `Clock`. `on_woken`: called by who reads it first after a suspension."""

    def __init__(self, clock: Clock, boot_clock: BootClock, on_woken: Callable[[], None]) -> None:
        self.wall = clock.wall
        self._monotonic = clock.monotonic
        self._boottime = boot_clock.boottime
        self._on_woken = on_woken
        self._asleep_s = boot_clock.boottime() - clock.monotonic()

    def monotonic(self) -> float:
        now = self._monotonic()
        asleep_s = self._boottime() - now
        if asleep_s - self._asleep_s > _SUSPENDED_S:
            self._asleep_s = asleep_s
            self._on_woken()
        return now
