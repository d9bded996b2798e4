"""The queue driver `hbase-plain`: virtual queues in an HBase where our coprocessor may not be loaded (storage page, section 4).

Knows no MQTT packet and no session; encoded messages are bytes to it. Writing verbs belong to one thread, `read`, `tails`, `stats` and
`list_queues` to another one (or the same), if the caller is one for many threads.

Theory: a queue is a log of batches, one row each, that writers put into the next free slot (`slots`), and a meta row that
its reader swaps (`log`). Any hub may append at any time, and nothing is lost, doubled or out of order; but k writers at one queue
cost k - 1 repeats of each append, so every append should go through the hub that owns the session. Limits are those that this hub knows
of: exact while it alone writes (`exact_limits`).
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace

from iothub.base.clock import Clock, SystemClock
from iothub.base.errors import BackendError, ConflictError
from iothub.records import keys
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Call, Mutation, Scan
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase.bodies import Bodies
from iothub_services.queues.hbase_plain.appending import Appending
from iothub_services.queues.hbase_plain.doomed import parts
from iothub_services.queues.hbase_plain.expiry import Removing
from iothub_services.queues.hbase_plain.log import QueueLog
from iothub_services.queues.hbase_plain.meta import STATE, Meta, decode_meta, encode_meta
from iothub_services.queues.hbase_plain.moves import Moves
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.hbase_plain.reading import Reading
from iothub_services.queues.port import (
    EARLIEST,
    Append,
    Appended,
    Claim,
    DueRecord,
    Expired,
    ExpiryMark,
    Move,
    Page,
    QueueLimits,
    QueueStats,
    TenantUsage,
    UnreadableQueueError,
)
from iothub_services.queues.remote.index import Driver, KnownQueue, QueueIndex, all_of

_COUNTED_AT_ONCE = 64  # queues whose sums are read in one slice of idle time
_ROWS_AT_ONCE = 500
_HIDDEN = 50  # attempts to make a queue anew in the millisecond in which its predecessor was deleted
_PROBE_ROW = b"probe"  # no queue's: those have 13 bytes at least


class PlainHBaseQueues:
    """Fulfils `QueueStore`.

    Args:
        incarnation: A number of this process's life that no other process ever uses; None: a random one.
    """

    exact_limits = False

    def __init__(
        self, caller: Caller, tables: Tables, incarnation: int | None = None, clock: Clock | None = None
    ) -> None:
        writer = secrets.randbits(63) if incarnation is None else incarnation
        clock = clock or SystemClock()
        self._caller = caller
        self._table = tables.queues_plain
        self._index = QueueIndex(caller, tables.queue_index, tables.queues_plain, Driver.PLAIN)
        bodies = Bodies(caller, tables.bodies, writer, clock)
        self._log = QueueLog(caller, self._table, self._index, clock)
        self._appending = Appending(self._log, bodies, writer)
        self._moves = Moves(self._log, self._appending)
        self._removing = Removing(self._log)
        self._reading = Reading(self._log, bodies)
        self._making: dict[int, int] = {}  # queue id -> the incarnation that may have been made
        self._made: set[int] = set()  # by the group that runs
        self._made_before: set[int] = set()  # by one that failed, and comes again
        self._uncounted: deque[int] | None = None  # queues whose sums nobody has read yet; None: list them

    def close(self) -> None:
        """Nothing is open: the caller belongs to whoever made it."""

    @contextmanager
    def group(self) -> Iterator[None]:
        """Let a failure inside be repeated by doing everything again, with the same objects: what was done is not done twice.

        HBase has no commit around several calls: each verb is durable when it returns.
        """
        self._made.clear()
        with self._appending.repeats.group(), self._moves.repeats.group():
            try:
                yield
            except BaseException:
                self._made_before |= self._made
                raise
            self._made_before.clear()
        self._log.trim()

    def probe(self) -> None:
        """Write something small. Raises BackendError: the table takes no writes now."""
        self._caller.call(calls.mutate_row(self._table, _PROBE_ROW, {b"m:probe": b"\1"}))

    def idle(self) -> bool:
        """Forget what was given up, and read the sums of some queues that nobody has asked for yet; True if there is more to do.

        Who repeats a batch does nothing else before it is over, and is idle now.
        """
        self._moves.repeats.clear()
        self._made_before.clear()
        if self._appending.forget():
            return True
        if self._uncounted is None:
            self._uncounted = deque(queue_id for _, queue_id in self._index.listed())
        part = [self._uncounted.popleft() for _ in range(min(_COUNTED_AT_ONCE, len(self._uncounted)))]
        part = [queue_id for queue_id in part if self._log.get(queue_id) is None]
        self._log.load_readable(part)  # those that cannot be read are counted in no sum
        self._log.count([queue for queue_id in part if (queue := self._log.get(queue_id)) is not None])
        self._log.release(part)
        self._log.doomed.delete()
        return bool(self._uncounted)

    # --- writers and the reader

    def append(self, batch: list[Append]) -> list[Appended]:
        return self._appending.do(batch)

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        return self._moves.claim(queue_id, owner)

    def apply(self, moves: list[Move]) -> list[bool]:
        return self._moves.apply(moves)

    def read(self, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        return self._reading.read(queue_id, epoch, after, count, size_bytes)

    def tails(self, queue_ids: list[int]) -> dict[int, int]:
        return self._reading.tails(queue_ids)

    def stats(self, queue_id: int) -> QueueStats:
        return self._reading.stats(queue_id)

    def list_queues(self, tenant_id: int) -> list[QueueStats]:
        return self._reading.list_queues(tenant_id)

    # --- owners and operators

    def create(self, tenant_id: int, queue_id: int, limits: QueueLimits, first_epoch: int = 1) -> None:
        if queue_id in self._made_before:
            self._made_before.discard(queue_id)
            return
        other = self._index.get(queue_id)
        if other is not None and self._log.metas((other.key,)) and queue_id not in self._making:
            raise ConflictError(f"queue {queue_id} exists already")
        known = KnownQueue(queue_id, tenant_id, self._index.tenant(tenant_id))
        born = self._making.setdefault(queue_id, secrets.randbits(63))
        meta = Meta(born, first_epoch - 1, limits)
        self._index.enter(tenant_id, queue_id)
        if not self._put_first(known, encode_meta(meta)):
            raise ConflictError(f"queue {queue_id} exists already")
        self._index.forget(queue_id)
        self._log.keep(LogQueue(self._index.add(tenant_id, queue_id), meta, encode_meta(meta)))
        del self._making[queue_id]
        self._made.add(queue_id)

    def _put_first(self, known: KnownQueue, raw: bytes) -> bool:
        """Put the first meta row of a queue; False: another hub has. Raises BackendError: it may be made."""
        row = keys.meta_row(known.key)
        for _ in range(_HIDDEN):
            self._caller.call(calls.check_and_put(self._table, row, STATE, None, (STATE, raw)).pinned(known.key))
            found = self._log.metas((known.key,)).get(known.key)
            if found is not None:
                return self._log.decoded(known.queue_id, decode_meta, found).born == self._making[known.queue_id]
        raise BackendError(
            "a queue that was made is not to be seen: are the region servers' clocks right?", retryable=True
        )

    def set_limits(self, changes: list[tuple[int, QueueLimits]]) -> None:
        wanted = dict(changes)

        def limited(changing: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
            meta, limits = changing.meta, wanted[changing.known.queue_id]
            return (meta if meta.limits == limits else replace(meta, limits=limits)), ()

        self._log.load_readable(list(wanted))
        queues = {queue_id: queue for queue_id in wanted if (queue := self._log.get(queue_id)) is not None}
        while queues:
            try:
                gone = self._log.change([(queue, limited) for queue in queues.values()])
            except UnreadableQueueError as error:
                for queue_id in error.all:
                    del queues[queue_id]  # it was readable when it was loaded
                continue
            for queue in gone:
                self._log.forget(queue.known)
            return

    def set_tenant_limits(self, tenant_id: int, messages: int, size_bytes: int) -> None:
        tenant = self._index.tenant(tenant_id)
        tenant.max_messages = messages
        tenant.max_bytes = size_bytes

    def tenant_usage(self, tenant_id: int) -> TenantUsage:
        return self._index.usage(tenant_id)

    def purge(self, queue_id: int) -> int:
        return self._removing.purge(queue_id)

    def drop(self, queue_id: int) -> int:
        count = 0
        with suppress(UnreadableQueueError):  # then it goes unread
            self._log.load((queue_id,))
            queue = self._log.get(queue_id)
            if queue is not None and not self._log.refresh((queue,)):
                count = queue.messages
        known = self._index.get(queue_id)
        if known is None:
            return 0
        self._erase(known)
        return count

    def _erase(self, known: KnownQueue) -> None:
        """Delete the meta row, then what is left, the index row last: a late append finds no queue and removes its row itself."""
        self._caller.call(calls.mutate_row(self._table, keys.meta_row(known.key), {}, (b"m",)).pinned(known.key))
        scan = Scan(
            self._table, known.key, keys.prefix_end(known.key), caching=_ROWS_AT_ONCE, filter_text=b"KeyOnlyFilter()"
        )
        rows = [Mutation(row.key, {}, tuple(row.cells)) for row in self._caller.scan(scan, _ROWS_AT_ONCE)]
        all_of(self._caller.call_many([calls.mutate_rows(self._table, part) for part in parts(rows, _ROWS_AT_ONCE)]))
        self._index.strike(((known.tenant_id, known.queue_id),))
        self._log.forget(known)

    def drop_tenant(self, tenant_id: int) -> int:
        queue_ids = [queue_id for _, queue_id in self._index.listed(tenant_id)]
        unread = self._log.load_readable(queue_ids)
        there = [queue_id for queue_id in queue_ids if queue_id in unread or self._log.get(queue_id) is not None]
        for queue_id in queue_ids:  # those without a meta row, too: a hub died while it dropped them
            self._erase(self._index.add(tenant_id, queue_id))
        return len(there)

    def expire(self, now_ms: int, count: int, after: ExpiryMark = EARLIEST) -> Expired:
        return self._removing.expire(now_ms, count, after)

    def expire_unsent(self, now_ms: int, records: Sequence[DueRecord]) -> tuple[DueRecord, ...]:
        return self._removing.expire_unsent(now_ms, records)
