"""What a job reads, and from where: a compaction the current checkpoint and the log behind it, `usage` what is behind its mark, or the whole log.

Knows places, not records, and no Spark: what is refused here is refused before it starts.
Whatever would make a checkpoint without events that somebody relies on is refused by name.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass

from iothub.base.errors import ConflictError
from iothub.records.checkpoint import Pointer
from iothub.records.events import GENERATION_BITS, Topic
from iothub.records.job_spec import Spec
from iothub_spark.stores import marks
from iothub_spark.stores.log import Log, LogRange, Offsets, range_after, shown
from iothub_spark.stores.opened import opened_states
from iothub_spark.stores.rows import Checkpoints

_REMEDY = (
    "restore both from one backup, or make a new checkpoint from the live session states: "
    "`iothub job run compact_events --option from_state=true`"
)


@dataclass(frozen=True, slots=True)
class Plan:
    """One compaction. `base`: the version to start from, None: the beginning of the log. `begin`: where the log begins."""

    pointer: Pointer | None
    base: Pointer | None
    wanted: LogRange
    begin: Offsets

    @property
    def is_done(self) -> bool:
        """Nothing has come since the current checkpoint."""
        return self.base is not None and self.base == self.pointer and self.wanted.upto == self.base.offsets


def planned(spec: Spec, log: Log, checkpoints: Checkpoints) -> Plan:
    """Return what a compaction reads. Raises BackendError, ConflictError, NotFoundError."""
    pointer = checkpoints.pointer()
    if spec.options.get("from_state") is True:
        with opened_states(spec.state) as states:
            return plan_from_states(log, pointer, states.applied())
    older = [each for each in marks.kept(checkpoints) if pointer is not None and each.version < pointer.version]
    return plan_compaction(log, pointer, older[-1] if older else None, is_full=spec.is_full)


def plan_copy(log: Log, after: Offsets | None, topic: Topic, name: str) -> LogRange:
    """Return what of a log is not in the archive yet. Raises ConflictError: events are gone that were not copied."""
    try:
        return range_after(log, after, topic)
    except ConflictError as error:
        raise ConflictError(
            f"the archive of {name}: {error}; `iothub job run archive --full` continues at the beginning of the log"
        ) from error


@dataclass(frozen=True, slots=True)
class UsagePlan:
    """One run of `usage`. `seen`: up to where the last run had added everything up, None: everything is read."""

    wanted: LogRange
    seen: Offsets | None = None

    @property
    def is_done(self) -> bool:
        """Nothing has come since the last run."""
        return self.seen == self.wanted.upto


def plan_usage(log: Log, held: Offsets | None, seen: Offsets | None, *, is_full: bool) -> UsagePlan:
    """Return what a run reads: what is behind `held`, where hours begin that may still grow.

    All there is, if nothing is known of a last run, or the log is another one, or has lost what that run had.
    """
    if held is not None and seen is not None and not is_full:
        with suppress(ConflictError):
            range_after(log, seen, Topic.ANALYTICS)
            return UsagePlan(range_after(log, held, Topic.ANALYTICS), seen)
    return UsagePlan(range_after(log, None, Topic.ANALYTICS))


def require_comparable(log: Log, pointer: Pointer | None, applied: Offsets) -> None:
    """Raise ConflictError unless checkpoint and session states can be compared with what the log has."""
    begin = log.begin()
    if pointer is None and not is_whole(begin):
        raise ConflictError(
            f"the log begins at offset {shown(begin)} and there is no checkpoint, so there is nothing to compare"
        )
    for offsets in (() if pointer is None else pointer.offsets, applied):
        if offsets:
            range_after(log, offsets)


def plan_compaction(log: Log, pointer: Pointer | None, older: Pointer | None = None, *, is_full: bool) -> Plan:
    """Capture the end of the log and say what is to be read.

    `is_full`: not from the current checkpoint, but from the first event, or, where the log does not reach back so far, from an older
    checkpoint.

    Raises ConflictError: events are missing before or behind what is read, or it is the wrong log.
    """
    begin = log.begin()
    if pointer is not None:
        try:
            behind = range_after(log, pointer.offsets)
        except ConflictError as error:
            raise ConflictError(f"checkpoint {pointer.version} does not match the log: {error}; {_REMEDY}") from None
        if not is_full:
            return Plan(pointer, pointer, behind, begin)
    if older is not None and not is_whole(begin) and reaches(begin, older.offsets):
        return Plan(pointer, older, range_after(log, older.offsets), begin)
    if pointer is not None and not is_whole(begin):
        raise ConflictError(_nothing_to_begin_at(begin, pointer))
    require_whole(begin)
    return Plan(pointer, None, range_after(log, None), begin)


def plan_from_states(log: Log, pointer: Pointer | None, applied: Offsets) -> Plan:
    """The same, from the live session states and what is behind them. Call before the states are read: they only go on."""
    if not applied:
        raise ConflictError("the session states have no events of the log yet: start the hub once")
    return Plan(pointer, None, range_after(log, applied), log.begin())


def require_whole(begin: Offsets) -> None:
    """Raise ConflictError unless the log is there from its very first event on."""
    if not is_whole(begin):
        raise ConflictError(
            f"the log begins at offset {shown(begin)}, not at its first event, so sessions cannot be computed from it alone; {_REMEDY}"
        )


def _nothing_to_begin_at(begin: Offsets, pointer: Pointer) -> str:
    """Say why there is no `--full` here, though nothing is wrong."""
    return (
        f"--full is not possible: the log begins at offset {shown(begin)}, not at its first event, and there is no older checkpoint "
        f"(`erase` keeps one only). Run the job without --full: it continues from checkpoint {pointer.version}, which matches the log. "
        "Only if that checkpoint is damaged, make a new one from the live session states: "
        "`iothub job run compact_events --option from_state=true`"
    )


def reaches(begin: Offsets, offsets: Offsets) -> bool:
    """Say whether a log that begins there has everything behind these offsets."""
    return len(begin) == len(offsets) and all(first <= last + 1 for first, last in zip(begin, offsets, strict=True))


def is_whole(begin: Offsets) -> bool:
    """Say whether nothing was ever trimmed, and the log was never begun anew."""
    return all(offset <= 1 and not offset >> GENERATION_BITS for offset in begin)
