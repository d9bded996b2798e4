"""Marks beside the checkpoints: how far other jobs have read the log, what a kept version is of, and what a run has written.

Knows names and values, no store. The log is never trimmed past a job's mark.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from iothub.base.errors import CorruptRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.checkpoint import Pointer, decode_pointer, encode_pointer
from iothub.records.events import Topic
from iothub_spark.stores.rows import Checkpoints, Offsets

VERSION = 1
_JOB, _KEPT, _WRITTEN = "job/", "checkpoint/", "written/"


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of a run have written under a version. `examples`: some of the damaged records that were passed over."""

    rows: int
    checksum: int
    damaged: int = 0
    examples: tuple[str, ...] = ()


def set_job_mark(checkpoints: Checkpoints, job: str, offsets: Offsets | None, topic: Topic = Topic.SESSIONS) -> None:
    """Say that a job needs nothing of a topic up to these offsets any more; None: it needs nothing at all."""
    value = None if offsets is None else json.dumps({"v": VERSION, "offsets": list(offsets)}).encode()
    checkpoints.set_mark(f"{_JOB}{topic.name}/{job}", value)


def job_marks(checkpoints: Checkpoints, topic: Topic = Topic.SESSIONS) -> dict[str, Offsets]:
    """Return how far each job that has a mark is. Raises CorruptRecordError."""
    found = _of(checkpoints, f"{_JOB}{topic.name}/")
    return {job: _offsets(job, value) for job, value in found.items()}


def keep(checkpoints: Checkpoints, pointer: Pointer) -> None:
    """Remember what a version is of, before it counts and when another one has taken its place."""
    checkpoints.set_mark(f"{_KEPT}{pointer.version}", encode_pointer(pointer))


def kept(checkpoints: Checkpoints) -> list[Pointer]:
    """Return the versions that are whole, ascending."""
    return sorted(map(decode_pointer, _of(checkpoints, _KEPT).values()), key=lambda pointer: pointer.version)


def set_written(checkpoints: Checkpoints, version: int, written: Written) -> None:
    value = {
        "v": VERSION,
        "rows": written.rows,
        "checksum": f"{written.checksum:016x}",
        "damaged": written.damaged,
        "examples": list(written.examples),
    }
    checkpoints.set_mark(f"{_WRITTEN}{version}", json.dumps(value).encode())


def written(checkpoints: Checkpoints, version: int) -> Written | None:
    """Return what the tasks of a run have written; None: they have not finished."""
    value = _of(checkpoints, _WRITTEN).get(str(version))
    if value is None:
        return None
    fields = json.loads(value)
    return Written(fields["rows"], int(fields["checksum"], 16), fields["damaged"], tuple(fields["examples"]))


def forget(checkpoints: Checkpoints, versions: Iterable[int]) -> None:
    """Remove what is remembered of versions that are dropped."""
    for version in versions:
        for prefix in (_KEPT, _WRITTEN):
            checkpoints.set_mark(f"{prefix}{version}", None)


def marked_versions(checkpoints: Checkpoints) -> set[int]:
    """Return the versions of which anything is remembered."""
    return {int(name) for prefix in (_KEPT, _WRITTEN) for name in _of(checkpoints, prefix)}


def _of(checkpoints: Checkpoints, prefix: str) -> dict[str, bytes]:
    return {name.removeprefix(prefix): value for name, value in checkpoints.marks().items() if name.startswith(prefix)}


def _offsets(job: str, value: bytes) -> Offsets:
    try:
        fields = json.loads(value)
        offsets = tuple(int(offset) for offset in fields["offsets"])
        is_known = fields["v"] == VERSION
    except UNREADABLE as error:
        raise CorruptRecordError(f"damaged mark of job {job} ({in_words(error)})") from error
    if not is_known:
        raise CorruptRecordError(f"mark of job {job} of format version {fields['v']!r}, this program knows {VERSION}")
    return offsets
