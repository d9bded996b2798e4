"""Appends to queues in HBase: each message's deliveries on their way to their regions, and the answers merged again.

Knows rounds, sequences and repeats; knows neither regions nor bytes of a request.

Theory: each queue gets one operation with all its records of the batch, named by (writer, sequence). An operation that may have been done
is *open*: its bytes are kept and sent again, and nothing else is sent to its queue before it is answered, so that HBase, which remembers
the last sequence of each writer, tells what it told the first time. An operation that was not done for certain is taken apart: its
sequence is never used again. A batch is a row of rounds, one call for each region in flight: most batches need one; a tenant near its
bounds needs more (`room`), and so does a queue whose operation is open. When a call fails, what the others did is kept with the
items of the batch, and the repeat asks for the rest alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import IntEnum

from iothub.errors import BackendError, CorruptRecordError
from iothub.records.queued import Body, Intent, Target, record_head, reference
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.bodies import Bodies, is_apart
from iothub_services.queues.hbase.index import KnownQueue, QueueIndex, Tenant
from iothub_services.queues.hbase.moves import problem
from iothub_services.queues.hbase.regions import Outcome, Regions
from iothub_services.queues.hbase.repeats import Repeats
from iothub_services.queues.hbase.requests import Status, Step
from iothub_services.queues.hbase.room import UNBOUND, TenantRoom
from iothub_services.queues.port import Append, Appended, Delivery, Refused

_GONE = int(Refused.GONE)
_DONE = int(Status.DONE)
_NOBODY = Tenant()


class Progress(IntEnum):
    """How far the publisher's side of an inbound QoS 2 message is."""

    NEW = 0
    ASKED = 1  # its intent was sent; it may be there
    INTENDED = 2  # it is there
    ROUTED = 3


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

    def record(self) -> tuple[bytes, bytes]:
        """Return the record, its body apart: it is copied once less so."""
        item, delivery = self.item, self.delivery
        qos = delivery.qos
        message_id = item.message_id if qos == 2 else b""
        identifiers, expires_at_ms = delivery.subscription_ids, item.expires_at_ms
        is_apart = item.body_id != b""
        head = record_head(qos, delivery.flags, identifiers, expires_at_ms, message_id, item.size, is_apart=is_apart)
        return head, item.stored


class Item:
    """One message on its way. `stored`: its body, or the reference to it if it is stored apart, under `body_id`."""

    __slots__ = ("answer", "body_id", "expires_at_ms", "message_id", "progress", "shares", "size", "stored", "unput")

    def __init__(self, message_id: bytes, expires_at_ms: int, stored: bytes, size: int) -> None:
        self.message_id = message_id
        self.expires_at_ms = expires_at_ms
        self.stored = stored
        self.size = size
        self.body_id = b""
        self.shares: list[Share] = []
        self.unput: tuple[int, bytes, bytes] | None = None  # a body that is not durable yet
        self.answer: Appended | None = None
        self.progress = Progress.NEW  # of the publisher's side, if there is one

    @property
    def body(self) -> Body:
        return Body(b"", self.size, self.body_id) if self.body_id else Body(self.stored, self.size)

    def answered(self) -> Appended:
        """Return what the port says, once every share is answered."""
        answer = self.answer
        if answer is None:
            shares = self.shares
            positions = tuple([share.position for share in shares])
            if len(shares) == 1 and not shares[0].hits:
                answer = Appended(positions)
            elif any(share.hits for share in shares):
                dropped = tuple([(share.delivery.queue_id, each) for share in shares for each in share.dropped])
                answer = Appended(
                    positions, False, dropped, False, tuple([hit for share in shares for hit in share.hits])
                )
            else:
                answer = Appended(positions)
            self.answer = answer
        return answer


class _Operation:
    """What one queue is asked in one round. Its bytes are made once; `alive`: so many of its shares may still be asked for."""

    __slots__ = ("alive", "is_full", "is_uncertain", "known", "shares", "size_bytes", "step", "stored_bytes")

    def __init__(self, known: KnownQueue) -> None:
        self.known = known
        self.shares: list[Share] = []
        self.size_bytes = 0  # what its messages count for in limits
        self.stored_bytes = 0
        self.alive = 0
        self.is_full = False
        self.is_uncertain = False
        self.step: Step = (b"", b"")

    def take(self, share: Share, most_bytes: int) -> None:
        """Add a share, unless that would make too large a call; then this and all that follow wait for the next round."""
        item = share.item
        stored = self.stored_bytes + len(item.stored)
        if self.shares and (stored > most_bytes or len(self.shares) == requests.MOST_RECORDS):
            self.is_full = True
        if not self.is_full:
            self.shares.append(share)
            self.stored_bytes = stored
            self.size_bytes += item.size

    def seal(self, writer: int, sequence: int, room: tuple[int, int]) -> None:
        """Make the bytes."""
        self.alive = len(self.shares)
        self.step = requests.append(self.known.key, writer, sequence, room, [share.record() for share in self.shares])


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
        """Return what is on its way for each message: begun before, or begun now. Inside a group. Raises BackendError."""
        self._index.find([each.queue_id for op in batch for each in op.deliveries])
        found = [
            self._begun(op) if item is None else item
            for op, item in zip(batch, self.repeats.all_of(batch), strict=True)
        ]
        self.repeats.begin(batch, found, sum([item.size for item in found]))
        return found

    def intended(self, message_id: bytes, intent: Intent) -> Item:
        """Return the message of an intent that somebody else has left open. Raises BackendError."""
        self._index.find(target.queue_id for target in intent.targets)
        body = intent.body
        item = Item(message_id, intent.expires_at_ms, body.stored, body.size)
        item.body_id = body.id
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
        self.put_bodies(items)
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

    def forget(self) -> None:
        """Nobody asks for any of these messages any more. What may have been done of them is left as it is; see `_forgotten`."""
        self.repeats.clear()
        self._open.clear()

    # --- inside

    def _begun(self, op: Append) -> Item:
        octets = op.body
        size = len(octets)
        item = Item(op.message_id, op.expires_at_ms, octets, size)
        get = self._index.get
        item.shares = [Share(item, delivery, get(delivery.queue_id)) for delivery in op.deliveries]
        if is_apart(size, len(item.shares)):
            tenants = {share.known.tenant_id for share in item.shares if share.known is not None}
            if len(tenants) == 1:
                item.body_id = self._bodies.new_id()
                item.stored = reference(item.body_id)
                item.unput = tenants.pop(), item.body_id, octets
        return item

    def _round(self, shares: Sequence[Share]) -> list[_Operation]:
        """Choose what goes out now: open operations as they are, and one new one for each queue that has none."""
        old: dict[int, _Operation] = {}
        new: dict[int, _Operation] = {}
        rooms = self._rooms(shares)
        for operation in self._open.values() if rooms else ():
            if operation.known.tenant in rooms:  # it may take room: how much is left is known when it is answered
                old[operation.known.queue_id] = operation
                rooms[operation.known.tenant].reserve(len(operation.shares), operation.size_bytes)
        is_any_open = bool(self._open)
        most_bytes = self._regions.request_bytes
        for share in shares:
            known = share.known
            if known is None:
                continue
            queue_id = known.queue_id
            if is_any_open and queue_id in self._open:
                old[queue_id] = self._open[queue_id]
                continue
            if rooms and known.tenant in rooms and not rooms[known.tenant].admits(queue_id, share.item.size):
                continue
            chosen = new.get(queue_id)
            if chosen is None:
                chosen = new[queue_id] = _Operation(known)
            chosen.take(share, most_bytes)
        for queue_id, operation in new.items():
            room = rooms.get(operation.known.tenant) if rooms else None
            left = UNBOUND if room is None else room.of(queue_id)
            operation.seal(self._writer, next(self._sequence), left)
        self._open.update(new)
        return [*old.values(), *new.values()]

    def _rooms(self, shares: Sequence[Share]) -> dict[Tenant, TenantRoom]:
        """Return the room of each tenant whose messages may not all fit."""
        sums: dict[Tenant, list[int]] = {}
        for share in shares:
            tenant = share.known.tenant if share.known is not None else _NOBODY
            if tenant.max_messages or tenant.max_bytes:
                taken = sums.setdefault(tenant, [0, 0])
                taken[0] += 1
                taken[1] += share.item.size
        if sums:
            for operation in self._open.values():
                if operation.known.tenant in sums:
                    sums[operation.known.tenant][0] += len(operation.shares)
                    sums[operation.known.tenant][1] += operation.size_bytes
        return {tenant: TenantRoom(tenant) for tenant, taken in sums.items() if not tenant.has_room(*taken)}

    def _settle(self, operation: _Operation, outcome: Outcome) -> BackendError | None:
        """Take what became of an operation; return what was in its way."""
        if not isinstance(outcome, BackendError):
            error = self._told(operation, *outcome)
        elif outcome.is_written or operation.is_uncertain:
            operation.is_uncertain = True
            return outcome
        else:
            error = outcome
        del self._open[operation.known.queue_id]
        return error

    def _told(self, operation: _Operation, status: int, octets: bytes) -> BackendError | None:
        if status == _DONE:
            try:
                _fill(operation, octets)
            except (CorruptRecordError, ValueError) as error:
                return BackendError(str(error), retryable=False, is_written=True)
            return None
        if status == Status.GONE:
            self._index.forget(operation.known.queue_id)
            for share in operation.shares:
                share.position = _GONE
            return None
        return problem((status, octets)) or BackendError(
            f"queue {operation.known.queue_id} has a later call of this writer (status {status}): "
            "another hub writes under the same incarnation",
            retryable=False,
            is_written=True,
        )

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


def _fill(operation: _Operation, octets: bytes) -> None:
    """Give each share its position.

    Raises:
        ValueError: The answer has another number of them.
        CorruptRecordError: It cannot be read.
    """
    shares = operation.shares
    if len(shares) == 1:
        messages, size_bytes, position = requests.appended_one(octets)
        if position:
            operation.known.holds(messages, size_bytes)
            shares[0].position = position
            return
    told = requests.appended(octets)
    operation.known.holds(told.messages, told.size_bytes)
    for share, position in zip(shares, told.positions, strict=True):
        share.position = position
    for at, hit in told.full.items():
        shares[at].hits += (hit,)
    for record, hit, first, length in told.dropped:
        share = shares[record]
        share.dropped += tuple(range(first, first + length))
        share.hits += (hit,) * length
