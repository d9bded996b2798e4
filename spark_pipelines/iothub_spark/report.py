"""What a job's process says on standard output: one JSON object per line, for the runner or for a person with `jq`.

Knows no job. Everything else, Spark's own words too, goes to standard error.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from pyspark.sql import SparkSession

Figures = Mapping[str, int | float | str | bool]

_EVERY_S = 1.0


class Report:
    """Lines of one run; any thread may add one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stdout
        self._lock = threading.Lock()

    def stage(self, name: str, done: int, of: int, unit: str = "records") -> None:
        """Say how far a stage is."""
        self._say({"event": "stage", "name": name, "done": done, "of": of, "unit": unit})

    def note(self, text: str) -> None:
        self._say({"event": "note", "text": text})

    def done(self, figures: Figures) -> None:
        self._say({"event": "done", "figures": dict(figures)})

    def failed(self, kind: str, text: str) -> None:
        self._say({"event": "failed", "kind": kind, "text": text})

    def _say(self, line: dict[str, object]) -> None:
        with self._lock:
            self._stream.write(json.dumps(line, ensure_ascii=False) + "\n")
            self._stream.flush()


@contextmanager
def watched(spark: SparkSession, report: Report, names: tuple[str, ...], of: int) -> Iterator[None]:
    """Report once a second how far the Spark stages inside are; the first is called by the first of `names`, later ones by the next, then the last.

    A stage counts tasks; what is reported is their share of `of` records. One that another follows has done all of them.
    """
    is_over = threading.Event()
    seen: list[int] = []
    reached: list[int] = []  # places of `names`: only forward, for stages may be at work together
    before = set(spark.sparkContext.statusTracker().getActiveStageIds())

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not is_over.wait(_EVERY_S):
            for number in sorted(set(tracker.getActiveStageIds()) - before):
                seen.extend([number] if number not in seen else [])
                stage, place = tracker.getStageInfo(number), min(seen.index(number), len(names) - 1)
                if stage is not None and place >= max(reached, default=0):
                    end_before(place)
                    reached.append(place)
                    report.stage(names[place], of * stage.numCompletedTasks // max(1, stage.numTasks), of)

    def end_before(place: int) -> None:
        if reached and reached[-1] < place:
            report.stage(names[reached[-1]], of, of)

    watcher = threading.Thread(target=look, name="progress", daemon=True)
    watcher.start()
    try:
        yield
    finally:
        is_over.set()
        watcher.join()
    end_before(len(names) - 1)
    report.stage(names[-1], of, of)
