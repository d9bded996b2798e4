"""What the reader of a queue of driver `hbase-plain` changes: moves in its meta row, and the claim that makes it the reader.

Knows meta rows; knows no limits and no pages. A QoS 2 message id outlives its record by a row of its own, for the intent of a publisher
whose hub died between the append and the word that it was routed: the newest `IDS_KEPT`, for a day.
"""

from __future__ import annotations

import secrets
from collections import deque
from collections.abc import Sequence
from dataclasses import replace

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub.records import keys
from iothub.records.queued import decode_intent
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call, Mutation, Scan
from iothub_services.queues.hbase_plain.appending import Appending
from iothub_services.queues.hbase_plain.doomed import parts
from iothub_services.queues.hbase_plain.inbound import Item
from iothub_services.queues.hbase_plain.log import QueueLog
from iothub_services.queues.hbase_plain.meta import (
    FINISHED,
    REMEMBERED,
    Meta,
    Open,
    decode_remembered,
    encode_remembered,
    intent_column,
    remembered_row,
    remembered_rows,
)
from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.port import Append, Claim, Delivery, Move, MoveKind
from iothub_services.queues.remote.index import unknown
from iothub_services.queues.remote.repeats import Repeats

log = logging.get(__name__)

IDS_KEPT = 10_000  # of one queue
_ID_KEPT_MS = 86_400_000
_NO_ID = bytes(16)
_ROWS_AT_ONCE = 500

_Step = tuple[Meta, Sequence[Call[None]]]


class Moves:
    """The moves and claims of one hub."""

    def __init__(self, log: QueueLog, appending: Appending) -> None:
        self._log = log
        self._appending = appending
        self.repeats: Repeats[Move, bool] = Repeats()
        self._remembered: dict[int, deque[tuple[int, bytes]]] = {}  # queue id -> (noted at, message id), oldest first

    def apply(self, moves: Sequence[Move]) -> list[bool]:
        """Do moves; raises BackendError when some could not be done: then do all again."""
        new = [move for move in moves if self.repeats.get(move) is None]
        for move, answer in zip(new, self._apply(new), strict=True):
            self.repeats.keep(move, answer)
        answers = [bool(self.repeats.get(move)) for move in moves]
        for move in moves:
            self.repeats.answered(move)
        return answers

    def _apply(self, moves: Sequence[Move]) -> list[bool]:
        self._log.load([move.queue_id for move in moves])
        by_queue: dict[LogQueue, list[int]] = {}
        for index, move in enumerate(moves):
            queue = self._log.get(move.queue_id)
            if queue is not None:
                by_queue.setdefault(queue, []).append(index)
        answers = [False] * len(moves)
        steps = {queue: _Moving(self._log, [moves[at] for at in indexes]) for queue, indexes in by_queue.items()}
        self._log.know_all([(queue, min(step.acknowledged, queue.tail)) for queue, step in steps.items()])
        for queue in self._log.change(steps.items()):
            steps[queue].answers = [False] * len(by_queue[queue])
            self._log.forget(queue.known)
        for queue, indexes in by_queue.items():
            for at, answer in zip(indexes, steps[queue].answers, strict=True):
                answers[at] = answer
            self._remember(queue, steps[queue].ids)
        self._log.count([queue for queue in by_queue if self._log.get(queue.known.queue_id) is queue])
        return answers

    # --- claims

    def claim(self, queue_id: int, owner: bytes) -> Claim:
        """Make the caller the only reader. Raises NotFoundError, BackendError."""
        log = self._log
        is_fresh = log.get(queue_id) is None
        queue = log.existing(queue_id)
        token = secrets.randbits(63)

        def claimed(changing: LogQueue) -> _Step:
            meta = changing.meta
            is_done = meta.token == token
            return (meta if is_done else replace(meta, epoch=meta.epoch + 1, owner=owner, token=token)), ()

        if (not is_fresh and log.refresh([queue])) or log.change([(queue, claimed)]):
            log.forget(queue.known)
            raise unknown(queue_id)
        self._finish_intents(queue)
        self._forget_ids(queue)
        if is_fresh:  # of what this hub has vacated itself it knows
            log.doom_past(queue)
            log.doomed.delete()
        log.count((queue,))
        meta = queue.meta
        inbound = sorted([packet_id for packet_id, each in meta.inbound.items() if each.is_routed])
        return Claim(meta.epoch, meta.head, queue.tail, meta.reserved, meta.released, tuple(inbound))

    def _finish_intents(self, queue: LogQueue) -> None:
        """Bring open inbound messages to their queues: nobody else will before the publisher comes again.

        They go in the order in which they came, which is that of message ids; Packet Identifiers begin anew [MQTT-4.6.0-5].
        One whose message is not there, or damaged, or for a queue that cannot be read, stays open. It was not answered, so the client sends
        it again, and then it goes under the message id that is kept to those queues that do not have it yet.
        """
        opened = sorted(queue.meta.inbound.items(), key=lambda item: item[1].message_id)
        waiting = {packet_id: each for packet_id, each in opened if not each.is_routed}
        if not waiting:
            return
        columns = [intent_column(packet_id) for packet_id in waiting]
        row = self._log.caller.call(calls.get_row(self._log.table, keys.meta_row(queue.key), columns, pin=queue.key))
        cells = {} if row is None else row.cells
        items = {}
        for packet_id, each in waiting.items():
            cell = cells.get(intent_column(packet_id))
            if cell is not None and cell.value != FINISHED:
                try:
                    items[packet_id] = self._item(queue, each.message_id, cell.value)
                except BackendError as error:
                    log.error("open intent cannot be read", packet_id=packet_id, why=str(error))
        self._appending.carry(list(items.values()))

        def routed(changing: LogQueue) -> _Step:
            inbound = dict(changing.meta.inbound)
            for packet_id, item in items.items():
                each = waiting[packet_id]
                if not item.unreadable and inbound.get(packet_id) == each:
                    inbound[packet_id] = Open(True, each.message_id)
            is_same = inbound == changing.meta.inbound
            return (changing.meta if is_same else replace(changing.meta, inbound=inbound)), ()

        self._log.change([(queue, routed)])

    def _item(self, queue: LogQueue, message_id: bytes, raw: bytes) -> Item:
        intent = self._log.decoded(queue.known.queue_id, decode_intent, raw)
        deliveries = tuple([Delivery(*target) for target in intent.targets])
        append = Append(message_id, intent.body.octets, intent.expires_at_ms, deliveries)
        return Item(append, message_id, [0] * len(deliveries), intent.body, is_body_put=True, is_repeated=True)

    # --- message ids of records that are gone

    def _remember(self, queue: LogQueue, ids: Sequence[bytes]) -> None:
        """Note ids that were written just now, and delete the rows of those that are too old or too many."""
        if not ids:
            return
        now_ms = self._log.now_ms
        known = self._remembered.setdefault(queue.known.queue_id, deque())
        known.extend([(now_ms, message_id) for message_id in ids])
        self._expire_ids(queue, known)

    def _expire_ids(self, queue: LogQueue, known: deque[tuple[int, bytes]]) -> None:
        old: list[Mutation] = []
        while known and (len(known) > IDS_KEPT or known[0][0] < self._log.now_ms - _ID_KEPT_MS):
            old.append(Mutation(remembered_row(queue.key, known.popleft()[1]), {}, (REMEMBERED,)))
        table = self._log.table
        deletes = [calls.mutate_rows(table, part, pin=queue.key) for part in parts(old, _ROWS_AT_ONCE)]
        self._log.caller.call_many(deletes)  # what fails is found at the next claim

    def _forget_ids(self, queue: LogQueue) -> None:
        """Look at all ids that are remembered: hubs before this one may have left old ones."""
        if not queue.meta.remembers:
            return
        prefix = remembered_rows(queue.key)
        scan = Scan(self._log.table, prefix, keys.prefix_end(prefix), (REMEMBERED,), _ROWS_AT_ONCE)
        decoded = [
            (self._log.decoded(queue.known.queue_id, decode_remembered, row.cells[REMEMBERED].value)[1], row.key)
            for row in self._log.caller.scan(scan, _ROWS_AT_ONCE)
        ]
        known = deque((at_ms, key[len(prefix) :]) for at_ms, key in sorted(decoded))
        self._remembered[queue.known.queue_id] = known
        self._expire_ids(queue, known)


class _Moving:
    """Does some moves of one queue. `answers` and `ids` (QoS 2, acknowledged) are those of its last call."""

    def __init__(self, log: QueueLog, moves: Sequence[Move]) -> None:
        self._log = log
        self._moves = moves
        self.answers: list[bool] = []
        self.ids: list[bytes] = []
        self.acknowledged = max((move.value for move in moves if move.kind is MoveKind.ACK), default=0)

    def __call__(self, queue: LogQueue) -> _Step:
        meta = queue.meta
        head = meta.head
        before: list[Call[None]] = []
        self.answers = [move.epoch == meta.epoch for move in self._moves]
        for move, is_valid in zip(self._moves, self.answers, strict=True):
            if is_valid:
                meta = self._moved(queue, meta, move, before)
        noted = self._noted(queue, head, meta.head)
        if noted:
            meta = replace(meta, remembers=True)
            before += [calls.mutate_rows(self._log.table, part, pin=queue.key) for part in parts(noted, _ROWS_AT_ONCE)]
        return meta, before

    def _moved(self, queue: LogQueue, meta: Meta, move: Move, before: list[Call[None]]) -> Meta:
        value = move.value
        if move.kind is MoveKind.ACK:
            return queue.acknowledged(meta, value, self._log.now_ms)
        if move.kind is MoveKind.RELEASE:
            if meta.head < value <= queue.tail and value not in meta.released:
                return replace(meta, released=tuple(sorted((*meta.released, value))))
        elif move.kind is MoveKind.RESERVE:
            if value != meta.reserved:
                return replace(meta, reserved=value)
        elif move.kind is MoveKind.FINISH_INBOUND:
            if value in meta.inbound:
                row = keys.meta_row(queue.key)
                if meta.inbound[value].message_id != _NO_ID:
                    finished = {intent_column(value): FINISHED}
                    before.append(calls.mutate_row(self._log.table, row, finished).pinned(queue.key))
                rest = {packet_id: each for packet_id, each in meta.inbound.items() if packet_id != value}
                return replace(meta, inbound=rest)
        elif value not in meta.inbound or not meta.inbound[value].is_routed:
            return replace(meta, inbound={**meta.inbound, value: Open(True, _NO_ID)})
        return meta

    def _noted(self, queue: LogQueue, head: int, upto: int) -> list[Mutation]:
        """Remember the QoS 2 ids of what is acknowledged now."""
        self.ids = []
        noted = []
        for position, record in queue.stored(head):
            if position > upto:
                break
            if record.message_id:
                self.ids.append(record.message_id)
                cell = encode_remembered(position, self._log.now_ms)
                noted.append(Mutation(remembered_row(queue.key, record.message_id), {REMEMBERED: cell}))
        return noted
