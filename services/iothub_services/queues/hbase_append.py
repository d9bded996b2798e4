"""Appends to queues in HBase: each message's deliveries on their way to their regions, and the answers merged again.

Knows rounds, sequences and repeats; knows neither regions nor bytes of a request.

Theory: each queue gets one operation with all its records of the batch, named by (writer, sequence). An operation that may have been done
is *open*: its bytes are kept and sent again, and nothing else is sent to its queue before it is answered, so that HBase, which remembers
the last sequence of each writer, tells what it told the first time. An operation that was not done for certain is taken apart: its
sequence is never used again. A batch is a row of rounds, one call for each region in flight: most batches need one; a tenant near its
bounds needs more (`hbase_room`), and so does a queue whose operation is open. When a call fails, what the others did is kept with the
items of the batch, and the repeat asks for the rest alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from iothub.errors import BackendError, CorruptRecordError
from iothub.records.queued import Body, Intent, Target, encode_record
from iothub_services.queues import hbase_requests as requests
from iothub_services.queues.hbase_bodies import Bodies, is_apart
from iothub_services.queues.hbase_index import KnownQueue, QueueIndex, Tenant
from iothub_services.queues.hbase_moves import problem
from iothub_services.queues.hbase_regions import REQUEST_BYTES, Outcome, Regions
from iothub_services.queues.hbase_repeats import Repeats
from iothub_services.queues.hbase_requests import AppendTold, Status, Step, Told
from iothub_services.queues.hbase_room import UNBOUND, TenantRoom
from iothub_services.queues.port import Append, Appended, Delivery, Refused

_GONE = int(Refused.GONE)


class Share:
    """One queue's share of a message. `position`: 0 until HBase has told, then a position or a `Refused`."""

    __slots__ = ("delivery", "dropped", "hits", "item", "known", "position")

    def __init__(self, item: Item, delivery: Delivery | Target, known: KnownQueue | None) -> None:
        self.item = item
        self.delivery = delivery
        self.known = known
        self.position = 0 if known is not None else _GONE
        self.dropped: tuple[int, ...] = ()
        self.hits: tuple[str, ...] = ()

    def record(self) -> bytes:
        item, delivery = self.item, self.delivery
        message_id = item.message_id if delivery.qos == 2 else b""
        return encode_record(
            delivery.qos, delivery.flags, delivery.subscription_ids, item.expires_at_ms, message_id, item.body
        )


class Item:
    """One message on its way. `unput`: its body, stored apart, is not durable yet."""

    __slots__ = (
        "answer",
        "body",
        "expires_at_ms",
        "is_asked",
        "is_intended",
        "is_routed",
        "message_id",
        "shares",
        "unput",
    )

    def __init__(self, message_id: bytes, expires_at_ms: int, body: Body) -> None:
        self.message_id = message_id
        self.expires_at_ms = expires_at_ms
        self.body = body
        self.shares: list[Share] = []
        self.unput: tuple[int, bytes, bytes] | None = None
        self.answer: Appended | None = None
        self.is_asked = False  # the publisher's intent was sent; it may be there
        self.is_intended = False  # it is there
        self.is_routed = False

    def answered(self) -> Appended:
        """Return what the port says, once every share is answered."""
        if self.answer is None:
            shares = self.shares
            self.answer = Appended(
                tuple([share.position for share in shares]),
                dropped=tuple([(share.delivery.queue_id, each) for share in shares for each in share.dropped]),
                hit=tuple([hit for share in shares for hit in share.hits]),
            )
        return self.answer


class _Operation:
    """What one queue is asked in one round. `alive`: so many of its shares may still be asked for."""

    __slots__ = ("alive", "is_uncertain", "known", "shares", "step")

    def __init__(self, known: KnownQueue, step: Step, shares: Sequence[Share]) -> None:
        self.known = known
        self.step = step
        self.shares = shares
        self.alive = len(shares)
        self.is_uncertain = False

    @property
    def size_bytes(self) -> int:
        """What its messages count for in limits."""
        return sum(share.item.body.size for share in self.shares)


class _Chosen:
    """The shares of one queue in one round, before they are an operation."""

    __slots__ = ("bytes", "is_full", "known", "shares")

    def __init__(self, known: KnownQueue) -> None:
        self.known = known
        self.shares: list[Share] = []
        self.bytes = 0
        self.is_full = False

    def takes(self, share: Share) -> bool:
        """Add a share, unless that would make too large a call; then this and all that follow wait for the next round."""
        self.bytes += len(share.item.body.octets)
        if self.shares and (self.bytes > REQUEST_BYTES or len(self.shares) == requests.MOST_RECORDS):
            self.is_full = True
        if not self.is_full:
            self.shares.append(share)
        return not self.is_full


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
        self._open: dict[int, _Operation] = {}
        self.repeats: Repeats[object, Item] = Repeats(self._forgotten)

    def items(self, batch: Sequence[Append]) -> list[Item]:
        """Return what is on its way for each message: begun before, or begun now. Raises BackendError."""
        get = self._index.get
        missing = [each.queue_id for op in batch for each in op.deliveries if get(each.queue_id) is None]
        if missing:
            self._index.find(missing)
        found = []
        for op in batch:
            item = self.repeats.get(op)
            if item is None:
                item = self._begun(op)
                self.repeats.keep(op, item, len(op.body))
            found.append(item)
        return found

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find(target.queue_id for target in intent.targets)
        item = Item(message_id, intent.expires_at_ms, intent.body)
        item.shares = [Share(item, target, self._index.get(target.queue_id)) for target in intent.targets]
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
        shares = [share for item in items for share in item.shares if not share.position]
        while shares:
            operations = self._round(shares)
            outcomes = self._regions.send([operation.step for operation in operations])
            errors = [
                error
                for operation, outcome in zip(operations, outcomes, strict=True)
                if (error := self._settle(operation, outcome)) is not None
            ]
            if errors:
                raise self._failure(items, errors)
            shares = [share for share in shares if not share.position]

    # --- inside

    def _begun(self, op: Append) -> Item:
        octets = op.body
        size = len(octets)
        item = Item(op.message_id, op.expires_at_ms, Body(octets, size))
        get = self._index.get
        item.shares = [Share(item, delivery, get(delivery.queue_id)) for delivery in op.deliveries]
        if is_apart(size, len(item.shares)):
            tenants = {share.known.tenant_id for share in item.shares if share.known is not None}
            if len(tenants) == 1:
                item.body = Body(b"", size, self._bodies.new_id())
                item.unput = tenants.pop(), item.body.id, octets
        return item

    def _round(self, shares: Sequence[Share]) -> list[_Operation]:
        """Choose what goes out now: open operations as they are, and one new one for each queue that has none."""
        operations: dict[int, _Operation] = {}
        chosen: dict[int, _Chosen] = {}
        rooms = self._rooms(shares)
        for operation in self._open.values():
            if operation.known.tenant in rooms:  # it may take room: not before it is answered is known how much is left
                operations[operation.known.queue_id] = operation
                rooms[operation.known.tenant].reserve(len(operation.shares), operation.size_bytes)
        for share in shares:
            known = share.known
            if known is None:
                continue
            queue_id = known.queue_id
            waiting = self._open.get(queue_id)
            if waiting is not None:
                operations[queue_id] = waiting
                continue
            tenant = known.tenant
            if rooms and tenant in rooms and not rooms[tenant].admits(queue_id, share.item.body.size):
                continue
            taken = chosen.get(queue_id)
            if taken is None:
                taken = chosen[queue_id] = _Chosen(known)
            taken.takes(share)
        new = [self._made(taken, rooms.get(taken.known.tenant)) for taken in chosen.values()]
        return [*operations.values(), *new]

    def _rooms(self, shares: Sequence[Share]) -> dict[Tenant, TenantRoom]:
        """Return the room of each tenant of these messages that has bounds."""
        tenants = {share.known.tenant for share in shares if share.known is not None}
        return {tenant: TenantRoom(tenant) for tenant in tenants if tenant.max_messages or tenant.max_bytes}

    def _made(self, chosen: _Chosen, room: TenantRoom | None) -> _Operation:
        known, shares = chosen.known, chosen.shares
        left = UNBOUND if room is None else room.of(known.queue_id)
        records = [share.record() for share in shares]
        step = requests.append(known.key, self._writer, next(self._sequence), left, records)
        operation = self._open[known.queue_id] = _Operation(known, step, shares)
        return operation

    def _settle(self, operation: _Operation, outcome: Outcome) -> BackendError | None:
        """Take what became of an operation; return what was in its way."""
        error = problem(outcome)
        if error is None and isinstance(outcome, Told):
            error = self._told(operation, outcome)
        elif error is not None and isinstance(outcome, BackendError):
            operation.is_uncertain |= error.is_written
            if operation.is_uncertain:
                return error
        del self._open[operation.known.queue_id]
        return error

    def _told(self, operation: _Operation, told: Told) -> BackendError | None:
        if told.status == Status.DONE:
            try:
                _fill(operation, requests.appended(told.octets))
            except (CorruptRecordError, ValueError) as error:
                return BackendError(str(error), retryable=False, is_written=True)
        elif told.status == Status.GONE:
            self._index.forget(operation.known.queue_id)
            for share in operation.shares:
                share.position = _GONE
        else:
            return BackendError(
                f"queue {operation.known.queue_id} has a later call of this writer (status {told.status}): "
                "another hub writes under the same incarnation",
                retryable=False,
                is_written=True,
            )
        return None

    def _failure(self, items: Sequence[Item], errors: Sequence[BackendError]) -> BackendError:
        """Return one error for the batch: of several one that will not pass by itself, so that the batch is taken apart."""
        worst = min(errors, key=lambda error: error.retryable)
        is_written = any(error.is_written for error in errors) or any(
            share.position > 0 or (share.known is not None and share.known.queue_id in self._open)
            for item in items
            for share in item.shares
        )
        return BackendError(str(worst), retryable=worst.retryable, is_written=is_written)

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


def _fill(operation: _Operation, told: AppendTold) -> None:
    """Give each share its position. Raises ValueError: the answer has another number of them."""
    operation.known.holds(told.messages, told.size_bytes)
    shares = operation.shares
    for share, position in zip(shares, told.positions, strict=True):
        share.position = position
    for at, hit in told.full.items():
        shares[at].hits += (hit,)
    for record, hit, first, length in told.dropped:
        share = shares[record]
        share.dropped += tuple(range(first, first + length))
        share.hits += (hit,) * length
