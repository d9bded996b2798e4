"""One queue of driver `hbase-plain` in memory: where it stands, and which rows are known.

Knows no connection. Theory: the log of a queue is a row of batches without gaps; where one ends the next begins, so the key of the next
row is always known. Of rows only sizes, QoS, deadlines and QoS 2 ids are kept, and not of all: `covered` says from where on.

      vacated          known or not              known: covered ... tail
    |-----------|[1st batch][...][...] ... [...][...][last batch]|  <- the next slot
    1        floor                        ^ head may be anywhere
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable, Iterator
from dataclasses import replace

from iothub.records.queue_batch import Batch, Known
from iothub_services.queues.hbase_plain.meta import Consumed, Meta, Run
from iothub_services.queues.port import QueueStats
from iothub_services.queues.remote.index import KnownQueue

_END = 1 << 64
_WRITER_FORGOTTEN_MS = 600_000  # a batch is repeated for seconds, never so long
_WRITERS_KEPT = 8


class LogQueue:
    """Fields as HBase had them when it was last asked, rows as they were seen.

    Invariants: `meta` is what `raw` says; `firsts` are the sorted keys of `batches`, and none is in `meta.vacated`; every position from
    `covered` to `tail` is in a known batch or vacated; `tail` never goes back while the queue is the same incarnation.
    `coming`: records of this hub on their way, counted already.
    """

    __slots__ = (
        "batches",
        "coming_bytes",
        "coming_messages",
        "coming_qos0",
        "covered",
        "firsts",
        "ids",
        "known",
        "meta",
        "raw",
        "soonest_ms",
        "tail",
        "tail_bytes",
        "tail_qos0",
    )

    def __init__(self, known: KnownQueue, meta: Meta, raw: bytes) -> None:
        self.known = known
        self.coming_messages = self.coming_bytes = self.coming_qos0 = 0
        self._start(meta, raw)

    def _start(self, meta: Meta, raw: bytes) -> None:
        self.meta = meta
        self.raw = raw
        self.firsts: list[int] = []
        self.batches: dict[int, Batch] = {}
        self.ids: dict[bytes, int] = {}  # QoS 2 message id -> position, of known rows
        self.tail = meta.top
        self.tail_bytes = meta.top_bytes
        self.tail_qos0 = meta.top_qos0
        self.covered = self.tail + 1
        self.soonest_ms = 0  # no known record is due before; 0: none is ever due

    @property
    def key(self) -> bytes:
        return self.known.key

    @property
    def messages(self) -> int:
        """Return how many are stored or on their way."""
        return self.tail - self.meta.gone_messages + self.coming_messages

    @property
    def size_bytes(self) -> int:
        return self.tail_bytes - self.meta.gone_bytes + self.coming_bytes

    @property
    def qos0(self) -> int:
        return self.tail_qos0 - self.meta.gone_qos0 + self.coming_qos0

    def stats(self) -> QueueStats:
        known, meta = self.known, self.meta
        ends = (meta.head, self.tail, meta.epoch)
        return QueueStats(known.queue_id, known.tenant_id, self.messages, self.size_bytes, *ends, meta.limits)

    # --- what was seen

    def adopt(self, meta: Meta, raw: bytes) -> list[int]:
        """Take a newer meta row; return the first positions of known rows that are gone by it."""
        if meta.born != self.meta.born:
            self._start(meta, raw)
            return []
        self.meta = meta
        self.raw = raw
        if meta.top > self.tail:
            self.tail, self.tail_bytes, self.tail_qos0 = meta.top, meta.top_bytes, meta.top_qos0
            self.covered = self.tail + 1
        gone: list[int] = []
        for first, last in meta.vacated:
            start, end = bisect_left(self.firsts, first), bisect_right(self.firsts, last)
            gone += self.firsts[start:end]
            del self.firsts[start:end]
        for first in gone:
            self._forget(self.batches.pop(first))
        self._cover()
        return gone

    def _forget(self, batch: Batch) -> None:
        for position, record in enumerate(batch.records, batch.first):
            if record.message_id and self.ids.get(record.message_id) == position:
                del self.ids[record.message_id]

    def learn(self, batch: Batch) -> bool:
        """Know a row; False: it belongs to no queue that there is (a late write of the past)."""
        first, last = batch.first, batch.last
        if batch.born != self.meta.born or holds(self.meta.vacated, first):
            return False
        if first in self.batches:
            return True
        insort(self.firsts, first)
        self.batches[first] = batch
        for position, record in enumerate(batch.records, first):
            if record.message_id:
                self.ids.setdefault(record.message_id, position)
            if record.expires_at_ms:
                self.soonest_ms = min(self.soonest_ms or record.expires_at_ms, record.expires_at_ms)
        if last > self.tail:
            if first != self.tail + 1:
                self.covered = first
            self.tail, self.tail_bytes, self.tail_qos0 = last, batch.bytes_upto, batch.qos0_upto
        self._cover()
        return True

    def _cover(self) -> None:
        while self.covered > 1:
            position = self.covered - 1
            batch = self.batch_at(position)
            run = None if batch is not None else run_of(self.meta.vacated, position)
            if batch is None and run is None:
                return
            self.covered = batch.first if batch is not None else (run or (1, 1))[0]

    def reach(self, meta: Meta) -> bool:
        """See by a meta row whether the tail is behind what was seen; the row itself is not taken."""
        if meta.born != self.meta.born or meta.top <= self.tail:
            return False
        self.tail, self.tail_bytes, self.tail_qos0 = meta.top, meta.top_bytes, meta.top_qos0
        self.covered = self.tail + 1
        return True

    def stretch(self, position: int) -> None:
        """Take a row's place for the tail though it cannot be read: sums are unknown, so nobody may append."""
        self.tail = position
        self.covered = position + 1

    def forget_rows(self) -> None:
        """Keep where it stands alone."""
        self.firsts, self.batches, self.ids = [], {}, {}
        self.covered = self.tail + 1

    # --- what is known

    def batch_at(self, position: int) -> Batch | None:
        """Return the known row that a position is in."""
        at = bisect_right(self.firsts, position) - 1
        if at < 0:
            return None
        batch = self.batches[self.firsts[at]]
        return batch if position <= batch.last else None

    def record_at(self, position: int) -> Known | None:
        """Return a record that is known and there."""
        batch = self.batch_at(position)
        return None if batch is None or self.is_gone(position) else batch.at(position)

    def boundary(self, position: int) -> int:
        """Return the nearest position, not behind this one, at which a row is known to begin; behind vacated rows."""
        run = run_of(self.meta.vacated, position)
        if run is not None:
            return run[1] + 1
        vacated_end = max((last for _, last in self.meta.vacated if last < position), default=0)
        at = bisect_right(self.firsts, position) - 1
        if at < 0:
            return vacated_end + 1
        batch = self.batches[self.firsts[at]]
        return max(vacated_end + 1, batch.first if position <= batch.last else batch.last + 1)

    def missing(self, upto: int) -> int | None:
        """Return the first position above the head and up to `upto` whose row is not known."""
        position = self.meta.head + 1
        while position <= upto and position < self.covered:
            run = run_of(self.meta.vacated, position)
            batch = None if run is not None else self.batch_at(position)
            if run is None and batch is None:
                return position
            position = 1 + (run[1] if run is not None else batch.last if batch is not None else position)
        return None

    def between(self, first: int, last: int) -> Iterator[Batch]:
        """Yield the known rows that hold something of this range, ascending."""
        at = max(bisect_right(self.firsts, first) - 1, 0)
        while at < len(self.firsts) and self.firsts[at] <= last:
            batch = self.batches[self.firsts[at]]
            if batch.last >= first:
                yield batch
            at += 1

    def stored(self, after: int) -> Iterator[tuple[int, Known]]:
        """Yield the known records that are there, behind a position."""
        for batch in self.between(after + 1, self.tail):
            for position, record in enumerate(batch.records, batch.first):
                if position > after and not self.is_gone(position):
                    yield position, record

    def due(self, now_ms: int) -> list[tuple[int, int]]:
        """Return (expires at, position) of the known records whose time has come."""
        if not 0 < self.soonest_ms <= now_ms:
            return []
        times = [(record.expires_at_ms, position) for position, record in self.stored(0) if record.expires_at_ms]
        self.soonest_ms = min(times)[0] if times else 0
        return [each for each in times if each[0] <= now_ms]

    def is_gone(self, position: int) -> bool:
        return is_gone(self.meta, position)

    def position_of(self, message_id: bytes) -> int | None:
        """Return where a QoS 2 message is that was not removed unseen."""
        position = self.ids.get(message_id)
        return None if position is None or holds(self.meta.holes, position) else position

    # --- changes of the meta row; every position that they name is known

    def acknowledged(self, meta: Meta, upto: int, now_ms: int) -> Meta:
        """Return the meta row with the head at `upto`, never back and never beyond the tail."""
        upto = min(upto, self.tail)
        if upto <= meta.head:
            return meta
        # "released" is forgotten only here, when the durable head has passed it, never at PUBCOMP
        released = tuple([position for position in meta.released if position > upto])
        gone = [
            position
            for batch in self.between(meta.head + 1, upto)
            for position in range(max(batch.first, meta.head + 1), min(batch.last, upto) + 1)
            if not is_gone(meta, position)
        ]
        return self._without(replace(meta, head=upto, released=released), gone, now_ms)

    def removed(self, meta: Meta, positions: Iterable[int], now_ms: int) -> Meta:
        """Return the meta row without these records; positions go on."""
        gone = [
            position for position in sorted(set(positions)) if position <= self.tail and not is_gone(meta, position)
        ]
        if not gone:
            return meta
        holes = joined((*meta.holes, *[(position, position) for position in gone]))
        return self._without(replace(meta, holes=holes), gone, now_ms)

    def emptied(self, meta: Meta) -> Meta:
        """Return the meta row without any record, also without those of rows that cannot be read."""
        return replace(
            meta,
            top=self.tail,
            top_bytes=self.tail_bytes,
            top_qos0=self.tail_qos0,
            gone_messages=self.tail,
            gone_bytes=self.tail_bytes,
            gone_qos0=self.tail_qos0,
            holes=(),
            vacated=((1, self.tail),),
        )

    def _without(self, meta: Meta, gone: list[int], now_ms: int) -> Meta:
        """Take what has gone out of the sums; rows of which nothing is left are vacated."""
        touched = {batch.first: batch for position in gone if (batch := self.batch_at(position)) is not None}
        records = [batch.at(position) for position in gone if (batch := self.batch_at(position)) is not None]
        empty = [batch for batch in touched.values() if _is_empty(meta, batch)]
        vacated = joined((*meta.vacated, *[(batch.first, batch.last) for batch in empty]))
        highest = max(empty, key=lambda batch: batch.last, default=None)
        if highest is not None and highest.last > meta.top:
            meta = replace(meta, top=highest.last, top_bytes=highest.bytes_upto, top_qos0=highest.qos0_upto)
        return replace(
            meta,
            gone_messages=meta.gone_messages + len(records),
            gone_bytes=meta.gone_bytes + sum([record.size for record in records]),
            gone_qos0=meta.gone_qos0 + sum([not record.qos for record in records]),
            holes=cut(meta.holes, (*vacated, (0, meta.head))),
            vacated=vacated,
            consumed=_consumed(meta, empty, now_ms),
        )


def _is_empty(meta: Meta, batch: Batch) -> bool:
    return all(is_gone(meta, position) for position in range(batch.last, batch.first - 1, -1))


def _consumed(meta: Meta, batches: Iterable[Batch], now_ms: int) -> dict[int, Consumed]:
    """Note the newest sequence of each writer; writers that have long been silent are forgotten."""
    found = dict(meta.consumed)
    for batch in batches:
        before = found.get(batch.writer)
        newest = max(batch.sequence, 0 if before is None else before.sequence)
        found[batch.writer] = Consumed(newest, now_ms)
    if len(found) <= _WRITERS_KEPT:
        return found
    by_age = sorted(found.items(), key=lambda item: item[1].at_ms, reverse=True)
    kept = by_age[:_WRITERS_KEPT]
    kept += [item for item in by_age[_WRITERS_KEPT:] if item[1].at_ms > now_ms - _WRITER_FORGOTTEN_MS]
    return dict(kept)


def is_gone(meta: Meta, position: int) -> bool:
    """Is nothing to be read at a position, acknowledged or removed?"""
    return position <= meta.head or holds(meta.vacated, position) or holds(meta.holes, position)


# --- runs: (first, last), sorted, apart from each other


def run_of(runs: tuple[Run, ...], position: int) -> Run | None:
    at = bisect_right(runs, (position, _END)) - 1
    return runs[at] if at >= 0 and position <= runs[at][1] else None


def holds(runs: tuple[Run, ...], position: int) -> bool:
    return run_of(runs, position) is not None


def joined(runs: Iterable[Run]) -> tuple[Run, ...]:
    """Return the same positions in as few runs as possible."""
    found: list[Run] = []
    for first, last in sorted(runs):
        if found and first <= found[-1][1] + 1:
            found[-1] = (found[-1][0], max(found[-1][1], last))
        else:
            found.append((first, last))
    return tuple(found)


def cut(runs: Iterable[Run], taken: Iterable[Run]) -> tuple[Run, ...]:
    """Return the runs without those that lie within one of the others, and what sticks out of it."""
    rest = list(runs)
    for start, end in taken:
        rest = [
            part
            for first, last in rest
            for part in ((first, min(last, start - 1)), (max(first, end + 1), last))
            if part[0] <= part[1]
        ]
    return tuple(rest)
