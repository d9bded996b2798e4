"""What is removed when a new checkpoint counts: older versions but one, and the part of the session log that nobody needs.

Knows what is kept and why; the stores remove. Everything here may be repeated, and stop anywhere.

Theory: two versions are kept, and the log from the older one on: should the newer one be damaged, the older one and the log make it again.
A version above the current one may be another run's, which has not finished: it stays. What a killed run has left lies below the next one
that counts.
"""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass

from iothub.base.errors import NotFoundError
from iothub.records.checkpoint import Pointer
from iothub.records.events import Topic
from iothub.records.job_spec import Spec, SqliteFile
from iothub_spark.stores import marks
from iothub_spark.stores.accounts import opened_accounts
from iothub_spark.stores.archive import LOGS
from iothub_spark.stores.log import Offsets
from iothub_spark.stores.log_sqlite import trim
from iothub_spark.stores.opened import opened_states
from iothub_spark.stores.rows import Checkpoints


@dataclass(frozen=True, slots=True)
class Removal:
    """What is to go. `trim_upto`: empty, nothing of the log; `held_by`: who needs most of what is above."""

    versions: tuple[int, ...]
    trim_upto: Offsets
    held_by: str


def plan_removal(spec: Spec, checkpoints: Checkpoints, pointer: Pointer) -> Removal:
    """Say what is deleted once this pointer is the current one. Reads only."""
    whole = [each for each in marks.kept(checkpoints) if each.version < pointer.version]
    older = whole[-1] if whole else None
    found = {*checkpoints.versions(), *marks.marked_versions(checkpoints)}
    stays = {pointer.version, older.version if older is not None else pointer.version}
    gone = tuple(sorted(version for version in found - stays if version < pointer.version))
    return Removal(gone, *_trimmable(spec, older, pointer))


def remove(spec: Spec, checkpoints: Checkpoints, removal: Removal) -> tuple[int, int]:
    """Remove it; returns (rows of checkpoints, events of the log)."""
    rows = sum(checkpoints.drop(version) for version in removal.versions)
    marks.forget(checkpoints, removal.versions)
    return rows, _trimmed(spec, removal.trim_upto) if removal.trim_upto else 0


def _trimmed(spec: Spec, upto: Offsets) -> int:
    if isinstance(spec.events, SqliteFile):
        return trim(spec.events.path, upto[0])
    from iothub_spark.stores.log_kafka import KafkaStretches

    with closing(KafkaStretches(spec.events)) as log:
        return log.trim(upto)


def _trimmable(spec: Spec, older: Pointer | None, pointer: Pointer) -> tuple[Offsets, str]:
    """Return up to where the session log may be trimmed, and who holds the rest."""
    if not isinstance(spec.events, SqliteFile) and isinstance(spec.state, SqliteFile):
        return (), "perhaps other hubs (session states in a file belong to one hub only)"
    if older is None:
        return (), "later runs (there is only one checkpoint)"
    wanted: list[tuple[Offsets, str]] = [(each.offsets, f"checkpoint {each.version}") for each in (older, pointer)]
    with opened_accounts(spec.sql_url_file) as accounts:
        wanted += [(offsets, f"job {job}") for job, offsets in accounts.marks(LOGS[Topic.SESSIONS]).items()]
    wanted.append((_applied(spec), "the session states"))
    nothing = (0,) * len(pointer.offsets)
    known = [(offsets if len(offsets) == len(nothing) else nothing, name) for offsets, name in wanted]
    upto = tuple(min(places) for places in zip(*(offsets for offsets, _ in known), strict=True))
    return upto if any(upto) else (), min((sum(offsets), name) for offsets, name in known)[1]


def _applied(spec: Spec) -> Offsets:
    """A hub starts from its states, too, and needs the log behind them."""
    try:
        with opened_states(spec.state) as states:
            return states.applied()
    except NotFoundError:
        return ()
