# cython: annotation_typing=False
"""Appends to queues on a server: each message's deliveries, one operation for each queue, and the answers merged again.

Knows rounds and repeats; knows neither bytes nor connections. A driver says how an operation is encoded and sent, and what its outcome means.

Theory: each queue gets one operation with all its records of the batch, named by (writer, sequence). An operation that may have been done
is *open*: its bytes are kept and sent again, and nothing else is sent to its queue before it is answered, so that the server, which remembers
the last sequence of each writer, gives the same answer as the first time. An operation that was not done for certain is taken apart: its
sequence is never used again. A batch is a row of rounds, all operations of one in flight together: most batches need one; a tenant near its
bounds needs more (`room`), and so does a queue whose operation is open. When an operation fails, what the others did is kept with the items of the
batch, and the repeat asks only for the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from iothub.base.errors import BackendError
from iothub.engine.outbox import QueueTarget
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Refused, worst_of
from iothub_services.queues.remote.repeats import Repeats
from iothub_services.queues.remote.room import UNBOUND, TenantRoom
from iothub_services.queues.remote.shares import Item, Operation, Share, item_of, share_of
from iothub_services.queues.remote.tenant import RemoteQueue, Tenant

_GONE = int(Refused.GONE)
_NOBODY = Tenant()


class Index(Protocol):
    """What the rounds need of a driver's index of queues."""

    def get(self, queue_id: int) -> Any: ...

    def find(self, queue_ids: Sequence[int]) -> None: ...

    def forget(self, queue_id: int) -> None: ...


class Ahead(Protocol):
    """What goes out in front of a round, together with it: `asked`, as the driver sends it."""

    asked: list[Any]

    def take(self, outcomes: Sequence[Any]) -> list[BackendError]:
        """Take what became of each; return what was in the way."""


class Rounds:
    """Routes messages into queues. `most`, `most_bytes`: of one operation.

    Invariants: at most one operation of a queue is open; a share is in at most one operation.
    """

    def __init__(self, index: Index, most: int, most_bytes: int) -> None:
        self._index = index
        self._most = most
        self._most_bytes = most_bytes
        self._open: dict[int, Operation] = {}
        self.repeats: Repeats[object, Item] = Repeats(self._forgotten)

    def items(self, batch: Sequence[Append | AppendOperation]) -> list[Item]:
        """Return what is on its way for each message: begun before, or begun now. Inside a group. Raises BackendError."""
        self._find_unknown(batch)
        found = []
        size_bytes = 0
        for op, kept in zip(batch, self.repeats.all_of(batch), strict=True):
            item: Item = self._begun(op) if kept is None else kept
            size_bytes += item.size
            found.append(item)
        self.repeats.begin(batch, found, size_bytes)
        return found

    def route(self, items: Sequence[Item], ahead: Ahead | None = None) -> None:
        """Get every share of these messages its position. Raises BackendError: some may have theirs.

        `ahead` goes out with the first round, or before it: what it takes away may be room that a tenant needs.
        """
        waiting = _waiting(items)
        while waiting or ahead is not None:
            is_alone = ahead is not None and (not waiting or bool(self._rooms(waiting)))
            operations = [] if is_alone else self._round(waiting)
            asked = [] if ahead is None else ahead.asked
            outcomes = self._send(asked, operations)
            errors = [] if ahead is None else ahead.take(outcomes[: len(asked)])
            for at in range(len(operations)):
                error = self._settle(operations[at], outcomes[len(asked) + at])
                if error is not None:
                    errors.append(error)
            if errors:
                raise self._failure(items, errors)
            ahead = None
            waiting = _waiting(waiting)

    def forget(self) -> None:
        """Nobody asks for any of these messages any more. What may have been done of them is left as it is; see `_forgotten`."""
        self.repeats.clear()
        self._open.clear()

    # --- of a driver

    def _new_operation(self, known: RemoteQueue) -> Operation:
        raise NotImplementedError

    def _encode(self, operation: Operation, room: tuple[int, int]) -> None:
        """Make the bytes. `room`: messages and bytes that the tenant has left, -1 for no bound."""
        raise NotImplementedError

    def _send(self, ahead: list[Any], operations: list[Operation]) -> list[Any]:
        """Do what goes ahead, then operations; return what became of each: an error, or whatever `Ahead.take` and `_on_outcome` take."""
        raise NotImplementedError

    def _on_outcome(self, operation: Operation, outcome: Any) -> BackendError | None:
        """Give the shares of an operation what its queue says; return what is wrong with that."""
        raise NotImplementedError

    # --- inside

    def _find_unknown(self, batch: Sequence[Append | AppendOperation]) -> None:
        """Look for queues that this hub has not heard of."""
        index = self._index
        unknown = []
        for op in batch:
            if isinstance(op, AppendOperation):
                operation: AppendOperation = op
                for target in operation.publish.targets:
                    if index.get(target.queue_id) is None:
                        unknown.append(target.queue_id)  # noqa: PERF401 - compiled, this is faster
            else:
                for delivery in op.deliveries:
                    if index.get(delivery.queue_id) is None:
                        unknown.append(delivery.queue_id)  # noqa: PERF401
        if unknown:
            index.find(unknown)

    def _begun(self, op: Append | AppendOperation) -> Item:
        index = self._index
        item = item_of(op)
        shares = item.shares
        if isinstance(op, AppendOperation):
            operation: AppendOperation = op
            for each in operation.publish.targets:
                target: QueueTarget = each
                shares.append(share_of(target, index.get(target.queue_id)))
        else:
            for delivery in op.deliveries:
                shares.append(Share(delivery, index.get(delivery.queue_id)))
        return item

    def _round(self, items: Sequence[Item]) -> list[Operation]:
        """Choose what goes out now: open operations as they are, and one new one for each queue that has none."""
        old: dict[int, Operation] = {}
        new: dict[int, Operation] = {}
        rooms = self._rooms(items)
        for operation in self._open.values() if rooms else ():
            if operation.known.tenant in rooms:  # it may take room: how much is left is known when it is answered
                old[operation.known.queue_id] = operation
                rooms[operation.known.tenant].reserve(len(operation.shares), operation.size_bytes)
        is_any_open = bool(self._open)
        for item in items:
            for share in item.shares:
                known = share.known
                if share.position or known is None:
                    continue
                queue_id = known.queue_id
                if is_any_open and queue_id in self._open:
                    old[queue_id] = self._open[queue_id]
                    continue
                if rooms and known.tenant in rooms and not rooms[known.tenant].admits(queue_id, item.size):
                    continue
                chosen = new.get(queue_id)
                if chosen is None:
                    chosen = new[queue_id] = self._new_operation(known)
                chosen.add_share(item, share, self._most, self._most_bytes)
        for queue_id, operation in new.items():
            room = rooms.get(operation.known.tenant) if rooms else None
            self._encode(operation, UNBOUND if room is None else room.of(queue_id))
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
                    taken[1] += item.size
        if sums:
            for operation in self._open.values():
                if operation.known.tenant in sums:
                    sums[operation.known.tenant][0] += len(operation.shares)
                    sums[operation.known.tenant][1] += operation.size_bytes
        return {tenant: TenantRoom(tenant) for tenant, taken in sums.items() if not tenant.has_room(taken[0], taken[1])}

    def _settle(self, operation: Operation, outcome: Any) -> BackendError | None:
        """Take what became of an operation; return what was in its way."""
        error = outcome if isinstance(outcome, BackendError) else None
        if error is not None and (error.is_written or operation.is_uncertain):
            operation.is_uncertain = True
            return error
        del self._open[operation.known.queue_id]
        return self._on_outcome(operation, outcome) if error is None else error

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

        If it lands nevertheless it is one that was never acknowledged; the server refuses it once a later one was done.
        """
        for share in item.shares:
            operation = None if share.known is None else self._open.get(share.known.queue_id)
            if operation is not None and share in operation.shares:
                operation.alive -= 1
                if not operation.alive:
                    del self._open[operation.known.queue_id]


def as_one(errors: Sequence[BackendError], asked: int) -> list[BackendError]:
    """Return one error for all that were in the way of things that were asked for together; none for none."""
    if not errors:
        return []
    is_written = len(errors) < asked or any(error.is_written for error in errors)
    return [worst_of(errors, is_written=is_written)]


def _waiting(items: Sequence[Item]) -> list[Item]:
    """Return the messages of which a queue has not given the position yet."""
    waiting = []
    for item in items:
        if item.is_waiting():
            waiting.append(item)  # noqa: PERF401 - compiled, this is faster
    return waiting
