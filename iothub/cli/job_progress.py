"""Progress of a running job, as text on a terminal or as JSON lines for a log.

Knows no job. Everything goes to standard error: standard output has the answer.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping

from iothub.base.clock import Clock, SystemClock
from iothub.base.text import printable
from iothub.cli import output
from iothub.cli.progress import Progress
from iothub.jobs.lines import Note, Report, Stage, as_object

LOG_INTERVAL_S = 10.0
_SYSTEM_CLOCK = SystemClock()


def is_terminal() -> bool:
    """Say whether standard error is a terminal."""
    return sys.stderr.isatty()


class JobProgress:
    """Prints what one run reports. `close` it when the run has ended."""

    def __init__(self, job: str, clock: Clock = _SYSTEM_CLOCK) -> None:
        self._job = job
        self._clock = clock
        self._is_terminal = is_terminal()
        self._stage: Stage | None = None
        self._began = 0.0
        self._written = -LOG_INTERVAL_S
        self._line: Progress | None = None

    def begin(self) -> None:
        """Print a first line at once on a terminal: Spark itself is silent for seconds."""
        if self._is_terminal:
            output.say(f"{self._job}: starting Spark ...")

    def __call__(self, report: Report) -> None:
        if not isinstance(report, Stage):
            self._end_stage()
            self._print(report)
            return
        if self._stage is None or self._stage.name != report.name:
            self._end_stage()
            self._begin_stage(report)
        self._stage = report
        if self._line is not None:
            self._line(report.done, max(report.of, report.done))
        elif self._clock.monotonic() - self._written >= LOG_INTERVAL_S:
            self._write(as_object(report))

    def close(self) -> None:
        self._end_stage()

    def _begin_stage(self, stage: Stage) -> None:
        self._began = self._clock.monotonic()
        self._written = -LOG_INTERVAL_S
        if self._is_terminal:
            self._line = Progress(f"{printable(stage.unit)} ({self._job}: {printable(stage.name)})", self._clock)

    def _end_stage(self) -> None:
        """Print the result of the stage, once, with its duration."""
        stage, self._stage = self._stage, None
        if stage is None:
            return
        took_s = self._clock.monotonic() - self._began
        if self._line is None:
            self._write({**as_object(stage), "seconds": round(took_s, 1)})
            return
        self._line.end()
        self._line = None
        output.say(f"{self._job}: {printable(stage.name)}: {stage.done} {printable(stage.unit)} in {took_s:.1f} s")

    def _print(self, report: Report) -> None:
        if not self._is_terminal:
            self._write(as_object(report))
        elif isinstance(report, Note):
            output.say(f"{self._job}: {printable(report.text)}")

    def _write(self, line: Mapping[str, object]) -> None:
        self._written = self._clock.monotonic()
        output.say(output.as_json({"job": self._job, **line}, "jsonl"))
