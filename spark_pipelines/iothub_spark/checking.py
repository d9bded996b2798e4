"""Whether a version of the checkpoint is what it should be: its rows are those that were written, and some, folded again one by one, come out equal.

Knows the stores; takes nothing from the way in which the rows were made.
"""

from __future__ import annotations

from pyspark.sql import SparkSession

from iothub.base.errors import CorruptRecordError
from iothub.records.checkpoint import Pointer
from iothub.records.events import partition_of, read_event
from iothub.records.job_spec import Spec
from iothub.records.state import SessionState, decode_state, encode_state, fold
from iothub_spark.planning import Plan
from iothub_spark.sources.states import read_checkpoint
from iothub_spark.stores.log import Log
from iothub_spark.stores.rows import Checkpoints
from iothub_spark.transforms.checksums import sums_of

SAMPLE = 32  # sessions

Key = tuple[int, str]


def check_rows(spark: SparkSession, spec: Spec, pointer: Pointer, picks: int = 0) -> tuple[Key, ...]:
    """Read a version back, and compare it with its pointer; returns some of its sessions, others for every version.

    Raises CorruptRecordError: a row is missing, or another one.
    """
    found = sums_of(read_checkpoint(spark, spec, pointer.version), picks, pointer.version)
    if (found.rows, found.checksum) != (pointer.rows, pointer.checksum):
        raise CorruptRecordError(
            f"checkpoint {pointer.version} has {found.rows} rows with checksum {found.checksum:016x}, "
            f"expected {pointer.rows} rows with {pointer.checksum:016x}: "
            "make a new one with `iothub job run compact_events --full`"
        )
    return found.picked


def check_sample(log: Log, checkpoints: Checkpoints, plan: Plan, version: int, picked: tuple[Key, ...]) -> int:
    """Fold some sessions of a new version again; returns how many. Raises CorruptRecordError with the first that differs."""
    partitions = len(plan.wanted.upto)
    homes = {key: partition_of(f"{key[0]}/{key[1]}", partitions) if partitions > 1 else 0 for key in picked}
    home = homes[picked[0]] if picked else 0
    sample = [key for key in picked if homes[key] == home]  # of one partition: the others need not be read
    states: dict[Key, SessionState] = {}
    if plan.base is not None:
        states = {row[:2]: decode_state(row.record) for row in checkpoints.get(plan.base.version, sample)}
    _fold_plainly(log, plan, home, sample, states)
    written = {row[:2]: row.record for row in checkpoints.get(version, sample)}
    for key in sample:
        state = states.get(key)
        if state is None or encode_state(state) != written.get(key):
            raise CorruptRecordError(
                f"checkpoint {version}: session {key[0]}/{key[1]} differs when it is computed again: the checkpoint is discarded"
            )
    return len(sample)


def _fold_plainly(log: Log, plan: Plan, home: int, sample: list[Key], states: dict[Key, SessionState]) -> None:
    names = tuple(f"{tenant_id}/{client_id}".encode() for tenant_id, client_id in sample)
    for stretch in plan.wanted.stretches(1) if names else []:
        if stretch.partition != home:
            continue
        for page in log.read(stretch, plan.wanted.topic, names):
            for offset, name, value in page:
                try:
                    event = read_event(value, name, home, len(plan.wanted.upto))
                except CorruptRecordError:
                    continue  # the fold has counted it
                key = event.tenant_id, event.client_id
                state = fold(states.get(key), event, offset)
                states |= {} if state is None else {key: state}
