"""`verify`: checkpoint and tail are the whole log folded, and the live session states say the same.

Knows what is compared with what; changes nothing. It may run beside a hub: what a row knows beyond the end that was captured is not compared.
"""

from __future__ import annotations

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as everywhere

from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import Pointer
from iothub.records.job_spec import Spec
from iothub_spark import checking
from iothub_spark.planning import is_whole, reaches, require_comparable
from iothub_spark.report import Figures, Report, watched
from iothub_spark.sources.events import read_stored
from iothub_spark.sources.states import read_checkpoint, read_states
from iothub_spark.stores import marks
from iothub_spark.stores.log import Log, LogRange, Offsets, range_after, shown
from iothub_spark.stores.opened import opened_checkpoints, opened_log, opened_states
from iothub_spark.transforms.differences import differing, first_differences
from iothub_spark.transforms.fold import Bounds, fold_events

NAMED = 20


class _Views:
    """What the same sessions look like from several sides. All up to one end of the log."""

    def __init__(self, spark: SparkSession, spec: Spec, log: Log, end: Offsets) -> None:
        self._spark = spark
        self._spec = spec
        self._log = log
        self._end = end

    def from_checkpoint(self, pointer: Pointer) -> DataFrame:
        return self._folded(read_checkpoint(self._spark, self._spec, pointer.version), pointer.offsets)

    def from_states(self, applied: Offsets) -> DataFrame:
        return self._folded(read_states(self._spark, self._spec), applied, are_live=True)

    def from_log(self) -> DataFrame:
        return self._folded(None, None)

    def _folded(self, states: DataFrame | None, after: Offsets | None, *, are_live: bool = False) -> DataFrame:
        behind = range_after(self._log, after)
        wanted = LogRange(behind.topic, behind.after, self._end)
        stored = read_stored(self._spark, self._spec, wanted)
        bounds = Bounds(self._log.begin(), are_states_live=are_live)
        folded = fold_events(states, stored, bounds, self._spec.spark.shuffle_partitions)
        return folded.where(F.col("damage").isNull())


def run(spark: SparkSession, spec: Spec, report: Report) -> Figures:
    """Compare; returns what was compared.

    Raises:
        BackendError: A store does not answer.
        ConflictError: There is nothing to compare with, or the log lacks events.
        CorruptRecordError: There are differences; the first ones have been reported.
    """
    with (
        opened_log(spec.events) as log,
        opened_checkpoints(spec.checkpoints) as checkpoints,
        opened_states(spec.state) as states,
    ):
        pointer, kept = checkpoints.pointer(), marks.kept(checkpoints)
        applied, end = states.applied(), log.end()
        require_comparable(log, pointer, applied)
        views = _Views(spark, spec, log, end)
        if pointer is not None:
            checking.check_rows(spark, spec, pointer)
        sides = _sides(views, log, pointer, kept)
        if applied:
            sides.append(("live session states", views.from_states(applied)))
        return _compared(spark, report, sides, end)


def _sides(views: _Views, log: Log, pointer: Pointer | None, kept: list[Pointer]) -> list[tuple[str, DataFrame]]:
    """Return what the log says, from as far back as possible, and what the checkpoint says."""
    begin = log.begin()
    found: list[tuple[str, DataFrame]] = []
    if is_whole(begin):
        found.append(("whole log", views.from_log()))
    elif pointer is not None:
        older = [each for each in kept if each.version < pointer.version and reaches(begin, each.offsets)]
        found += [(f"checkpoint {each.version}", views.from_checkpoint(each)) for each in older[:1]]
    if pointer is not None:
        found.append((f"checkpoint {pointer.version}", views.from_checkpoint(pointer)))
    return found


def _compared(spark: SparkSession, report: Report, sides: list[tuple[str, DataFrame]], end: Offsets) -> Figures:
    """Compare every side with the first one."""
    (first, expected), *others = sides
    expected = expected.persist()
    sessions, total = expected.count(), 0
    for name, frame in others:
        with watched(spark, report, (f"compare {name}",), sessions):
            different = differing(expected, frame).where(_is_within(end)).persist()
            count = different.count()
        for each in first_differences(different, NAMED) if count else []:
            report.note(f"{name} against {first}: {each}")
        total += count
        different.unpersist()
    expected.unpersist()
    report.note(f"compared {' with '.join(name for name, _ in sides)}: {sessions} sessions, {total} differences")
    if total:
        raise CorruptRecordError(
            f"{total} sessions differ from the log; the first {min(total, NAMED)} of each side are listed above"
        )
    return {"sessions": sessions, "sides": ", ".join(name for name, _ in sides), "differences": 0, "to": shown(end)}


def _is_within(end: Offsets) -> Column:
    """Leave out rows that a running hub has written since: they know more than the end that was captured."""
    key = F.concat_ws("/", F.col("tenant_id").cast("string"), "client_id").cast("binary")
    home = F.crc32(key) % F.lit(len(end)) + 1  # as `iothub.records.events.partition_of`
    own_end = F.element_at(F.array(*map(F.lit, end)), home.cast("int"))
    return F.coalesce(F.col("found_offset"), F.lit(0)) <= own_end
