"""Marks beside the checkpoints: what a kept version is of, and what a run has written.

Knows names and values, no store.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass

from iothub.records.checkpoint import Pointer, decode_pointer, encode_pointer
from iothub_spark.stores.rows import Checkpoints

VERSION = 1
_KEPT, _WRITTEN = "checkpoint/", "written/"


@dataclass(frozen=True, slots=True)
class Written:
    """What the tasks of a run have written under a version. `examples`: some of the damaged records that were passed over."""

    rows: int
    checksum: int
    damaged: int = 0
    examples: tuple[str, ...] = ()


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
