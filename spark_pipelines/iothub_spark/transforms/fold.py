"""Session states from stored events: per key, in the order of the log, by the very `fold` that the brokers use.

Knows frames of stored events and of states; knows no log and no store.

Theory: both frames become one, spread by key and sorted by key and offset, a key's state first. One pass over a partition then holds one state
at a time, however many events its key has. What is sorted is bytes, so equal input gives
equal output, whatever the number of tasks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from operator import itemgetter

import pyarrow as pa
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 - as everywhere
from pyspark.sql.pandas.types import to_arrow_schema

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import decode_event, partition_of
from iothub.records.left_out import at_place
from iothub.records.state import SessionState, decode_state, encode_state, fold_all
from iothub_spark.schemas.states import FOLDED
from iothub_spark.transforms.glance import Glance, Session
from iothub_spark.transforms.needed import needed

_OUT = to_arrow_schema(FOLDED)
_ROWS = 5_000  # per batch of the result
_IN_MEMORY = 50_000  # events of one key that are looked at together

_STATE, _EVENT, _ASTRAY = range(
    3
)  # kinds of rows; astray and above: an event in partition 0, 1, ..., where its key does not belong

Row = tuple[bytes, int, int, bytes]  # key, kind, offset, record or value
Folded = tuple[int | None, str | None, int, bytes | None, str | None]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Where the log begins: a session that ended before it is forgotten, for no event can contradict it any more.

    `are_states_live`: they are not of a checkpoint that was compared with its pointer, so each is looked at.
    `left_out`: places of events of a newer program that are as damaged ones.
    """

    begin: tuple[int, ...]
    are_states_live: bool = False
    left_out: tuple[str, ...] = ()

    def is_forgotten(self, key: bytes, offset: int) -> bool:
        return offset < self.begin[partition_of(key.decode(), len(self.begin))]

    def judged(self, error: FutureRecordError, key: bytes, kind: int, offset: int) -> CorruptRecordError:
        """Return what an event of a newer program is at its place."""
        home = zlib.crc32(key) % len(self.begin)  # as `iothub.records.events.partition_of`, of whatever bytes
        return at_place(error, home if kind == _EVENT else kind - _ASTRAY, offset, self.left_out)


def fold_events(states: DataFrame | None, stored: DataFrame, bounds: Bounds, partitions: int) -> DataFrame:
    """Return the states after all events: columns `FOLDED`, in no order between partitions, by key inside of them.

    states: rows `STATES`; stored: rows `STORED_EVENTS`; events that a state includes already change nothing.
    """
    is_home = F.crc32("key") % F.lit(len(bounds.begin)) == F.col("partition")  # as `iothub.records.events.partition_of`
    kind = F.when(is_home, F.lit(_EVENT)).otherwise(F.lit(_ASTRAY) + F.col("partition"))
    events = stored.select("key", kind.alias("kind"), "offset", "value")
    if states is not None:
        events = events.unionByName(
            states.select(_key(), F.lit(_STATE).alias("kind"), "offset", F.col("record").alias("value"))
        )
    by_key = events.repartition(partitions, "key").sortWithinPartitions("key", "kind", "offset")
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
    """Fold rows that are sorted by key, kind and offset; yields a row for each state, and one for each event or live state that is damaged."""
    for key, group in groupby(rows, key=itemgetter(0)):
        yield from _fold_key(key, group, bounds)


def _fold_key(key: bytes, rows: Iterator[Row], bounds: Bounds) -> Iterator[Folded]:
    record: bytes | None = None
    state: SessionState | None = None
    session, glances = Session(key), list[Glance]()
    offset = 0
    for row in rows:
        _, kind, place, value = row
        if kind == _STATE:
            damage = _damage(key, value) if bounds.are_states_live else None
            if damage is None:
                record, offset = value, place
            else:
                yield None, None, place, None, damage
            continue
        if record is not None and state is None:
            state = decode_state(record)
        try:
            glances.append(_glanced(session, row, bounds))
        except FutureRecordError as error:
            raise FutureRecordError(f"{_shown(key)}, offset {place}: {error}") from error
        except CorruptRecordError as error:
            yield None, None, place, None, f"{_shown(key)}, offset {place}: {error}"
        if len(glances) >= _IN_MEMORY:
            state, glances = _folded(state, glances), []
    state = _folded(state, glances)
    if state is not None:
        record, offset = encode_state(state), state.offset
    if record is not None and not _is_over(key, record, offset, bounds):
        tenant_id, _, client_id = key.decode().partition("/")
        yield int(tenant_id), client_id, offset, record, None


def _glanced(session: Session, row: Row, bounds: Bounds) -> Glance:
    """Look at an event. Raises as `Session.glance`, and CorruptRecordError for one that the hubs fold nowhere, either.

    One of a newer program is refused wherever it stands, but for a place that is left out: no hub goes past it (!).
    """
    key, kind, offset, value = row
    try:
        glance = session.glance(offset, value)
    except FutureRecordError as error:
        raise bounds.judged(error, key, kind, offset) from error
    if kind >= _ASTRAY:
        raise CorruptRecordError("event in the wrong partition, where its key does not belong")
    return glance


def _damage(key: bytes, record: bytes) -> str | None:
    """Return what is wrong with a state: in a checkpoint, one that nobody can read would spoil all others."""
    try:
        decode_state(record)
    except FutureRecordError as error:
        raise FutureRecordError(f"session state of {_named(key)}: {error}") from error
    except CorruptRecordError as error:
        return f"session state of {_named(key)}: {error}"
    return None


def _folded(state: SessionState | None, glances: list[Glance]) -> SessionState | None:
    if not glances:
        return state
    return fold_all(state, ((glance.offset, decode_event(glance.value)) for glance in needed(state, glances)))


def _is_over(key: bytes, record: bytes, offset: int, bounds: Bounds) -> bool:
    """Say whether a record is a tombstone that nobody needs."""
    return b'"is_ended":true' in record and bounds.is_forgotten(key, offset) and decode_state(record).is_ended


def _shown(key: bytes) -> str:
    return f"event of {_named(key)}"


def _named(key: bytes) -> str:
    return key.decode(errors="replace")[:200] or "nobody"
