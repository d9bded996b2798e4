"""The append of driver `hbase-plain`: messages of one call become batches of many queues.

Knows limits, policies, the de-duplication of QoS 2 and open intents; knows no reader.

Theory: a call that fails is made again with the same `Append`s (the same objects), alone or together, and goes on where it was: what was
answered for an item, and rows on their way, are kept until then. An inbound QoS 2 message is recorded in its publisher's meta row before
anything else (`Open`, with what is needed to finish it beside), and as routed when every queue has it; whoever claims the publisher's queue
finishes what is open. Message ids make that safe: a queue knows those of its rows, and remembers those that were acknowledged.
Behind a message that a queue could not take for something that cannot be read, it takes none of the same call (`behind`). What it has already
is no matter of that: if it were refused, a QoS 2 message would be sent anew, and the reader would get it twice (!).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from iothub.base.errors import BackendError
from iothub.records.queue_batch import Batch, Known
from iothub.records.queued import Body, encode_record
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.queues.behind import Behind
from iothub_services.queues.hbase.bodies import Bodies, inline, is_apart
from iothub_services.queues.hbase_plain.inbound import Item, Opening, Routing
from iothub_services.queues.hbase_plain.limits import full, may_drop, victims
from iothub_services.queues.hbase_plain.log import Damage, QueueLog, raise_first
from iothub_services.queues.hbase_plain.meta import (
    REMEMBERED,
    Meta,
    decode_remembered,
    remembered_row,
)
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.hbase_plain.slots import Course, Moving, Slots
from iothub_services.queues.port import (
    Append,
    Appended,
    Delivery,
    Inbound,
    Refused,
    UnreadableQueueError,
    refused_by_own,
)
from iothub_services.queues.remote.repeats import Repeats

ROW_BYTES = 256 << 10  # of one batch: a page of rows must fit into a frame
_ROW_RECORDS = 1024
_ROUNDS = 64  # in which nothing was placed, because others were faster
_LOOKED_AFTER = 64  # rows at a time, when nobody writes
_BYTES_KEPT = 32 << 20  # of rows on their way after a call that failed

_GONE, _FULL = int(Refused.GONE), int(Refused.FULL)
_EXACTLY_ONCE = 2


@dataclass(frozen=True, slots=True)
class _Share:
    """One delivery of an item, encoded."""

    item: Item
    index: int
    record: bytes
    known: Known


class Appending:
    """All appends of one hub.

    Invariants: a queue has at most one row on its way (`_moving`), and a row that may be written is settled before anything else of its
    queue is. `coming` of a queue counts the records planned and on their way.
    """

    def __init__(self, log: QueueLog, bodies: Bodies, writer: int) -> None:
        self._log = log
        self._slots = Slots(log)
        self._bodies = bodies
        self._writer = writer
        self._sequence = 0
        self.repeats: Repeats[Append, Item] = Repeats()
        self._planned: dict[LogQueue, list[_Share]] = {}
        self._moving: dict[LogQueue, Moving] = {}
        self._shares: dict[Moving, list[_Share]] = {}
        self._ids: set[tuple[LogQueue, bytes]] = set()  # QoS 2, planned or on their way
        self._redo: list[tuple[LogQueue, list[_Share]]] = []
        self._fresh: set[LogQueue] = set()  # full ones whose meta rows were read in this call
        self._unknown: dict[
            LogQueue, UnreadableQueueError
        ] = {}  # not all message ids of these can be known, in this call
        self._damaged: set[int] = set()  # queues that turned out to be while something was on its way into them
        self._behind = Behind()  # in this call
        self._active: set[LogQueue] = set()  # queues of this call: what another one has left elsewhere cannot fail it

    def do(self, batch: Sequence[Append]) -> list[Appended]:
        """Append; raises BackendError when something could not be written: then do it again."""
        items = [self._item(append) for append in batch]
        self.carry(items)
        for append in batch:
            self.repeats.answered(append)
        return [item.answer for item in items]

    def _item(self, append: Append) -> Item:
        item = self.repeats.get(append)
        if item is None:
            item = Item(append, append.message_id, [0] * len(append.deliveries))
            self.repeats.keep(append, item, len(append.body))
        return item

    def carry(self, items: Sequence[Item]) -> None:
        """Bring these messages to their queues. Raises BackendError; what was done is in the items."""
        try:
            self._carry(items)
        except BackendError as error:
            error.is_written |= any(max(item.positions, default=0) > 0 for item in items)
            error.is_written |= any(row.is_doubtful for row in self._moving.values())
            raise
        finally:
            self._abandon()

    def _carry(self, items: Sequence[Item]) -> None:
        self._behind.clear()
        self._unknown.clear()
        damaged = self._log.load_readable(_queue_ids(items))
        self._settle(items)
        self._prepare(items)
        self._open(items, damaged)
        for item in items:
            if item.refusal is None:
                for index, delivery in enumerate(item.append.deliveries):
                    if delivery.queue_id in item.unreadable:  # since an earlier attempt
                        self._behind.refused(delivery, item.unreadable[delivery.queue_id])
                    elif delivery.queue_id in damaged and not item.positions[index]:
                        item.refuse(index, damaged[delivery.queue_id].error.found)
                    elif not item.positions[index]:
                        self._deliver(item, index, delivery)
        self._place()
        self._route(items)

    # --- what an earlier call has left

    def forget(self) -> bool:
        """Nobody repeats a call any more: see what became of some rows that were given up; True if there are more. Raises BackendError."""
        self.repeats.clear()
        for row in list(self._moving.values()):
            self._give_up(row)
        self._active = set(list(self._moving)[:_LOOKED_AFTER])
        self._place()
        return bool(self._moving)

    def _settle(self, items: Sequence[Item]) -> None:
        """Rows on their way that nobody asks for any more are not written, if they are not yet."""
        current = set(map(id, items))
        found = [self._log.get(queue_id) for queue_id in _queue_ids(items)]
        self._active = {queue for queue in found if queue is not None}
        for row in [row for queue, row in self._moving.items() if queue in self._active]:
            if not any(id(share.item) in current for share in self._shares[row]):
                self._give_up(row)
        self._place()

    def _give_up(self, row: Moving) -> None:
        """Only look for it from now on, and not even that if it cannot be there."""
        row.is_wanted = False
        row.course = Course.LOOK if row.is_doubtful else Course.DISCARDED
        row.records, row.value = [], b""
        self._finish([row])

    def _abandon(self) -> None:
        """Forget what was planned only, what is too much to keep, and damaged queues: they are loaded anew when somebody asks for them."""
        self._redo.clear()
        self._fresh.clear()
        for queue, shares in self._planned.items():
            self._came(queue, shares)
        self._planned.clear()
        kept = sum([len(row.value) for row in self._moving.values()])
        for row in list(self._moving.values()):
            if kept > _BYTES_KEPT:
                kept -= len(row.value)
                self._give_up(row)
        self._log.release(self._damaged)
        self._damaged.clear()

    # --- bodies

    def _prepare(self, items: Sequence[Item]) -> None:
        """Decide where bodies lie; those that lie apart are durable before anything refers to them."""
        waiting = []
        for item in items:
            append = item.append
            if item.body is None and is_apart(len(append.body), len(append.deliveries)):
                item.body = Body(b"", len(append.body), self._bodies.new_id())
            elif item.body is None:
                item.body = inline(append.body)
            tenant_id = self._tenant_of(append)
            if item.body.id and not item.is_body_put and tenant_id is not None:
                waiting.append((tenant_id, item.body.id, append.body))
        self._bodies.put(waiting)
        for item in items:
            item.is_body_put = True

    def _tenant_of(self, append: Append) -> int | None:
        for delivery in append.deliveries:
            queue = self._log.get(delivery.queue_id)
            if queue is not None:
                return queue.known.tenant_id
        return None

    # --- the publisher's side of QoS 2

    def _open(self, items: Sequence[Item], damaged: Mapping[int, Damage]) -> None:
        waiting: dict[LogQueue, list[Item]] = {}
        for item in items:
            inbound = item.append.inbound
            if inbound is not None:
                queue = self._log.get(inbound.queue_id)
                if inbound.queue_id in damaged:
                    error = damaged[inbound.queue_id].error
                    item.refusal = refused_by_own(len(item.positions), error, is_noted=item.is_open)
                elif queue is None:
                    item.refusal = Appended((), is_stale=True)
                else:
                    waiting.setdefault(queue, []).append(item)
        changes = [(queue, Opening(self._log.table, each)) for queue, each in waiting.items()]
        for queue in self._log.change(changes):
            for item in waiting[queue]:
                item.refusal = Appended((), is_stale=True)
            self._log.forget(queue.known)
        for each in waiting.values():
            for item in each:
                item.is_open = item.refusal is None

    def _route(self, items: Sequence[Item]) -> None:
        """Every queue has it: a resent PUBLISH is a duplicate from now on. What a queue could not take stays open."""
        waiting: dict[LogQueue, list[tuple[Inbound, bytes]]] = {}
        for item in items:
            inbound = item.append.inbound
            is_open = item.refusal is None and not item.unreadable
            if inbound is not None and is_open and (item.append.deliveries or item.is_repeated):
                queue = self._log.get(inbound.queue_id)
                if queue is not None:
                    waiting.setdefault(queue, []).append((inbound, item.message_id))
        self._log.change([(queue, Routing(each)) for queue, each in waiting.items()])

    # --- one queue's share

    def _deliver(self, item: Item, index: int, delivery: Delivery) -> None:
        queue_id = delivery.queue_id
        try:
            found = self._behind.of(delivery)
            if found is None:
                self._deliver_readable(item, index, delivery)
            elif not self._is_there(item, index, delivery):
                item.refuse(index, found)
        except UnreadableQueueError as error:
            if error.queue_id != queue_id:
                raise
            item.refuse(index, error.found)
            self._behind.refused(delivery, error.found)

    def _is_there(self, item: Item, index: int, delivery: Delivery) -> bool:
        """See whether a queue that takes nothing more has this message. Raises UnreadableQueueError: that cannot be known."""
        queue = self._log.get(delivery.queue_id)
        if queue is not None and delivery.qos == _EXACTLY_ONCE:
            item.positions[index] = self._known(queue, item)
        return item.positions[index] > 0

    def _deliver_readable(self, item: Item, index: int, delivery: Delivery) -> None:
        queue = self._log.get(delivery.queue_id)
        body = item.body
        if queue is None or body is None:
            item.positions[index] = _GONE
            return
        message_id = item.message_id if delivery.qos == 2 else b""
        if message_id:
            item.positions[index] = self._known(queue, item)
            if item.positions[index]:
                return
        if not self._has_room(queue, item, body.size):
            item.positions[index] = _FULL
            return
        append = item.append
        ids, expires_at_ms = delivery.subscription_ids, append.expires_at_ms
        record = encode_record(delivery.qos, delivery.flags, ids, expires_at_ms, message_id, body)
        known = Known(body.size, delivery.qos, expires_at_ms, message_id)
        self._plan(queue, _Share(item, index, record, known))

    def _known(self, queue: LogQueue, item: Item) -> int:
        """Return the position that the queue gave this QoS 2 message, 0 for none. Raises UnreadableQueueError: it may have it, or not."""
        if (queue, item.message_id) in self._ids:
            self._place()
        try:
            if queue not in self._unknown:
                self._log.know(queue, queue.tail)
        except UnreadableQueueError as error:
            self._unknown[queue] = error
        position = queue.position_of(item.message_id)
        if position is None and item.is_repeated and queue.meta.remembers:
            row = remembered_row(queue.key, item.message_id)
            found = self._log.caller.call(calls.get_row(self._log.table, row, (REMEMBERED,), pin=queue.key))
            if found is not None:
                raw = found.cells[REMEMBERED].value
                position, _ = self._log.decoded(queue.known.queue_id, decode_remembered, raw)
        if position is None and queue in self._unknown:
            raise self._unknown[queue]
        return position or 0

    def _has_room(self, queue: LogQueue, item: Item, size: int) -> bool:
        """See whether one more fits, and make room by policy: all that is needed, or nothing."""
        name = full(queue, size)
        if name and queue not in self._fresh:  # another hub may have made room
            self._fresh.add(queue)
            self._log.is_newer(queue)
            self._log.count((queue,))
            name = full(queue, size)
        if not name:
            return True
        dropped: list[int] = []
        if may_drop(queue):
            self._place()
            self._log.know(queue, queue.tail)
            dropped = self._drop(queue, size)
        item.hit += [name] * max(len(dropped), 1)
        item.dropped += [(queue.known.queue_id, position) for position in dropped]
        return bool(dropped)

    def _drop(self, queue: LogQueue, size: int) -> list[int]:
        found: list[int] = []

        def without(changing: LogQueue) -> tuple[Meta, Sequence[Call[None]]]:
            found[:] = victims(changing, size) or ()
            return changing.removed(changing.meta, found, self._log.now_ms), ()

        self._log.change([(queue, without)])
        self._log.count((queue,))
        return found

    # --- rows

    def _plan(self, queue: LogQueue, share: _Share) -> None:
        self._planned.setdefault(queue, []).append(share)
        if share.known.message_id:
            self._ids.add((queue, share.known.message_id))
        queue.coming_messages += 1
        queue.coming_bytes += share.known.size
        queue.coming_qos0 += not share.known.qos
        self._log.count((queue,))

    def _came(self, queue: LogQueue, shares: Iterable[_Share]) -> None:
        """They are on their way no more."""
        for share in shares:
            self._ids.discard((queue, share.known.message_id))
            queue.coming_messages -= 1
            queue.coming_bytes -= share.known.size
            queue.coming_qos0 -= not share.known.qos
        self._log.count((queue,))

    def _place(self) -> None:
        """Write what is planned, row after row in each queue, all queues at the same time."""
        patience = _ROUNDS
        while rows := self._next_rows():
            try:
                self._slots.round(rows)
            finally:
                self._refuse(rows)
                self._finish(rows)
            raise_first([row.error for row in rows if row.error is not None and not row.is_over])
            self._deliver_again()
            patience = _ROUNDS if any(row.course is Course.PLACED for row in rows) else patience - 1
            if not patience:
                raise BackendError("the next slot of a queue is taken by others all the time", retryable=True)

    def _refuse(self, rows: Iterable[Moving]) -> None:
        """Queues have turned out to be unreadable."""
        for row in rows:
            if isinstance(row.error, UnreadableQueueError):
                queue_id = row.queue.known.queue_id
                row.course = Course.DISCARDED
                self._behind.stop(queue_id, row.error.found)
                behind = self._planned.pop(row.queue, [])
                self._came(row.queue, behind)
                for share in (*self._shares[row], *behind):
                    share.item.refuse(share.index, row.error.found)
                self._damaged.add(queue_id)

    def _deliver_again(self) -> None:
        """Look once more whether queues have these messages; what was planned behind them stays behind them."""
        redo, self._redo = self._redo, []
        for queue, shares in redo:
            behind = self._planned.pop(queue, [])
            self._came(queue, behind)
            for share in (*shares, *behind):
                self._deliver(share.item, share.index, share.item.append.deliveries[share.index])

    def _next_rows(self) -> list[Moving]:
        for queue in list(self._planned):
            if queue not in self._moving:
                self._begin_row(queue)
        return [row for queue, row in self._moving.items() if queue in self._active]

    def _begin_row(self, queue: LogQueue) -> None:
        shares = self._planned[queue]
        taken, size = 0, 0
        while taken < min(len(shares), _ROW_RECORDS) and (not taken or size + len(shares[taken].record) <= ROW_BYTES):
            size += len(shares[taken].record)
            taken += 1
        mine, rest = shares[:taken], shares[taken:]
        if rest:
            self._planned[queue] = rest
        else:
            del self._planned[queue]
        self._sequence += 1
        known = tuple([share.known for share in mine])
        sums = (queue.tail + 1, queue.tail_bytes, queue.tail_qos0)
        batch = Batch(queue.meta.born, self._writer, self._sequence, *sums, known)
        row = Moving(queue, batch, [share.record for share in mine])
        self._moving[queue] = row
        self._shares[row] = mine

    def _finish(self, rows: Iterable[Moving]) -> None:
        """Answer the shares of rows that are over."""
        for row in [row for row in rows if row.is_over]:
            shares = self._shares.pop(row)
            del self._moving[row.queue]
            for position, share in enumerate(shares, row.batch.first):
                if row.course is Course.PLACED:
                    share.item.positions[share.index] = position
                elif row.course is Course.GONE:
                    share.item.positions[share.index] = _GONE
            self._came(row.queue, shares)
            if row.course is Course.GONE:
                self._log.forget(row.queue.known)
            elif row.course is Course.AGAIN:
                self._redo.append((row.queue, shares))


def _queue_ids(items: Iterable[Item]) -> list[int]:
    """Return the queues that these messages go to, and those of their publishers."""
    found = {delivery.queue_id: None for item in items for delivery in item.append.deliveries}
    found |= {item.append.inbound.queue_id: None for item in items if item.append.inbound is not None}
    return list(found)
