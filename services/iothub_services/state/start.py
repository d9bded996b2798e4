"""What a start begins from: the current checkpoint, if the log reaches back to it and its rows are complete.

Knows pointer, rows and the log's bounds; the service folds the tail.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import Pointer
from iothub.records.state import SessionState, decode_state
from iothub_services.events.port import EventLog, Offsets
from iothub_services.state.checkpoints import CheckpointStore, verified

_ATTEMPTS = 3  # when another version takes the place of the one that is read


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What the log says up to a place. `lacking`: the records of it that the live states do not have yet."""

    pointer: Pointer
    states: dict[tuple[int, str], SessionState]
    lacking: dict[tuple[int, str], bytes]


def find_checkpoint(
    store: CheckpointStore | None, log: EventLog, applied: Offsets, on_unusable: Callable[[str], None]
) -> Checkpoint | None:
    """Read the current checkpoint; None: there is none, or it cannot be used, and `on_unusable` was called with the cause.

    `applied`: what the live states include. When they have seen more than the log has, only they have it.
    """
    if store is None:
        return None
    tried: Pointer | None = None
    why = ""
    for _ in range(_ATTEMPTS):
        try:
            pointer = store.pointer()
            if pointer is None:
                return None
            if pointer == tried:
                break
            tried, what = pointer, obstacle(pointer, log.begin(), log.end(), applied)
            if what:
                why = f"checkpoint {pointer.version}: {what}"
                break
            return _read(pointer, store, applied)
        except CorruptRecordError as error:  # perhaps it was replaced while it was read, and its rows are gone
            why = str(error)
    on_unusable(why)
    return None


def _read(pointer: Pointer, store: CheckpointStore, applied: Offsets) -> Checkpoint:
    is_applied = includes(applied, pointer)
    found = Checkpoint(pointer, {}, {})
    for row in verified(pointer, store.rows(pointer.version)):
        key = row.tenant_id, row.client_id
        found.states[key] = decode_state(row.record)
        if not is_applied:
            found.lacking[key] = row.record
    return found


def obstacle(pointer: Pointer, begin: Offsets, end: Offsets, applied: Offsets) -> str:
    """Say why a start cannot begin from a checkpoint; "": it can."""
    if len(pointer.offsets) != len(end):
        return f"it is of a log with {len(pointer.offsets)} partitions, this one has {len(end)}"
    if any(map(operator.gt, pointer.offsets, end)):
        return f"it includes the log up to {_shown(pointer.offsets)}, which ends at {_shown(end)}"
    if any(first > offset + 1 for first, offset in zip(begin, pointer.offsets, strict=True)):
        needed = _shown(tuple(offset + 1 for offset in pointer.offsets))
        return f"the log begins at {_shown(begin)}, it is needed from {needed}"
    if applied and (len(applied) != len(end) or any(map(operator.gt, applied, end))):
        return f"the session states include the log up to {_shown(applied)}, which ends at {_shown(end)}"
    return ""


def includes(applied: Offsets, pointer: Pointer) -> bool:
    """Say whether states with everything up to there have everything that a checkpoint has."""
    return len(applied) == len(pointer.offsets) and all(map(operator.ge, applied, pointer.offsets))


def _shown(offsets: Offsets) -> str:
    return " ".join(map(str, offsets))
