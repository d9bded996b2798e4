# cython: annotation_typing=False
"""Messages on their way to queues on a server, cut into shares, and what one queue is asked in one round: all its shares of that round.

Knows what the port and the writer hand over; knows neither rounds nor bytes of a request. Compiled: this runs for every message.
"""

from __future__ import annotations

from enum import IntEnum

from iothub.engine.outbox import QueueTarget
from iothub.records.queued import Body, Target
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Delivery, Refused
from iothub_services.queues.remote.tenant import RemoteQueue

_GONE = int(Refused.GONE)
_new = tuple.__new__


class Progress(IntEnum):
    """How far the publisher's side of an inbound QoS 2 message is."""

    NEW = 0
    ASKED = 1  # its intent was sent; it may be there
    INTENDED = 2  # it is there
    ROUTED = 3


_PROGRESS_NEW = Progress.NEW


class Share:
    """One queue's share of a message. `position`: 0 until the server has answered, then a position or a `Refused`. `known`: None if it is gone."""

    def __init__(self, delivery: Delivery | Target, known: RemoteQueue | None) -> None:
        self.queue_id = delivery.queue_id
        self.qos = delivery.qos
        self.flags = delivery.flags
        self.subscription_ids = delivery.subscription_ids
        self.known = known
        self.position = 0 if known is not None else _GONE
        self.dropped: tuple[int, ...] = ()
        self.hits: tuple[str, ...] = ()


def share_of(target: QueueTarget, known: RemoteQueue | None) -> Share:
    """Return the share of a target of the message plane."""
    share: Share = Share.__new__(Share)
    share.queue_id = target.queue_id
    share.qos = target.qos
    share.flags = target.flags()
    share.subscription_ids = target.identifiers
    share.known = known
    share.position = 0 if known is not None else _GONE
    share.dropped = ()
    share.hits = ()
    return share


class Item:
    """One message on its way. `stored`: its body, or the reference to it if it is stored apart, under `body_id`.

    A message knows its shares, never the other way round: a circle would keep its body until the garbage collector comes.
    """

    def __init__(self, message_id: bytes, expires_at_ms: int, stored: bytes, size: int) -> None:
        self.set(message_id, expires_at_ms, stored, size)

    def set(self, message_id: bytes, expires_at_ms: int, stored: bytes, size: int) -> None:
        """The constructor, for one that is compiled."""
        self.message_id = message_id
        self.expires_at_ms = expires_at_ms
        self.stored = stored
        self.size = size
        self.body_id = b""
        self.shares: list[Share] = []
        self.unput: tuple[int, bytes, bytes] | None = None  # a body that is not durable yet
        self.answer: Appended | None = None
        self.progress = _PROGRESS_NEW  # of the publisher's side, if there is one
        self.is_settled_later = False  # its intent is ours alone: nobody appends it again once that is routed

    @property
    def body(self) -> Body:
        return Body(b"", self.size, self.body_id) if self.body_id else Body(self.stored, self.size)

    def is_waiting(self) -> bool:
        """Has any queue not given the position yet?"""
        for share in self.shares:  # noqa: SIM110 - compiled, this is faster
            if not share.position:
                return True
        return False

    def answered(self) -> Appended:
        """Return what the port says, once every share is answered."""
        if self.answer is None:
            self.answer = _merged(self.shares)
        return self.answer

    def answer_of_operation(self) -> Appended | tuple[int, ...]:
        """The same for the writer: positions alone where there is nothing else to say."""
        shares = self.shares
        if self.answer is None and len(shares) == 1 and not shares[0].hits:
            return (shares[0].position,)  # for nearly every message
        return self.answered()

    def refuse(self, answer: Appended) -> None:
        """Nothing of it goes to any queue."""
        self.answer = answer
        self.shares = []


def item_of(op: Append | AppendOperation) -> Item:
    """Return a message as it begins, without shares."""
    item: Item = Item.__new__(Item)
    if isinstance(op, AppendOperation):
        operation: AppendOperation = op
        expires_at = operation.publish.message.expires_at
        item.set(operation.message_id, int(expires_at * 1000) if expires_at else 0, operation.body, len(operation.body))
    else:
        item.set(op.message_id, op.expires_at_ms, op.body, len(op.body))
    return item


class Operation:
    """What one queue is asked in one round: `shares`, of `items`. `alive`: how many of them may still be asked for.

    Each driver has a class of its own, with the bytes, which are made once and repeated as they are.
    """

    def __init__(self, known: RemoteQueue) -> None:
        self.known = known
        self.items: list[Item] = []
        self.shares: list[Share] = []
        self.size_bytes = 0  # what its messages count for in limits
        self.stored_bytes = 0
        self.alive = 0
        self.is_full = False
        self.is_uncertain = False

    def add_share(self, item: Item, share: Share, most: int, most_bytes: int) -> None:
        """Add a share, unless that would make too large a call; then this and all that follow wait for the next round."""
        stored = self.stored_bytes + len(item.stored)
        if self.shares and (stored > most_bytes or len(self.shares) >= most):
            self.is_full = True
        if not self.is_full:
            self.items.append(item)
            self.shares.append(share)
            self.stored_bytes = stored
            self.size_bytes += item.size
            self.alive += 1

    def take_run(self, first: int) -> None:
        """Give each share its position: one after another from the first."""
        for share in self.shares:
            share.position = first
            first += 1

    def refuse_all(self, refused: int) -> None:
        """Give each share the same refusal."""
        for share in self.shares:
            share.position = refused


def _merged(shares: list[Share]) -> Appended:
    """Return the answer to a message of all its shares'."""
    if len(shares) == 1 and not shares[0].hits:
        return _new(Appended, ((shares[0].position,), False, (), False, ()))  # for nearly every message
    positions = tuple([share.position for share in shares])
    hits = tuple([hit for share in shares for hit in share.hits])
    if not hits:
        return Appended(positions)
    dropped = tuple([(share.queue_id, each) for share in shares for each in share.dropped])
    return Appended(positions, dropped=dropped, hit=hits)
