"""The reports of a job's process on its standard output, one JSON object per line, read into values.

Knows no process. Any other line belongs to the run's log.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

LINE_LIMIT_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Stage:
    """Progress of a stage. `of` 0: the total is unknown."""

    name: str
    done: int
    of: int
    unit: str


@dataclass(frozen=True, slots=True)
class Note:
    """A message for a person."""

    text: str


@dataclass(frozen=True, slots=True)
class Done:
    """The job succeeded."""

    figures: Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Failed:
    """The job failed. `kind`: conflict, unavailable, corrupt, config or died."""

    kind: str
    text: str


Report = Stage | Note | Done | Failed


def read_line(line: bytes) -> Report | None:
    """Return what a line reports; None: it is no report."""
    if not line.startswith(b"{") or len(line) > LINE_LIMIT_BYTES:
        return None
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    word = value.get("event")
    if word == "stage":
        return Stage(
            _text(value, "name"), _count(value, "done"), _count(value, "of"), _text(value, "unit") or "records"
        )
    if word == "note":
        return Note(_text(value, "text"))
    if word == "done":
        figures = value.get("figures")
        return Done(figures if isinstance(figures, dict) else {})
    if word == "failed":
        return Failed(_text(value, "kind"), _text(value, "text"))
    return None


def as_object(report: Report) -> dict[str, object]:
    """Return the JSON object of a report."""
    if isinstance(report, Stage):
        return {"event": "stage", "name": report.name, "done": report.done, "of": report.of, "unit": report.unit}
    if isinstance(report, Note):
        return {"event": "note", "text": report.text}
    if isinstance(report, Done):
        return {"event": "done", "figures": dict(report.figures)}
    return {"event": "failed", "kind": report.kind, "text": report.text}


def _text(value: Mapping[str, object], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _count(value: Mapping[str, object], name: str) -> int:
    found = value.get(name)
    return found if isinstance(found, int) and not isinstance(found, bool) and found >= 0 else 0
