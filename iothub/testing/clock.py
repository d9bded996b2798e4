"""A clock that moves only when told to, for tests.

Knows no timers: what is due is the business of whoever holds the clock.
"""

from __future__ import annotations


class ManualClock:
    """Fulfils `iothub.base.clock.Clock` and `BootClock`; all times advance together unless `jump_wall` or `suspend` says otherwise."""

    def __init__(self, wall: float = 1_700_000_000.0, monotonic: float = 1_000.0) -> None:
        self._wall = wall
        self._monotonic = monotonic
        self._asleep_s = 0.0

    def monotonic(self) -> float:
        return self._monotonic

    def wall(self) -> float:
        return self._wall

    def boottime(self) -> float:
        return self._monotonic + self._asleep_s

    def advance(self, seconds: float) -> None:
        """Let time pass on both clocks."""
        if seconds < 0:
            raise ValueError("time passes forwards only; use jump_wall for a clock that was set back")
        self._wall += seconds
        self._monotonic += seconds

    def suspend(self, seconds: float) -> None:
        """The machine is suspended for so long: its monotonic clock stands still."""
        self._wall += seconds
        self._asleep_s += seconds

    def jump_wall(self, seconds: float) -> None:
        """Set the wall clock forwards or back, as an administrator or NTP does."""
        self._wall += seconds
