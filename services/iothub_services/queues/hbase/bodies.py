"""Bodies in HBase that many records refer to, or that are too large to lie in one: for both queue drivers.

Knows table `bodies` and its keys; knows no queue.

Theory: a body is durable before any reference to it is. It has an id of its own, made here and never used twice, so that no other body can
ever take its row; a repeated put has the same bytes. It has no TTL and no count of references: those that nothing refers to are found by
mark and sweep (`body_sweep`), which spares what is young, because its references may be on their way.

Row: `iothub.records.keys.body_key`; cells `b:0`, `b:1` ...: version 1 | a piece of the body, `PIECE_BYTES` each but the last.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from iothub.base.clock import Clock
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call, Mutation
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase.index import all_of

FEW = 4  # up to this many queues get copies: a reference costs a second read
SMALL_BYTES = 256  # a copy is hardly more than a reference
LARGE_BYTES = 64 << 10  # apart in any case: a page of a queue should hold many records
PIECE_BYTES = 4 << 20  # of one cell, and about what one call reads or writes
CACHE_BYTES = 16 << 20

FIRST_PIECE = b"b:0"  # every body has it

_VERSION = b"\1"
_MICROSECONDS = 1_000_000


class Wanted(NamedTuple):
    """A body to be read."""

    tenant_id: int
    id: bytes
    size: int


class Bodies:
    """Puts and fetches bodies.

    Invariants: ids rise, and no other hub makes the same (`writer` is unique to it). The cache holds at most `cache_bytes` and belongs to
    whoever has the lock.
    """

    def __init__(self, caller: Caller, table: bytes, writer: int, clock: Clock, cache_bytes: int = CACHE_BYTES) -> None:
        self._caller = caller
        self._table = table
        self._writer = writer.to_bytes(8, "big")
        self._clock = clock
        self._last_us = 0
        self._cache_bytes = cache_bytes
        self._cached: OrderedDict[bytes, bytes] = OrderedDict()
        self._cached_bytes = 0
        self._lock = threading.Lock()

    def new_id(self) -> bytes:
        """Return an id that none had before: 64-bit clock in microseconds, writer. In the writing thread."""
        self._last_us = max(int(self._clock.wall() * _MICROSECONDS), self._last_us + 1)
        return self._last_us.to_bytes(8, "big") + self._writer

    def put(self, bodies: Sequence[tuple[int, bytes, bytes]]) -> None:
        """Make bodies, (tenant id, id, octets), durable. Raises BackendError; a repeat with the same ids changes nothing."""
        waiting: list[Mutation] = []
        waiting_bytes = 0
        parts: list[Call[None]] = []
        for tenant_id, body_id, octets in bodies:
            row = keys.body_key(body_id, tenant_id)
            for number, at in enumerate(range(0, max(len(octets), 1), PIECE_BYTES)):
                piece = octets[at : at + PIECE_BYTES]
                if waiting and waiting_bytes + len(piece) > PIECE_BYTES:
                    parts.append(calls.mutate_rows(self._table, waiting))
                    waiting, waiting_bytes = [], 0
                waiting.append(Mutation(row, {_column(number): _VERSION + piece}))
                waiting_bytes += len(piece)
        if waiting:
            parts.append(calls.mutate_rows(self._table, waiting))
        all_of(self._caller.call_many(parts))

    def fetch(self, wanted: Sequence[Wanted]) -> dict[bytes, bytes]:
        """Return bodies by id; those that are not there, or not whole, are left out. Raises BackendError."""
        found: dict[bytes, bytes] = {}
        missing: dict[bytes, Wanted] = {}
        with self._lock:
            for each in wanted:
                octets = self._cached.get(each.id)
                if octets is None:
                    missing[each.id] = each
                else:
                    self._cached.move_to_end(each.id)
                    found[each.id] = octets
        if missing:
            read = self._read(list(missing.values()))
            with self._lock:
                for body_id, octets in read.items():
                    self._keep(body_id, octets)
            found |= read
        return found

    def _read(self, wanted: Sequence[Wanted]) -> dict[bytes, bytes]:
        small = [each for each in wanted if each.size <= PIECE_BYTES]
        rows = all_of(self._caller.call_many([self._get(part) for part in _parts(small)]))
        pieces = {row.key: _piece(row, 0) for part in rows for row in part}
        found = {each.id: pieces.get(keys.body_key(each.id, each.tenant_id)) for each in small}
        for each in wanted:
            if each.size > PIECE_BYTES:
                found[each.id] = self._read_large(each)
        sizes = {each.id: each.size for each in wanted}
        return {
            body_id: octets for body_id, octets in found.items() if octets is not None and len(octets) == sizes[body_id]
        }

    def _read_large(self, wanted: Wanted) -> bytes:
        row = keys.body_key(wanted.id, wanted.tenant_id)
        pieces = []
        for number in range(-(-wanted.size // PIECE_BYTES)):  # one after another: each is a frame of its own
            found = self._caller.call(calls.get_row(self._table, row, (_column(number),)))
            pieces.append(b"" if found is None else _piece(found, number) or b"")
        return b"".join(pieces)

    def _get(self, wanted: Sequence[Wanted]) -> Call[list[Row]]:
        rows = [keys.body_key(each.id, each.tenant_id) for each in wanted]
        return calls.get_rows(self._table, rows, (_column(0),))

    def _keep(self, body_id: bytes, octets: bytes) -> None:
        if len(octets) > self._cache_bytes // 4 or body_id in self._cached:
            return
        self._cached[body_id] = octets
        self._cached_bytes += len(octets)
        while self._cached_bytes > self._cache_bytes:
            self._cached_bytes -= len(self._cached.popitem(last=False)[1])


def is_apart(size: int, queues: int) -> bool:
    """Is a body of that size, for this number of queues, stored once, with references to it?"""
    return size > LARGE_BYTES or (queues > FEW and size > SMALL_BYTES)


def _column(number: int) -> bytes:
    return b"b:%d" % number


def _piece(row: Row, number: int) -> bytes | None:
    """Return a piece of a body; None: it is of another version, which nobody here can read."""
    value = row.cells[_column(number)].value
    return value[1:] if value[:1] == _VERSION else None


def _parts(wanted: Sequence[Wanted]) -> Iterator[list[Wanted]]:
    """Yield what one call reads."""
    part: list[Wanted] = []
    size_bytes = 0
    for each in wanted:
        if part and size_bytes + each.size > PIECE_BYTES:
            yield part
            part, size_bytes = [], 0
        part.append(each)
        size_bytes += each.size
    if part:
        yield part
