"""Session states from stored events: per key, in the order of the log, by the very `fold` that the brokers use.

Knows frames of stored events and of states; knows no log and no store.

Theory: both frames become one, spread by key and sorted by key and offset, a key's state first. One pass over a partition then holds one state
at a time, however many events its key has. What is sorted is bytes, so equal input gives
equal output, whatever the number of tasks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql.pandas.types import to_arrow_schema

from iothub.base.errors import CorruptRecordError
from iothub.records.events import decode_event, partition_of
from iothub.records.state import SessionState, decode_state, encode_state, fold_all
from iothub_spark.schemas.states import FOLDED
from iothub_spark.transforms.event_summary import EventSummary, Session
from iothub_spark.transforms.needed import needed

_OUT = to_arrow_schema(FOLDED)
_ROWS = 5_000  # per batch of the result
_IN_MEMORY = 50_000  # events of one key that are looked at together

_STATE = -1  # in the place of a partition: the row is a session's state, which comes before its events

Row = tuple[bytes, int, int, bytes]  # key, partition, offset, record or value
Folded = tuple[int | None, str | None, int, bytes | None, str | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the log begins: a session that ended before it is forgotten, for no event can contradict it any more.

    `are_states_live`: they are not of a checkpoint that was compared with its pointer, so each is looked at.
    """

    begin: tuple[int, ...]
    are_states_live: bool = False

    def is_forgotten(self, key: bytes, offset: int) -> bool:
        return offset < self.begin[partition_of(key.decode(), len(self.begin))]


def fold_events(states: DataFrame | None, stored: DataFrame, bounds: Bounds, partitions: int) -> DataFrame:
    """Return the states after all events: columns `FOLDED`, in no order between partitions, by key inside of them.

    states: rows `STATES`; stored: rows `STORED_EVENTS`; events that a state includes already change nothing.
    """
    events = stored.select("key", "partition", "offset", "value")
    if states is not None:
        events = events.unionByName(
            states.select(_key(), F.lit(_STATE).alias("partition"), "offset", F.col("record").alias("value"))
        )
    by_key = events.repartition(partitions, "key").sortWithinPartitions("key", "partition", "offset")
    return by_key.mapInArrow(partial(_fold_batches, bounds=bounds), FOLDED)


def _key() -> Column:
    return F.concat_ws("/", F.col("tenant_id").cast("string"), "client_id").cast("binary").alias("key")


def _fold_batches(batches: Iterable[pa.RecordBatch], bounds: Bounds) -> Iterator[pa.RecordBatch]:
    """Fold one partition."""
    found: list[Folded] = []
    for folded in fold_rows(_rows(batches), bounds):
        found.append(folded)
        if len(found) >= _ROWS:
            yield _batch(found)
            found = []
    if found:
        yield _batch(found)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[Row]:
    for batch in batches:
        yield from zip(*(column.to_pylist() for column in batch.columns), strict=True)


def _batch(found: list[Folded]) -> pa.RecordBatch:
    columns = zip(*found, strict=True)
    arrays = [pa.array(column, field.type) for column, field in zip(columns, _OUT, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_OUT)


def fold_rows(rows: Iterable[Row], bounds: Bounds) -> Iterator[Folded]:
    """Fold rows that are sorted by key, partition and offset; yields a row for each state, and one for each event or live state that is damaged."""
    for key, group in groupby(rows, key=itemgetter(0)):
        yield from _fold_key(key, group, bounds)


def _fold_key(key: bytes, rows: Iterator[Row], bounds: Bounds) -> Iterator[Folded]:
    record: bytes | None = None
    state: SessionState | None = None
    session, summaries = Session(key, len(bounds.begin)), list[EventSummary]()
    offset = 0
    for _, partition, place, value in rows:
        if partition == _STATE:
            damage = _damage(key, value) if bounds.are_states_live else None
            if damage is None:
                record, offset = value, place
            else:
                yield None, None, place, None, damage
            continue
        if record is not None and state is None:
            state = decode_state(record)
        try:
            summaries.append(session.summarise(partition, place, value))
        except CorruptRecordError as error:
            yield None, None, place, None, f"event of {_named(key)}, partition {partition}, offset {place}: {error}"
        if len(summaries) >= _IN_MEMORY:
            state, summaries = _folded(state, summaries), []
    state = _folded(state, summaries)
    if state is not None:
        record, offset = encode_state(state), state.offset
    if record is not None and not _is_over(key, record, offset, bounds):
        tenant_id, _, client_id = key.decode().partition("/")
        yield int(tenant_id), client_id, offset, record, None


def _damage(key: bytes, record: bytes) -> str | None:
    """Return what is wrong with a state: in a checkpoint, a damaged one would spoil all others."""
    try:
        decode_state(record)
    except CorruptRecordError as error:
        return f"session state of {_named(key)}: {error}"
    return None


def _folded(state: SessionState | None, summaries: list[EventSummary]) -> SessionState | None:
    if not summaries:
        return state
    return fold_all(state, ((summary.offset, decode_event(summary.value)) for summary in needed(state, summaries)))


def _is_over(key: bytes, record: bytes, offset: int, bounds: Bounds) -> bool:
    """Say whether a record is a tombstone that nobody needs."""
    return b'"is_ended":true' in record and bounds.is_forgotten(key, offset) and decode_state(record).is_ended


def _named(key: bytes) -> str:
    return key.decode(errors="replace")[:200] or "nobody"
