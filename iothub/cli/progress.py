"""Progress of a long operation, with its rate and the remaining time.

Knows no operation. A short one prints nothing: the first line comes after one interval.
"""

from __future__ import annotations

import sys
from types import TracebackType

from iothub.base.clock import Clock, SystemClock
from iothub.cli import output

TERMINAL_INTERVAL_S = 1.0
LOG_INTERVAL_S = 10.0  # elsewhere every line stays
_SYSTEM_CLOCK = SystemClock()


class Progress:
    """Prints `... of ... WHAT`; on a terminal always on the same line."""

    def __init__(self, what: str, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._what = what
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._is_terminal else LOG_INTERVAL_S
        self._began = self._said = clock.monotonic()
        self._before = 0
        self._width = 0

    def begin(self, done: int) -> None:
        """Start measuring: `done` was finished before, and the rate counts from here."""
        self._began, self._before = self._clock.monotonic(), done

    def __call__(self, done: int, of: int) -> None:
        """Update the progress; print a line when an interval has passed."""
        now = self._clock.monotonic()
        if now - self._said >= self._interval_s:
            self._said = now
            per_s = (done - self._before) / (now - self._began)
            left = f"{_words((of - done) / per_s)} left" if per_s else "time left unknown"
            self._say(f"{done} of {of} {self._what}, {per_s:.0f} per second, {left}")

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the terminal's line, so that what follows has its own."""
        if self._width:
            output.say("")
        self._width = 0

    def _say(self, line: str) -> None:
        if not self._is_terminal:
            output.say(line)
            return
        output.say(f"\r{line.ljust(self._width)}", end="")
        self._width = len(line)


def _words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
