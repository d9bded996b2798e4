"""Appends to queues in Redis: each message's deliveries, one script for each queue, and the answers merged again.

Knows rounds, sequences and repeats; knows no Lua and no connection.

Theory: each queue gets one call with all its records of the batch, named by (writer, sequence). A call that may have been done is *open*: it is
kept and sent again as it was, and nothing else is sent to its queue before it is answered, so that Redis, which remembers the last sequence of
each writer, gives the same answer as the first time. A call that was not done for certain is taken apart: its sequence is never used again. Most
batches are one pipeline; a tenant near its bounds needs more rounds (`room`), and so does a queue whose call is open. When one fails, what the
others did is kept with the items of the batch, and the repeat asks only for the rest. Between queues there is no transaction.

Invariant: a position that this hub knows of is never issued again, not even when an older copy replaces the server. Each call names the last
position that the hub knows, and the queue continues after it; else a new message would look acknowledged. What was acknowledged and is missing
is lost; `on_back` is called.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import cast

from iothub.base.clock import Clock
from iothub.base.errors import BackendError
from iothub.records.queued import Intent
from iothub_services.queues.port import Append, Refused, worst_of
from iothub_services.queues.redis.index import QueueIndex
from iothub_services.queues.redis.messages import Item, Operation, Share
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.sending import GONE, Sender
from iothub_services.queues.remote.repeats import Repeats
from iothub_services.queues.remote.room import UNBOUND, TenantRoom
from iothub_services.queues.remote.tenant import Tenant
from iothub_services.redis.calls import Argument, Call, Reply, command

_GONE = int(Refused.GONE)
_EXACTLY_ONCE = 2
_NOBODY = Tenant()


class Appending:
    """Routes messages into queues.

    Invariants: at most one operation of a queue is open; a share is in at most one operation.
    """

    def __init__(
        self,
        index: QueueIndex,
        sender: Sender,
        names: Names,
        clock: Clock,
        writer: int,
        sequence: Iterator[int],
        on_back: Callable[[str], None] | None = None,
    ) -> None:
        self._index = index
        self._sender = sender
        self._names = names
        self._clock = clock
        self._writer = writer
        self._sequence = sequence
        self._open: dict[int, Operation] = {}
        self._hints: dict[int, int] = {}  # queue -> first deadline, not written to Redis yet
        self._settled: dict[int, list[bytes]] = {}  # queue -> message ids that it need not know any more
        self.repeats: Repeats[Append, Item] = Repeats(self._forgotten)
        self._has_missed = False
        self._on_back = on_back

    def items(self, batch: Sequence[Append]) -> list[Item]:
        """Return what is on its way for each message: begun before, or begun now. Inside a group. Raises BackendError."""
        self._index.find(each.queue_id for op in batch for each in op.deliveries)
        found = [
            self._begun(op) if kept is None else kept
            for op, kept in zip(batch, self.repeats.all_of(batch), strict=True)
        ]
        self.repeats.begin(batch, found, sum([len(op.body) for op in batch]))
        return found

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find(target.queue_id for target in intent.targets)
        item = Item(message_id, intent.expires_at_ms, intent.body.octets)
        item.shares = [Share(target, self._index.get(target.queue_id)) for target in intent.targets]
        return item

    def route(self, items: Sequence[Item]) -> None:
        """Get every share of these messages its position. Raises BackendError: some may have theirs."""
        waiting = [item for item in items if item.is_waiting]
        while waiting:
            operations = self._round(waiting)
            outcomes = self._send(operations)
            errors = [
                error
                for operation, outcome in zip(operations, outcomes, strict=True)
                if (error := self._settle(operation, outcome)) is not None
            ]
            if errors:
                raise self._failure(items, errors)
            waiting = [item for item in waiting if item.is_waiting]

    def settle(self, item: Item) -> None:
        """The message's intent is routed: if nobody but us had it, no queue is asked for its message id again.

        The next call to Redis says so. If this hub ends or that call fails, Redis forgets the message id when its time is over.
        """
        if item.is_settled_later:
            for share in item.shares:
                if share.delivery.qos == _EXACTLY_ONCE and share.position > 0:
                    self._settled.setdefault(share.delivery.queue_id, []).append(item.message_id)

    def forget(self) -> None:
        """Nobody asks for any of these messages any more. What may have been done of them is left as it is; see `_forgotten`."""
        self.repeats.clear()
        self._open.clear()

    def has_missed(self) -> bool:
        """Was a queue that this hub knew not there, since somebody asked?"""
        missed, self._has_missed = self._has_missed, False
        return missed

    # --- inside

    def _begun(self, op: Append) -> Item:
        item = Item(op.message_id, op.expires_at_ms, op.body)
        index = self._index
        item.shares = [Share(delivery, index.get(delivery.queue_id)) for delivery in op.deliveries]
        return item

    def _send(self, operations: Sequence[Operation]) -> list[Reply]:
        """Send what queues are asked and, behind it, by when to look for what has expired."""
        for operation in operations:
            earliest_ms = operation.earliest_ms
            if earliest_ms:
                queue_id = operation.known.queue_id
                self._hints[queue_id] = min(earliest_ms, self._hints.get(queue_id, earliest_ms))
        calls = [operation.call for operation in operations]
        hinting = self._hinting()
        outcomes = self._sender.write([*calls, *hinting, *self._settling()])
        if not isinstance(outcomes[len(calls) + len(hinting) - 1], BackendError):
            self._hints.clear()
        return outcomes[: len(calls)]

    def _hinting(self) -> list[Call]:
        if not self._hints:
            return []
        pairs: list[Argument] = []
        for queue_id, earliest_ms in self._hints.items():
            pairs += (earliest_ms, queue_id)
        return [command("ZADD", self._names.due, "LT", *pairs)]

    def _settling(self) -> Iterator[Call]:
        """Say which ids are settled. In this order: an id that is known and in no list of those that grow old would never be forgotten."""
        for queue_id, message_ids in self._settled.items():
            ids, remembered = self._names.ids(queue_id)
            yield command("HDEL", ids, *message_ids)
            yield command("ZREM", remembered, *message_ids)
        self._settled = {}

    def _round(self, items: Sequence[Item]) -> list[Operation]:
        """Choose what goes out now: open operations as they are, and one new one for each queue that has none."""
        old: dict[int, Operation] = {}
        new: dict[int, Operation] = {}
        rooms = self._rooms(items)
        for operation in self._open.values() if rooms else ():
            if operation.known.tenant in rooms:  # it may take room: how much is left is known when it is answered
                old[operation.known.queue_id] = operation
                rooms[operation.known.tenant].reserve(len(operation.shares), operation.size_bytes)
        for item in items:
            for share in item.shares:
                known = share.known
                if share.position or known is None:
                    continue
                queue_id = known.queue_id
                if queue_id in self._open:
                    old[queue_id] = self._open[queue_id]
                elif known.tenant not in rooms or rooms[known.tenant].admits(queue_id, len(item.body)):
                    new.setdefault(queue_id, Operation(known)).add_share(item, share)
        now_ms = int(self._clock.wall() * 1000)
        for queue_id, operation in new.items():
            room = rooms.get(operation.known.tenant)
            left = UNBOUND if room is None else room.of(queue_id)
            operation.encode_call(self._names, self._writer, next(self._sequence), now_ms, left)
        self._open.update(new)
        return [*old.values(), *new.values()]

    def _rooms(self, items: Sequence[Item]) -> dict[Tenant, TenantRoom]:
        """Return the room of each tenant whose messages may not all fit."""
        sums: dict[Tenant, list[int]] = {}
        for item in items:
            for share in item.shares:
                tenant = share.known.tenant if share.known is not None else _NOBODY
                if (tenant.max_messages or tenant.max_bytes) and not share.position:
                    taken = sums.setdefault(tenant, [0, 0])
                    taken[0] += 1
                    taken[1] += len(item.body)
        if sums:
            for operation in self._open.values():
                if operation.known.tenant in sums:
                    sums[operation.known.tenant][0] += len(operation.shares)
                    sums[operation.known.tenant][1] += operation.size_bytes
        return {tenant: TenantRoom(tenant) for tenant, taken in sums.items() if not tenant.has_room(taken[0], taken[1])}

    def _settle(self, operation: Operation, outcome: Reply) -> BackendError | None:
        """Take what became of an operation; return what was in its way."""
        queue_id = operation.known.queue_id
        outcome = self._sender.of_queue(queue_id, outcome)
        error = outcome if isinstance(outcome, BackendError) else None
        if error is not None and (error.is_written or operation.is_uncertain):
            operation.is_uncertain = True
            return error
        del self._open[queue_id]
        if error is None:
            error = self._on_answer(operation, cast("bytes", outcome))
        return error

    def _on_answer(self, operation: Operation, answer: bytes) -> BackendError | None:
        queue_id = operation.known.queue_id
        if answer == GONE:
            self._has_missed = True
            self._index.forget(queue_id)
            for share in operation.shares:
                share.position = _GONE
            return None
        if answer == b"late":
            return BackendError(
                f"queue {queue_id} has a later call of this writer: another hub writes under the same incarnation",
                retryable=False,
                is_written=True,
            )
        try:
            operation.on_answer(answer)
        except BackendError as error:
            return error
        if operation.went_back_to >= 0 and self._on_back is not None:
            self._on_back(
                f"Redis went back to an older state (fail-over, or a file that was restored): queue {queue_id} stood at position "
                f"{operation.went_back_to}, and had given later ones; what was acknowledged meanwhile is lost, in other queues perhaps, too"
            )
        return None

    def _failure(self, items: Sequence[Item], errors: Sequence[BackendError]) -> BackendError:
        """Return one error for the batch."""
        is_written = any(error.is_written for error in errors) or any(self._is_begun(item) for item in items)
        return worst_of(errors, is_written=is_written)

    def _is_begun(self, item: Item) -> bool:
        """Has any queue this message already, or perhaps?"""
        return any(
            share.position > 0 or (share.known is not None and share.known.queue_id in self._open)
            for share in item.shares
        )

    def _forgotten(self, item: Item) -> None:
        """Nobody will ask for this message again: an operation that has no other is not repeated any more.

        If it lands nevertheless it is one that was never acknowledged; Redis refuses it once a later one was done.
        """
        for share in item.shares:
            operation = None if share.known is None else self._open.get(share.known.queue_id)
            if operation is not None and share in operation.shares:
                operation.alive -= 1
                if not operation.alive:
                    del self._open[operation.known.queue_id]
