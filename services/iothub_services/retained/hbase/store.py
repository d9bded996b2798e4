"""The retained port on HBase: a row per Topic Name, whose cells' timestamp is the last version of the batch that wrote it.

Knows no wildcard. Any thread may use it, and several hubs may share the table.

Theory: the bare tenant's row is its counter of versions, moved by atomic increment: no two hubs get the same version, and a crash leaves a
hole. A batch takes its versions at once, and the last of them is the timestamp of all its rows, so that one call writes many: batches
of a tenant do not overlap. HBase shows the cells with the highest timestamp, and a delete hides what is not above it; so of two hubs that
write a topic at once the higher version stays, whichever comes late. Who retries takes new versions.
What expires also has an entry in an index over all tenants, in the order of time, written before the message. An entry only says where to look: it is
compared with the message, and removed when the message has another time, but not before every write that began at its time is over.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Mutation, Scan
from iothub_services.hbase.pages import change_rows, chunks, pages
from iothub_services.hbase.replies import Row
from iothub_services.hbase.tables import Tables
from iothub_services.retained.port import RetainedBody, RetainedTopic, RetainedUsage, RetainedWrite

FAMILY = b"r"
COUNTER_COLUMN = b"r:v"
META_COLUMN = b"r:m"
BODY_COLUMN = b"r:b"
EXPIRY_COLUMN = b"r:e"
VERSION = 1

_META = struct.Struct(">BqqI")  # version of the format, version, expires at, bytes of the body; nothing is below 0
_MARK = bytes((VERSION,))
_BATCH_BYTES = 4 << 20  # of bodies on their way, in either direction
_LATE_MS = 60_000  # no write that was begun before takes as long


class _Meta(NamedTuple):
    """What is known of a message without its body; of a damaged one only its timestamp."""

    version: int
    expires_at_ms: int
    size: int
    timestamp: int


class _Expiry(NamedTuple):
    """An entry of the index, with its row and timestamp."""

    at_ms: int
    tenant_id: int
    topic: bytes
    row: bytes
    timestamp: int


class HBaseRetained:
    """Fulfils `RetainedStore`. The caller stays its owner's."""

    def __init__(self, caller: Caller, tables: Tables) -> None:
        self._caller = caller
        self._table = tables.retained

    def close(self) -> None:
        """Nothing is open: the connections are the caller's."""

    @contextmanager
    def group(self) -> Iterator[None]:
        """Every `put` is durable by itself here."""
        yield

    def probe(self) -> None:
        """Write a small cell that is never read. Raises BackendError."""
        self._caller.call(calls.mutate_row(self._table, keys.META, {EXPIRY_COLUMN: _MARK}))

    def put(self, writes: list[RetainedWrite]) -> list[int]:
        if not writes:
            return []
        last = self._last_versions(Counter(write.tenant_id for write in writes))
        versions = _numbered(writes, last)
        newest = {(write.tenant_id, write.topic): at for at, write in enumerate(writes)}  # a row is written once
        expiring = [
            _noted(writes[at]) for at in newest.values() if writes[at].expires_at_ms and writes[at].body is not None
        ]
        places: dict[int, dict[int | None, list[Mutation]]] = {}
        for at in newest.values():
            tenant_id = writes[at].tenant_id
            rows = places.setdefault(tenant_id, {last[tenant_id]: []})
            rows[last[tenant_id]].append(_changed(writes[at], versions[at]))
        change_rows(self._caller, self._table, {None: expiring})
        for rows in places.values():
            change_rows(self._caller, self._table, rows)
        return versions

    def load(self, tenant_id: int, after: bytes = b"") -> Iterator[RetainedTopic]:
        start, stop = keys.retained_key(tenant_id, after) + b"\0", keys.prefix_end(keys.tenant_key(tenant_id))
        for rows in pages(self._caller, Scan(self._table, start, stop, (META_COLUMN,))):
            for key, meta in self._read_metas(rows).items():
                topic = keys.after_tenant(key)[1]
                yield RetainedTopic(topic, meta.version, meta.expires_at_ms, meta.size)

    def fetch(self, tenant_id: int, topics: Iterable[bytes]) -> list[RetainedBody]:
        wanted = [keys.retained_key(tenant_id, topic) for topic in topics]
        metas = self._metas(wanted) if len(wanted) > 1 else {}
        there = [key for key in wanted if key in metas or len(wanted) == 1]
        sizes = [metas[key].size if key in metas else 0 for key in there]
        asked = [
            calls.get_rows(self._table, there[chunk], (META_COLUMN, BODY_COLUMN))
            for chunk in chunks(sizes, _BATCH_BYTES)
        ]
        answers = self._caller.call_all(asked)
        bodies = {row.key: body for rows in answers for row in rows if (body := self._body(row)) is not None}
        return [bodies[key] for key in wanted if key in bodies]

    def delete(self, tenant_id: int, topics: Iterable[bytes]) -> int:
        wanted = [keys.retained_key(tenant_id, topic) for topic in topics]
        there = list(self._metas(wanted))
        if there:
            last = self._last_versions(Counter({tenant_id: len(there)}))[tenant_id]
            change_rows(self._caller, self._table, {last: [_deleted(key) for key in there]})
        return len(there)

    def expire(self, now_ms: int, count: int) -> list[tuple[int, bytes]]:
        gone: list[tuple[int, bytes]] = []
        start, stop = keys.tenant_key(keys.NO_TENANT), keys.expiry_key(now_ms + 1, 0, b"")
        for rows in pages(self._caller, Scan(self._table, start, stop, (EXPIRY_COLUMN,))):
            entries = [
                _Expiry(*keys.expiry_of(row.key), row.key, row.cells[EXPIRY_COLUMN].timestamp)
                for row in rows
                if EXPIRY_COLUMN in row.cells
            ]
            gone += self._expire(entries, now_ms, count - len(gone))
            if len(gone) >= count:
                break
        return gone

    def usage(self, tenant_id: int) -> RetainedUsage:
        sizes = [topic.size for topic in self.load(tenant_id)]
        return RetainedUsage(len(sizes), sum(sizes))

    def drop_tenant(self, tenant_id: int) -> int:
        """Remove its rows at the time of now, far above every version: what comes late stays hidden. Ids are never used again."""
        count = 0
        start = keys.tenant_key(tenant_id)
        for rows in pages(
            self._caller, Scan(self._table, start, keys.prefix_end(start), (META_COLUMN, COUNTER_COLUMN))
        ):
            self._caller.call(calls.mutate_rows(self._table, [Mutation(row.key, {}, (FAMILY,)) for row in rows]))
            count += sum(META_COLUMN in row.cells for row in rows)
        return count

    # --- versions and changes

    def _last_versions(self, counts: Counter[int]) -> dict[int, int]:
        """Reserve a number of versions for each tenant; return the last of them."""
        asked = [calls.increment(self._table, keys.tenant_key(each), COUNTER_COLUMN, counts[each]) for each in counts]
        return dict(zip(counts, self._caller.call_all(asked), strict=True))

    def _expire(self, entries: Sequence[_Expiry], now_ms: int, count: int) -> list[tuple[int, bytes]]:
        """Delete at most `count` of the messages of these entries, and the entries that are not needed any more."""
        metas = self._metas([keys.retained_key(entry.tenant_id, entry.topic) for entry in entries])
        gone: list[tuple[int, bytes]] = []
        due: dict[int | None, list[Mutation]] = {}
        done: dict[int | None, list[Mutation]] = {}
        for entry in entries:
            key = keys.retained_key(entry.tenant_id, entry.topic)
            meta = metas.get(key)
            is_due = meta is not None and meta.expires_at_ms == entry.at_ms
            if is_due and len(gone) == count:
                continue
            if meta is not None and is_due:
                due.setdefault(meta.timestamp, []).append(_deleted(key))
                gone.append((entry.tenant_id, entry.topic))
            elif entry.at_ms > now_ms - _LATE_MS:
                continue  # it may be of a write that is not over
            done.setdefault(entry.timestamp, []).append(Mutation(entry.row, {}, (EXPIRY_COLUMN,)))
        change_rows(self._caller, self._table, due)  # first: a crash leaves entries without a message
        change_rows(self._caller, self._table, done)
        return gone

    # --- reading

    def _rows(self, wanted: Sequence[bytes], columns: tuple[bytes, ...]) -> Iterator[Row]:
        asked = [calls.get_rows(self._table, wanted[chunk], columns) for chunk in chunks([len(key) for key in wanted])]
        return (row for rows in self._caller.call_all(asked) for row in rows)

    def _metas(self, wanted: Sequence[bytes]) -> dict[bytes, _Meta]:
        """Return what is known of those that are there."""
        return self._read_metas(self._rows(wanted, (META_COLUMN,)))

    def _read_metas(self, rows: Iterable[Row]) -> dict[bytes, _Meta]:
        return {row.key: meta for row in rows if (meta := self._meta(row)) is not None}

    def _meta(self, row: Row) -> _Meta | None:
        """Return what a row says; None: it is no message."""
        cell = row.cells.get(META_COLUMN)
        if cell is None:
            return None
        is_whole = len(cell.value) == _META.size and cell.value[0] == VERSION
        _, version, expires_at_ms, size = _META.unpack(cell.value) if is_whole else (VERSION, -1, -1, 0)
        if version < 0 or expires_at_ms < 0:  # damaged
            return _Meta(0, 0, 0, cell.timestamp)
        return _Meta(version, expires_at_ms, size, cell.timestamp)

    def _body(self, row: Row) -> RetainedBody | None:
        meta, body = self._meta(row), row.cells.get(BODY_COLUMN)
        if meta is None:
            return None
        topic, octets = keys.after_tenant(row.key)[1], b"" if body is None else body.value
        return RetainedBody(topic, meta.version, meta.expires_at_ms, octets)


def _numbered(writes: Sequence[RetainedWrite], last: Mapping[int, int]) -> list[int]:
    """Give each write its version: those of a tenant end with the last one."""
    left = Counter(write.tenant_id for write in writes)
    versions = []
    for write in writes:
        left[write.tenant_id] -= 1
        versions.append(last[write.tenant_id] - left[write.tenant_id])
    return versions


def _noted(write: RetainedWrite) -> Mutation:
    """Put an entry into the index of what expires."""
    return Mutation(keys.expiry_key(write.expires_at_ms, write.tenant_id, write.topic), {EXPIRY_COLUMN: _MARK})


def _changed(write: RetainedWrite, version: int) -> Mutation:
    key = keys.retained_key(write.tenant_id, write.topic)
    if write.body is None:
        return _deleted(key)
    meta = _META.pack(VERSION, version, write.expires_at_ms, len(write.body))
    return Mutation(key, {META_COLUMN: meta, BODY_COLUMN: write.body})


def _deleted(key: bytes) -> Mutation:
    """Hide what has the timestamp of this change, or an older one."""
    return Mutation(key, {}, (FAMILY,))
