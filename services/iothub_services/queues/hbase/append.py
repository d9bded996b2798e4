# cython: annotation_typing=False
"""Appends to queues in HBase: each message's deliveries on their way to their regions, and the answers merged again.

Knows rounds, sequences and repeats; knows neither regions nor bytes of a request.

Theory: each queue gets one operation with all its records of the batch, named by (writer, sequence). An operation that may have been done
is *open*: its bytes are kept and sent again, and nothing else is sent to its queue before it is answered, so that HBase, which remembers
the last sequence of each writer, gives the same answer as the first time. An operation that was not done for certain is taken apart: its
sequence is never used again. A batch is a row of rounds, one call for each region in flight: most batches need one; a tenant near its
bounds needs more (`room`), and so does a queue whose operation is open. When a call fails, what the others did is kept with the
items of the batch, and the repeat asks only for the rest.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records.queued import Intent, reference
from iothub_services.queues.hbase.bodies import FEW, LARGE_BYTES, Bodies, is_apart
from iothub_services.queues.hbase.index import QueueIndex
from iothub_services.queues.hbase.regions import Outcome, Regions
from iothub_services.queues.hbase.requests import Status
from iothub_services.queues.hbase.shares import Heads, Item, Operation, Share
from iothub_services.queues.port import Append, Refused, worst_of
from iothub_services.queues.remote.repeats import Repeats
from iothub_services.queues.remote.room import UNBOUND, TenantRoom
from iothub_services.queues.remote.tenant import Tenant

_GONE = int(Refused.GONE)
_DONE = int(Status.DONE)
_NOBODY = Tenant()


class Appending:
    """Routes messages into queues.

    Invariants: at most one operation of a queue is open; a share is in at most one operation.
    """

    def __init__(
        self, index: QueueIndex, regions: Regions, bodies: Bodies, writer: int, sequence: Iterator[int]
    ) -> None:
        self._index = index
        self._regions = regions
        self._bodies = bodies
        self._writer = writer
        self._sequence = sequence
        self._open: dict[int, Operation] = {}
        self._heads = Heads()
        self._last = 0  # the sequence of the newest call
        self._settled = (1, 1)  # the calls from the first to before the second one: see `settle`
        self.repeats: Repeats[object, Item] = Repeats(self._forgotten)

    def items(self, batch: Sequence[Append]) -> list[Item]:
        """Return what is on its way for each message: begun before, or begun now. Inside a group. Raises BackendError."""
        index = self._index
        unknown = [each.queue_id for op in batch for each in op.deliveries if index.get(each.queue_id) is None]
        if unknown:
            index.find(unknown)
        found = []
        size_bytes = 0
        for op, kept in zip(batch, self.repeats.all_of(batch), strict=True):
            item = self._begun(op) if kept is None else kept
            size_bytes += item.size
            found.append(item)
        self.repeats.begin(batch, found, size_bytes)
        return found

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find([target.queue_id for target in intent.targets])
        body = intent.body
        item = Item(message_id, intent.expires_at_ms, body.stored, body.size)
        item.body_id = body.id
        item.shares = [Share(target, self._index.get(target.queue_id)) for target in intent.targets]
        return item

    def put_bodies(self, items: Sequence[Item]) -> None:
        """Make the bodies durable that are stored apart. Raises BackendError."""
        unput = [item.unput for item in items if item.unput is not None]
        if unput:
            self._bodies.put(unput)
            for item in items:
                item.unput = None

    def route(self, items: Sequence[Item]) -> None:
        """Get every share of these messages its position. Raises BackendError: some may have theirs."""
        self.put_bodies(items)
        waiting = _waiting(items)
        while waiting:
            operations = self._round(waiting)
            outcomes = self._regions.send_steps([operation.step for operation in operations])
            errors = [
                error
                for operation, outcome in zip(operations, outcomes, strict=True)
                if (error := self._settle(operation, outcome)) is not None
            ]
            if errors:
                raise self._failure(items, errors)
            waiting = _waiting(waiting)

    def settle(self, *, is_well: bool) -> None:
        """Say of the QoS 2 messages whose intents are our own whether all of them are routed (`is_well`).

        Then no call so far has an id that comes again. Otherwise some may, by whoever finds their intents open: they stay known until their time
        is over, and those of later calls are settled without them.
        """
        upto = self._last + 1
        self._settled = (self._settled[0] if is_well else upto, upto)

    def forget(self) -> None:
        """Nobody asks for any of these messages any more. What may have been done of them is left as it is; see `_forgotten`."""
        self.repeats.clear()
        self._open.clear()

    # --- inside

    def _begun(self, op: Append) -> Item:
        octets = op.body
        size = len(octets)
        item = Item(op.message_id, op.expires_at_ms, octets, size)
        shares = item.shares
        for delivery in op.deliveries:
            shares.append(Share(delivery, self._index.get(delivery.queue_id)))
        if (size > LARGE_BYTES or len(shares) > FEW) and is_apart(size, len(shares)):
            tenants = {share.known.tenant_id for share in item.shares if share.known is not None}
            if len(tenants) == 1:
                item.body_id = self._bodies.new_id()
                item.stored = reference(item.body_id)
                item.unput = tenants.pop(), item.body_id, octets
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
        most_bytes = self._regions.request_bytes
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
                    chosen = new[queue_id] = Operation(known)
                chosen.add_share(item, share, most_bytes)
        for queue_id, operation in new.items():
            room = rooms.get(operation.known.tenant) if rooms else None
            left = UNBOUND if room is None else room.of(queue_id)
            self._last = next(self._sequence)
            operation.encode_call(self._writer, self._last, left, self._heads, self._settled)
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

    def _settle(self, operation: Operation, outcome: Outcome) -> BackendError | None:
        """Take what became of an operation; return what was in its way."""
        if not isinstance(outcome, BackendError):
            error = self._on_outcome(operation, outcome[0], outcome[1])
        elif outcome.is_written or operation.is_uncertain:
            operation.is_uncertain = True
            return outcome
        else:
            error = outcome
        del self._open[operation.known.queue_id]
        return error

    def _on_outcome(self, operation: Operation, status: int, octets: bytes) -> BackendError | None:
        if status == _DONE:
            try:
                operation.on_answer(octets)
            except (CorruptRecordError, ValueError) as error:
                return BackendError(str(error), retryable=False, is_written=True)
            return None
        if status == Status.GONE:
            self._index.forget(operation.known.queue_id)
            for share in operation.shares:
                share.position = _GONE
            return None
        return BackendError(
            f"queue {operation.known.queue_id} has a later call of this writer (status {status}): "
            "another hub writes under the same incarnation",
            retryable=False,
            is_written=True,
        )

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

        If it lands nevertheless it is one that was never acknowledged; HBase refuses it once a later one was done.
        """
        for share in item.shares:
            operation = None if share.known is None else self._open.get(share.known.queue_id)
            if operation is not None and share in operation.shares:
                operation.alive -= 1
                if not operation.alive:
                    del self._open[operation.known.queue_id]


def _waiting(items: Sequence[Item]) -> list[Item]:
    """Return the messages of which a queue has not given the position yet."""
    waiting = []
    for item in items:
        for share in item.shares:
            if not share.position:
                waiting.append(item)
                break
    return waiting
