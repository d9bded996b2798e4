# cython: annotation_typing=False
"""The table in memory: where the messages are that the journal has and SQLite has not.

Knows positions, limits and the rows of queues; knows no file and no transaction.

Theory: a queue's young messages are a run of positions at its end, in the order of their records: an append adds at the right end, an
acknowledgement and the flush of a segment take from the left. Whatever would take one from the middle, moves the whole run into SQLite first
(`JournaledQueues`). A message has no object here: it is four numbers, and what they do not say is read from its record.

Invariants: a row's counters are of both, SQLite and what is young; `young_messages` of a row is the length of its run. `living` counts the young
messages of each segment. Nobody but the writer sees positions above `visible`: they are not durable yet.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from heapq import heapify, heappop, heappush

from iothub.engine.outbox import QueueTarget
from iothub_services.queues.journal.encoding import Delivered, GroupBuffer, write_message, write_single
from iothub_services.queues.journal.reading import Wanted
from iothub_services.queues.journal.records import APPEND, DELIVERY, IDENTIFIER, AppendRecord, Placed, placed_at
from iothub_services.queues.journal.words import add_words, long_at, new_words, short_at, word_at
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Inbound, Refused
from iothub_services.queues.sqlite.append import Appending, full
from iothub_services.queues.sqlite.row_cache import QueueRow, QueueRowCache, Tenant

_GONE, _FULL = int(Refused.GONE), int(Refused.FULL)
_KNOWN = "SELECT position FROM ref WHERE queue = ? AND message_id = ? AND qos = 2"
_RELEASED = "SELECT position FROM released WHERE queue = ?"
_INBOUND = "SELECT packet_id FROM inbound WHERE queue = ?"
_APPEND_SIZE, _DELIVERY_SIZE, _IDENTIFIER_SIZE = APPEND.size, DELIVERY.size, IDENTIFIER.size
_LOWER = 0xFFFFFFFF  # half of a word
_SPARE_WORDS = 256  # of messages that are gone, before the others are moved up
_SPARE_DEADLINES = 1_024  # that are watched for nobody, before they go


class Young:
    """What one queue has in memory. `words`: four for each message, see `Table.push`. `released`, `inbound`: all of the queue's, once loaded."""

    __slots__ = (
        "begin",
        "deadline",
        "first",
        "ids",
        "inbound",
        "is_waiting",
        "last",
        "released",
        "stored",
        "visible",
        "words",
    )

    def __init__(self, visible: int) -> None:
        self.words = new_words()
        self.begin = 0  # where the first message is in `words`
        self.first = self.last = 0  # positions of its ends
        self.ids: dict[bytes, int] = {}  # of QoS 2 messages
        self.deadline = 0  # the one that `Table` watches: none of its messages expires before it
        self.visible = visible
        self.is_waiting = False  # for its group to be durable
        self.released: set[int] | None = None
        self.inbound: set[int] | None = None
        self.stored = False  # whether the tables may have rows for these two


class Table:
    """All of them. In the writer's thread, or under its lock."""

    def __init__(
        self,
        connection: sqlite3.Connection,
        rows: QueueRowCache,
        appending: Appending,
        move_out: Callable[[QueueRow], None],
    ) -> None:
        """`appending`: makes room in SQLite; `move_out` moves a queue's young messages there."""
        self._connection = connection
        self._rows = rows
        self._appending = appending
        self._move_out = move_out
        self.young: dict[int, QueueRow] = {}  # rows that have a `Young`
        self.marked: dict[int, QueueRow] = {}  # those whose `released` or `inbound` is loaded
        self._living: dict[int, int] = {}  # segment: young messages; not of the one that was counted last
        self._counted = 0  # that one
        self._count_of_it = 0
        self.count = 0  # young messages
        self.tenants: set[Tenant] = set()  # whose sums have changed since the last group
        self.segment = 0  # that groups are written to
        self._waiting: list[QueueRow] = []
        # Of the message that is being appended.
        self._group: GroupBuffer
        self._message_id = b""
        self._data = b""
        self._expires_at_ms = 0
        self._positions: list[int] = []
        self._made: list[Delivered] = []
        self._dropped: list[tuple[int, int]] = []
        self._hit: list[str] = []
        self.deadlines: list[tuple[int, int]] = []  # expiry, queue

    # --- a group

    def append(self, batch: list[Append], group: GroupBuffer) -> list[Appended]:
        return [self._append(item, group) for item in batch]

    def _append(self, item: Append, group: GroupBuffer) -> Appended:
        self._begin(group, item.message_id, item.body, item.expires_at_ms)
        if item.inbound is not None:
            refusal = self._record_inbound(item.inbound)
            if refusal is not None:
                return refusal
        for queue_id, qos, flags, subscription_ids in item.deliveries:
            self._deliver(queue_id, qos, flags, subscription_ids)
        return Appended(self._end(item.inbound), dropped=tuple(self._dropped), hit=tuple(self._hit))

    def append_operations(self, batch: list[AppendOperation], group: GroupBuffer) -> list[Appended | tuple[int, ...]]:
        """Do the same without an `Append` for each; positions alone are the answer if there is nothing else to say."""
        answers: list[Appended | tuple[int, ...]] = []
        for operation in batch:
            answers.append(self._append_operation(operation, group))  # noqa: PERF401 - compiled, this is faster
        return answers

    def _append_operation(self, operation: AppendOperation, group: GroupBuffer) -> Appended | tuple[int, ...]:
        publish = operation.publish
        inbound = operation.inbound
        expires_at = publish.message.expires_at
        expires_at_ms = int(expires_at * 1000) if expires_at else 0
        if inbound is None and len(publish.targets) == 1:
            positions = self._append_single(operation, publish.targets[0], expires_at_ms, group)
            if positions is not None:
                return positions
        self._begin(group, operation.message_id, operation.body, expires_at_ms)
        if inbound is not None:
            refusal = self._record_inbound(inbound)
            if refusal is not None:
                return refusal
        for target in publish.targets:
            self._deliver(target.queue_id, target.qos, target.flags(), target.identifiers)
        positions = self._end(inbound)
        if self._dropped or self._hit:
            return Appended(positions, dropped=tuple(self._dropped), hit=tuple(self._hit))
        return positions

    def _append_single(
        self, operation: AppendOperation, target: QueueTarget, expires_at_ms: int, group: GroupBuffer
    ) -> tuple[int, ...] | None:
        """Do one for one queue that has room, without lists for what it is made of; None: nothing was done, it is not as simple as that."""
        row = self._rows.touch(target.queue_id)
        data, message_id, size = operation.made_body, operation.message_id, operation.size_bytes
        if row is None or (message_id and target.qos == 2) or full(row, size):
            return None
        position = row.tail + 1
        qos, flags, count = target.qos, target.flags(), len(target.identifiers)
        self._message_id, self._expires_at_ms = message_id, expires_at_ms
        self._admit(row, position, qos, size)
        at = group.start + len(group.data)
        group.records += 1
        if data is None:
            write_message(
                group.data, group.mark, message_id, operation.publish.message, expires_at_ms, target, position
            )
        else:
            write_single(group.data, group.mark, message_id, data, expires_at_ms, target, position)
        body = group.start + len(group.data) - at - size
        segment, delivery = self.segment, _APPEND_SIZE
        self.push(row, position, qos | flags << 8, segment << 32 | at, body << 32 | size, delivery << 16 | count)
        return (position,)

    def _begin(self, group: GroupBuffer, message_id: bytes, data: bytes, expires_at_ms: int) -> None:
        """Begin a message."""
        self._group = group
        self._message_id = message_id
        self._data = data
        self._expires_at_ms = expires_at_ms
        self._positions = []
        self._made = []
        if self._dropped:
            self._dropped = []
        if self._hit:
            self._hit = []

    def _end(self, inbound: Inbound | None) -> tuple[int, ...]:
        """Write its record, and note where it is; return its positions."""
        made, group = self._made, self._group
        for queue_id, position in self._dropped:
            group.removed(queue_id, position)
        if made or inbound is not None:
            at = group.start + len(group.data)
            data = self._data if made else b""
            group.append(self._message_id, data, self._expires_at_ms, made, inbound)
            if made:
                delivery = _APPEND_SIZE
                body = group.start + len(group.data) - at - len(data)
                segment, size = self.segment, len(data)
                for _, position, qos, flags, subscription_ids, row in made:
                    count = len(subscription_ids)
                    self.push(
                        row, position, qos | flags << 8, segment << 32 | at, body << 32 | size, delivery << 16 | count
                    )
                    delivery += _DELIVERY_SIZE + _IDENTIFIER_SIZE * count
        return tuple(self._positions)

    def _record_inbound(self, inbound: Inbound) -> Appended | None:
        row = self._rows.get(inbound.queue_id)
        if row is None or row.epoch != inbound.epoch:
            return Appended((), is_stale=True)
        identifiers = self.inbound(row)
        if inbound.packet_id in identifiers:
            return Appended((), is_duplicate=True)
        identifiers.add(inbound.packet_id)
        return None

    def _deliver(self, queue_id: int, qos: int, flags: int, subscription_ids: tuple[int, ...]) -> None:
        """Give the message to one queue: a position, or a `Refused`."""
        row = self._rows.touch(queue_id)
        if row is None:
            self._positions.append(_GONE)
            return
        if qos == 2 and self._message_id:
            known = self._known(row, self._message_id)
            if known:
                self._positions.append(known)
                return
        size = len(self._data)
        limit = full(row, size)
        if limit:
            before = len(self._dropped)
            self._move_out(row)
            has_room = self._appending.make_room(row, size, self._dropped)
            self._hit += [limit] * (len(self._dropped) - before if has_room else 1)
            if not has_room:
                self._positions.append(_FULL)
                return
        position = row.tail + 1
        self._positions.append(position)
        self._made.append((queue_id, position, qos, flags, subscription_ids, row))
        self._admit(row, position, qos, size)

    def _admit(self, row: QueueRow, position: int, qos: int, size: int) -> None:
        """Take a message whose record is not written yet into its queue, which has nobody else see it: what is made here is of the tail before."""
        young = self.of(row)
        row.tail = max(row.tail, position)
        if not young.is_waiting:
            young.is_waiting = True
            self._waiting.append(row)
        if qos == 2 and self._message_id:
            young.ids[self._message_id] = position
        self._count(row, 1, size, 0 if qos else 1)

    def _known(self, row: QueueRow, message_id: bytes) -> int:
        """Return where the queue has this message of QoS 2, 0: nowhere."""
        young = row.young
        position = 0
        if young is not None:
            position = young.ids.get(message_id, 0)
        if not position and self.has_old(row):
            for (stored,) in self._connection.execute(_KNOWN, (row.queue_id, message_id)):
                position = stored
        return position

    def push(self, row: QueueRow, position: int, kind: int, place: int, extent: int, delivery: int) -> None:
        """Add a message of which the record is written, or is read, to the end of a queue's run.

        `kind`: QoS, and flags << 8. `place`: segment << 32 | where its record begins there. `extent`: where the body begins in the record, << 32 |
        its size. `delivery`: where the queue's share of the record begins, << 16 | number of subscription identifiers.
        """
        young = self.of(row)
        if row.young_messages and young.last != position - 1:
            self._move_out(row)  # a run has no gaps
            young = self.of(row)
        expires_at_ms = self._expires_at_ms
        add_words(young.words, place, extent, expires_at_ms << 16 | kind, delivery)
        if not row.young_messages:
            young.first = position
        young.last = position
        row.young_messages += 1
        row.young_bytes += extent & _LOWER
        if not kind & 3:
            row.young_qos0 += 1
        self.count += 1
        self._live(place >> 32, 1)
        if expires_at_ms and (not young.deadline or expires_at_ms < young.deadline):
            young.deadline = expires_at_ms
            self._watch(expires_at_ms, row.queue_id)

    def _live(self, segment: int, messages: int) -> None:
        """So many more messages of a segment are young. Nearly all that follow each other are of one."""
        if segment != self._counted:
            self._living[self._counted] = self._count_of_it
            self._counted = segment
            self._count_of_it = self._living.pop(segment, 0)
        self._count_of_it += messages

    def living(self, segment: int) -> int:
        """Return how many messages of a segment are young."""
        return self._count_of_it if segment == self._counted else self._living.get(segment, 0)

    def _watch(self, deadline: int, queue_id: int) -> None:
        """Look at a queue then. It may have had another one, which goes when those of no queue are as many as the others."""
        heappush(self.deadlines, (deadline, queue_id))
        if len(self.deadlines) > 2 * len(self.young) + _SPARE_DEADLINES:
            self.deadlines = [(row.young.deadline, row.queue_id) for row in self.young.values() if row.young.deadline]
            heapify(self.deadlines)

    def take(self, segment: int, at: int, record: AppendRecord, is_done: bool) -> list[Placed]:
        """Give what a record says to its queues, which have it or not; return what is of queues that are not there.

        `is_done`: the tables have everything of the record, but for what was young.
        """
        deliveries, size = record[3], len(record[1])
        self._message_id, self._expires_at_ms = record[0], record[2]
        body = _APPEND_SIZE + len(deliveries)
        missing, share = [], 0
        while share < len(deliveries):
            position, kind, count = (
                long_at(deliveries, share + 8),
                short_at(deliveries, share + 16),
                short_at(deliveries, share + 18),
            )
            row = self._rows.touch(long_at(deliveries, share))
            young = None if row is None else row.young
            if row is None:
                missing.append(placed_at(deliveries, share))
            elif is_done and position > row.tail:
                pass  # an earlier queue of this number had it
            elif position > (row.moved if young is None or not row.young_messages else young.last):
                self._admit(row, position, kind & 3, size)
                delivery = _APPEND_SIZE + share
                self.push(row, position, kind, segment << 32 | at, body << 32 | size, delivery << 16 | count)
            share += _DELIVERY_SIZE + _IDENTIFIER_SIZE * count
        return missing

    def acknowledge(self, row: QueueRow, upto: int) -> None:
        """Take what is young and at or below `upto` out of a queue whose row is touched."""
        self.remove_upto(row, upto)
        young = row.young
        if young is not None and young.released:
            young.released = {position for position in young.released if position > upto}

    def remove_upto(self, row: QueueRow, upto: int) -> int:
        """Take what is young and at or below `upto` out of a queue whose row is touched; return how many that were."""
        young = row.young
        if young is None or not row.young_messages or young.first > upto:
            return 0
        messages: int = min(upto - young.first + 1, row.young_messages)
        self._remove(row, messages)
        return messages

    def _remove(self, row: QueueRow, messages: int) -> None:
        """Take the first ones out of the queue."""
        size, qos0 = row.young_bytes, row.young_qos0
        self._take_off(row, messages)
        self._count(row, -messages, row.young_bytes - size, row.young_qos0 - qos0)

    def _take_off(self, row: QueueRow, messages: int) -> None:
        """Take the first ones out of the run; its queue may still have them."""
        young = row.young
        words = young.words
        index = young.begin
        end = index + 4 * messages
        size = qos0 = run = since = 0
        while index < end:
            place = word_at(words, index)
            extent = word_at(words, index + 1)
            kind = word_at(words, index + 2)
            segment = place >> 32
            if segment != since:
                if run:
                    self._live(since, -run)
                since = segment
                run = 0
            run += 1
            size += extent & _LOWER
            if not kind & 3:
                qos0 += 1
            index += 4
        if run:
            self._live(since, -run)
        young.first += messages
        row.young_messages -= messages
        row.young_bytes -= size
        row.young_qos0 -= qos0
        self.count -= messages
        young.begin = end
        if not row.young_messages:
            young.words = new_words()
            young.begin = 0
        elif end > _SPARE_WORDS and 2 * end > len(words):
            del words[:end]
            young.begin = 0
        if young.ids:
            _forget_before(young.ids, young.first)

    def _count(self, row: QueueRow, messages: int, size_bytes: int, qos0: int) -> None:
        row.messages += messages
        row.bytes += size_bytes
        row.qos0 += qos0
        tenant = row.tenant
        tenant.messages += messages
        tenant.bytes += size_bytes
        self.tenants.add(tenant)

    def settle(self) -> None:
        """What was taken is durable."""
        for row in self._waiting:
            young = row.young
            if young is not None:
                young.visible = row.tail
                young.is_waiting = False
        self._waiting.clear()

    # --- one queue

    def of(self, row: QueueRow) -> Young:
        """Return what a queue has here, made if need be."""
        young: Young | None = row.young
        if young is None:
            young = row.young = Young(row.tail)
            self.young[row.queue_id] = row
        return young

    def has_old(self, row: QueueRow) -> bool:
        """Whether SQLite has messages of this queue."""
        return row.messages > row.young_messages

    def released(self, row: QueueRow) -> set[int]:
        """Return the released positions of a queue, to be changed."""
        young = self.of(row)
        if young.released is None:
            young.released = {position for (position,) in self._connection.execute(_RELEASED, (row.queue_id,))}
            young.stored = young.stored or bool(young.released)
            self.marked[row.queue_id] = row
        return young.released

    def inbound(self, row: QueueRow) -> set[int]:
        """Return the open inbound Packet Identifiers of a queue, to be changed."""
        young = self.of(row)
        if young.inbound is None:
            young.inbound = {packet_id for (packet_id,) in self._connection.execute(_INBOUND, (row.queue_id,))}
            young.stored = young.stored or bool(young.inbound)
            self.marked[row.queue_id] = row
        return young.inbound

    def forget(self, queue_id: int) -> None:
        """The queue ends; its young messages are gone, or moved out before."""
        self.young.pop(queue_id, None)
        self.marked.pop(queue_id, None)

    def wanted(self, row: QueueRow, after: int, count: int, size_bytes: int) -> list[Wanted]:
        """Return young messages behind `after` that are durable, until they are as many or have as many bytes."""
        found: list[Wanted] = []
        young = row.young
        if young is None or not row.young_messages:
            return found
        position = max(after + 1, young.first)
        last = min(young.last, young.visible, position + count - 1)
        while position <= last and size_bytes > 0:
            each = self._wanted_at(row, position)
            found.append(each)
            size_bytes -= each.size
            position += 1
        return found

    def all_wanted(self, row: QueueRow) -> list[Wanted]:
        """Return all young messages of a queue; those too that are not durable yet."""
        if not row.young_messages:
            return []
        return [self._wanted_at(row, position) for position in range(row.young.first, row.young.last + 1)]

    def _wanted_at(self, row: QueueRow, position: int) -> Wanted:
        young = row.young
        words = young.words
        index = young.begin + 4 * (position - young.first)
        place = word_at(words, index)
        extent = word_at(words, index + 1)
        kind = word_at(words, index + 2)
        delivery = word_at(words, index + 3)
        at = place & _LOWER
        wanted: Wanted = Wanted.__new__(Wanted)
        wanted.position = position
        wanted.qos = kind & 3
        wanted.flags = kind >> 8 & 0xFF
        wanted.expires_at_ms = kind >> 16
        wanted.segment = place >> 32
        wanted.body = at + (extent >> 32)
        wanted.size = extent & _LOWER
        wanted.identifiers = at + (delivery >> 16) + _DELIVERY_SIZE
        wanted.how_many = delivery & 0xFFFF
        return wanted

    def moved(self, row: QueueRow) -> None:
        """The run of a queue whose row is touched is in SQLite."""
        self._take_off(row, row.young_messages)

    def take_living(self, deliveries: bytes, place: int) -> list[Placed]:
        """Take a message out of each of its queues' runs where it is the first, to be put into SQLite; return what these have of it."""
        living, share = [], 0
        while share < len(deliveries):
            if self._take_first(long_at(deliveries, share), long_at(deliveries, share + 8), place):
                living.append(placed_at(deliveries, share))
            share += _DELIVERY_SIZE + _IDENTIFIER_SIZE * short_at(deliveries, share + 18)
        return living

    def _take_first(self, queue_id: int, position: int, place: int) -> bool:
        row = self.young.get(queue_id)
        if row is None or not row.young_messages:
            return False
        young = row.young
        if young.first != position or word_at(young.words, young.begin) != place:
            return False
        self._rows.touch(queue_id)
        self._take_off(row, 1)
        if not row.young_messages and not young.is_waiting and queue_id not in self.marked:
            row.young = None
            del self.young[queue_id]
        return True

    # --- all

    def due(self, now_ms: int) -> list[QueueRow]:
        """Return the queues that have young messages whose time has come; they are the caller's to move out."""
        found = []
        while self.deadlines and self.deadlines[0][0] <= now_ms:
            deadline, queue_id = heappop(self.deadlines)
            row = self.young.get(queue_id)
            if row is None or row.young.deadline != deadline:
                continue
            earliest = min([each.expires_at_ms for each in self.all_wanted(row) if each.expires_at_ms], default=0)
            row.young.deadline = 0
            if earliest > now_ms:
                row.young.deadline = earliest
                self._watch(earliest, queue_id)
            elif earliest:
                found.append(row)
        return found

    def rows_in(self, segment: int) -> list[QueueRow]:
        """Return the rows whose first young message is in this segment, or an earlier one."""
        rows = [row for row in self.young.values() if row.young_messages]
        return [row for row in rows if row.young.words[row.young.begin] >> 32 <= segment]

    def oldest(self) -> int:
        """Return the oldest segment that has a young message; 0: none has."""
        for segment in [segment for segment, count in self._living.items() if not count]:
            del self._living[segment]
        oldest = min(self._living, default=0)
        if self._count_of_it and (not oldest or self._counted < oldest):
            oldest = self._counted
        return oldest

    def take_marks(self) -> list[QueueRow]:
        """Return the rows whose `released` or `inbound` is loaded; they are the caller's to write."""
        rows = list(self.marked.values())
        self.marked.clear()
        return rows

    def settle_marks(self, row: QueueRow) -> None:
        """What a row had loaded is written."""
        young = row.young
        young.released = young.inbound = None
        young.stored = False
        if not row.young_messages and not young.is_waiting:
            row.young = None
            self.young.pop(row.queue_id, None)

    def clear(self) -> None:
        """Have nothing any more."""
        for row in self.young.values():
            row.young = None
            row.young_messages = row.young_bytes = row.young_qos0 = 0
        self.young.clear()
        self.marked.clear()
        self._living.clear()
        self._counted = self._count_of_it = 0
        self.count = 0
        self._waiting.clear()
        self.deadlines.clear()


def _forget_before(ids: dict[bytes, int], first: int) -> None:
    """Take the message ids of earlier positions out; they are in the order of their positions."""
    gone = []
    for message_id, position in ids.items():
        if position >= first:
            break
        gone.append(message_id)
    for message_id in gone:
        del ids[message_id]
