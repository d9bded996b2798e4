"""Whether the live session states are what the log says: every session is folded anew and compared.

Knows ports, not drivers; only reads, so it may run beside a hub. Takes memory for every session twice.

Theory: a hub writes states after its log, so only the rows lag. What a start would make of them counts: the rows with the tail of the log folded
over them, from the applied offsets on. These are read before the rows, the log's end after them: so every row includes the applied offsets, and none
more than that end. The other side is the checkpoint, or nothing, with everything after it folded over.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from iothub.base.errors import ConflictError, CorruptRecordError
from iothub.records.events import Event
from iothub.records.state import SessionState, decode_state, fold
from iothub_services.events.port import NOWHERE, EventLog, Offsets, reached
from iothub_services.events.reading import read_between
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.state.start import find_checkpoint

OnProgress = Callable[[int, int], None]
"""Hears (events read, events in all)."""

_States = dict[tuple[int, str], SessionState]


class Difference(NamedTuple):
    """A session whose stored state differs from the log, or whose row is damaged."""

    tenant_id: int
    client_id: str
    what: str

    def __str__(self) -> str:
        return f"{self.tenant_id}/{self.client_id}: {self.what}"


@dataclass(slots=True)
class Verification:
    """What was found.

    `checkpoint`: the version that it began from, None: from the beginning of the log. `unusable`: why not from the current one.
    `unreachable`: sessions older than the log, which were not compared. `damaged`: events that were passed over, with why.
    """

    checkpoint: int | None = None
    unusable: list[str] = field(default_factory=list)
    events: int = 0
    compared: int = 0
    unreachable: int = 0
    damaged: list[str] = field(default_factory=list)
    differences: list[Difference] = field(default_factory=list)


def verify(
    log: EventLog, store: StateStore, checkpoints: CheckpointStore | None = None, on_progress: OnProgress | None = None
) -> Verification:
    """Compare. Without `checkpoints` everything is rebuilt from the beginning of the log. Blocking.

    Raises:
        BackendError: A store does not answer.
        ConflictError: Events between states and log are missing, or they are of another log.
    """
    found = Verification()
    applied = store.applied_offsets()
    live = _live(store, found)
    begin, end = log.begin(), log.end()
    _require_tail(applied, begin, end)
    rebuilt: _States = {}
    base = NOWHERE
    checkpoint = find_checkpoint(checkpoints, log, applied, found.unusable.append)
    if checkpoint is not None:
        rebuilt, base, found.checkpoint = checkpoint.states, checkpoint.pointer.offsets, checkpoint.pointer.version
    first = tuple(max(min(reached(base, at), reached(applied, at)), begin[at] - 1) for at in range(len(end)))
    total = sum(end) - sum(first)
    for partition, offset, event in read_between(log, first, end, lambda each: found.damaged.append(each.reason)):
        if offset > end[partition]:
            continue
        found.events += 1
        if on_progress is not None:
            on_progress(found.events, total)
        if offset > reached(base, partition):
            _take(rebuilt, event, offset)
        if offset > reached(applied, partition):
            _take(live, event, offset)
    is_whole = checkpoint is not None or all(offset <= 1 for offset in begin)
    _compare(live, rebuilt, found, is_whole=is_whole)
    return found


def _live(store: StateStore, found: Verification) -> _States:
    states: _States = {}
    for row in store.load():
        try:
            states[row.tenant_id, row.client_id] = decode_state(row.record)
        except CorruptRecordError as error:
            found.differences.append(Difference(row.tenant_id, row.client_id, str(error)))
    return states


def _require_tail(applied: Offsets, begin: Offsets, end: Offsets) -> None:
    """What the rows lack must be in the log."""
    if not applied:
        return
    if len(applied) != len(end):
        raise ConflictError(
            f"the session states belong to a log with {len(applied)} partitions, this one has {len(end)}: nothing to compare"
        )
    if any(first > offset + 1 for first, offset in zip(begin, applied, strict=True)):
        raise ConflictError(
            f"the session log begins at {_shown(begin)}, the session states end at {_shown(applied)}: "
            "events between them are missing, nothing to compare"
        )


def _take(states: _States, event: Event, offset: int) -> None:
    key = (event.tenant_id, event.client_id)
    state = fold(states.get(key), event, offset)
    if state is not None:
        states[key] = state


def _compare(live: _States, rebuilt: _States, found: Verification, *, is_whole: bool) -> None:
    """Note every session that differs. One that has ended may be missing on either side: tombstones are removed in time."""
    unread = {(each.tenant_id, each.client_id) for each in found.differences}
    found.compared += len(unread)
    for key in sorted((live.keys() | rebuilt.keys()) - unread):
        stored, expected = live.get(key), rebuilt.get(key)
        if expected is None and not is_whole:
            found.unreachable += 1
            continue
        known = [state for state in (stored, expected) if state is not None]
        if len(known) == 1 and known[0].is_ended:
            continue
        found.compared += 1
        what = _difference(stored, expected)
        if what:
            found.differences.append(Difference(*key, what))


def _difference(stored: SessionState | None, expected: SessionState | None) -> str:
    if stored is None:
        return "in the log, but not stored"
    if expected is None:
        return "stored, but not in the log"
    names = [name for name, one, other in zip(SessionState._fields, stored, expected, strict=True) if one != other]
    return f"stored state differs from the log ({', '.join(names)})" if names else ""


def _shown(offsets: Offsets) -> str:
    return " ".join(map(str, offsets))
