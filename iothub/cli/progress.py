"""Progress of a long operation, with its rate and the remaining time; on a terminal behind a bar.

Knows no operation. A short one prints nothing: the first line comes after one interval.
"""

from __future__ import annotations

import shutil
import sys
from types import TracebackType

from iothub.base.clock import Clock, SystemClock
from iothub.cli import output

TERMINAL_INTERVAL_S = 1.0
LOG_INTERVAL_S = 10.0  # elsewhere every line stays
_BAR, _LEAST_BAR = 24, 5  # characters
_PERCENT = len("[] 100 % ")
_SYSTEM_CLOCK = SystemClock()


class Progress:
    """Prints `... of ... WHAT`; on a terminal with a bar, always on the same line, which ends at what was done last."""

    def __init__(self, what: str, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._what = what
        self._clock = clock
        self._is_terminal = sys.stderr.isatty()
        self._interval_s = TERMINAL_INTERVAL_S if self._is_terminal else LOG_INTERVAL_S
        self._began = self._said = clock.monotonic()
        self._before = 0
        self._last = (0, 0)
        self._width = 0

    def begin(self, done: int) -> None:
        """Start measuring: `done` was finished before, and the rate counts from here."""
        self._began, self._before = self._clock.monotonic(), done

    def __call__(self, done: int, of: int) -> None:
        """Update the progress; print a line when an interval has passed."""
        now = self._clock.monotonic()
        self._last = (done, of)
        if now - self._said >= self._interval_s:
            self._said = now
            self._say(self._line(now))

    def __enter__(self) -> Progress:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def end(self) -> None:
        """End the terminal's line, so that what follows has its own."""
        if self._width:
            self._say(self._line(self._clock.monotonic()))
            output.say("")
        self._width = 0

    def _line(self, now: float) -> str:
        done, of = self._last
        passed_s = now - self._began
        per_s = (done - self._before) / passed_s if passed_s else 0.0
        left = f"{_words((of - done) / per_s)} left" if per_s else "time left unknown"
        return f"{done} of {of} {self._what}, {per_s:.0f} per second, {left}"

    def _say(self, line: str) -> None:
        if not self._is_terminal:
            output.say(line)
            return
        whole = f"{_bar(*self._last, shutil.get_terminal_size().columns - len(line) - 1)}{line}"
        output.say(f"\r{whole.ljust(self._width)}", end="")
        self._width = len(whole)


class StagedProgress(Progress):
    """Progress of work that is done in stages, each in words and with a rate of its own.

    A stage begins where the one before has ended, the first one with its first report: what was before is no part of its rate.
    """

    def __init__(self, clock: Clock = _SYSTEM_CLOCK) -> None:
        super().__init__("", clock)
        self._reported: float | None = None

    @property
    def last(self) -> str:
        """What was reported last, in words; empty: nothing."""
        done, of = self._last
        return f"{done} of {of} {self._what}" if self._what else ""

    def report(self, what: str, done: int, of: int) -> None:
        """Update the progress of the stage `what`; another stage ends the line of the one before."""
        if what != self._what:
            self.end()
            self._what = what
            self.begin(done)
            if self._reported is not None:
                self._began, self._before = self._reported, 0
        self(done, of)
        self._reported = self._clock.monotonic()


def _bar(done: int, of: int, columns: int) -> str:
    """Return a bar of at most so many columns; nothing if that is too few: a line must not wrap."""
    width = min(columns - _PERCENT, _BAR)
    part = min(done / of, 1.0) if of else 1.0
    return f"[{('#' * int(part * width)).ljust(width)}] {int(part * 100):3} % " if width >= _LEAST_BAR else ""


def _words(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes} min"
    return f"{minutes} min {rest} s" if minutes else f"{rest} s"
