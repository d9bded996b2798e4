# cython: annotation_typing=False
"""Messages on their way to queues in HBase, cut into shares, and the one operation in which a queue gets all its shares of a round.

Knows the bytes of an append and of its answer by `requests`; knows neither regions nor rounds. Compiled: this runs for every message.
"""

from __future__ import annotations

from enum import IntEnum

from iothub.records.queued import Body, Target, record_head
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue
from iothub_services.queues.hbase.requests import Step
from iothub_services.queues.port import Appended, Delivery, Refused

_GONE = int(Refused.GONE)
_new = tuple.__new__


class Progress(IntEnum):
    """How far the publisher's side of an inbound QoS 2 message is."""

    NEW = 0
    ASKED = 1  # its intent was sent; it may be there
    INTENDED = 2  # it is there
    ROUTED = 3


class Item:
    """One message on its way. `stored`: its body, or the reference to it if it is stored apart, under `body_id`.

    A message knows its shares, never the other way round: a circle would keep its body until the garbage collector comes.
    """

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
        self.is_settled_later = False  # its intent is ours alone: nobody appends it again once that is routed

    @property
    def body(self) -> Body:
        return Body(b"", self.size, self.body_id) if self.body_id else Body(self.stored, self.size)

    def answered(self) -> Appended:
        """Return what the port says, once every share is answered."""
        if self.answer is None:
            self.answer = _merged(self.shares)
        return self.answer


class Share:
    """One queue's share of a message. `position`: 0 until HBase has answered, then a position or a `Refused`."""

    def __init__(self, delivery: Delivery | Target, known: KnownQueue | None) -> None:
        self.delivery = delivery
        self.known = known
        self.position = 0 if known is not None else _GONE
        self.dropped: tuple[int, ...] = ()
        self.hits: tuple[str, ...] = ()


class Heads:
    """Makes what stands before the body of a record. Many records in a row differ only in their bodies: the last head is kept."""

    def __init__(self) -> None:
        self._head = b""
        self._qos = -1
        self._flags = 0
        self._expires_at_ms = 0
        self._size = 0
        self._is_apart = False

    def of(self, item: Item, delivery: Delivery | Target) -> bytes:
        """Return the length of a delivery's record, and the record without its body."""
        qos, flags = delivery.qos, delivery.flags
        is_apart = item.body_id != b""
        identifiers = delivery.subscription_ids
        if qos == 2 or identifiers:
            message_id = item.message_id if qos == 2 else b""
            return _sized(qos, flags, identifiers, message_id, item)
        if (
            qos != self._qos
            or item.size != self._size
            or item.expires_at_ms != self._expires_at_ms
            or flags != self._flags
            or is_apart != self._is_apart
        ):
            self._qos = qos
            self._flags = flags
            self._expires_at_ms = item.expires_at_ms
            self._size = item.size
            self._is_apart = is_apart
            self._head = _sized(qos, flags, identifiers, b"", item)
        return self._head


class Operation:
    """What one queue is asked in one round: `shares`, of `items`. `alive`: how many of them may still be asked for. Its bytes are made once."""

    def __init__(self, known: KnownQueue) -> None:
        self.known = known
        self.items: list[Item] = []
        self.shares: list[Share] = []
        self.size_bytes = 0  # what its messages count for in limits
        self.stored_bytes = 0
        self.alive = 0
        self.is_full = False
        self.is_uncertain = False
        self.step: Step = (b"", b"")

    def add_share(self, item: Item, share: Share, most_bytes: int) -> None:
        """Add a share, unless that would make too large a call; then this and all that follow wait for the next round."""
        stored = self.stored_bytes + len(item.stored)
        if self.shares and (stored > most_bytes or len(self.shares) >= requests.MOST_RECORDS):
            self.is_full = True
        if not self.is_full:
            self.items.append(item)
            self.shares.append(share)
            self.stored_bytes = stored
            self.size_bytes += item.size

    def encode_call(
        self, writer: int, sequence: int, room: tuple[int, int], heads: Heads, settled: tuple[int, int]
    ) -> None:
        """Make the bytes. `settled`: which calls of this writer are; said with those that have something to settle themselves."""
        self.alive = len(self.shares)
        records = []
        is_settled_later = False
        for item, share in zip(self.items, self.shares, strict=True):
            is_settled_later |= item.is_settled_later
            records.append(heads.of(item, share.delivery))
            records.append(item.stored)
        said = settled if is_settled_later else None
        self.step = requests.append(self.known.key, writer, sequence, room, records, said)

    def on_answer(self, octets: bytes) -> None:
        """Give each share what the queue says.

        Raises:
            ValueError: The answer has another number of them.
            CorruptRecordError: It cannot be read.
        """
        shares = self.shares
        messages, size_bytes, first = requests.appended_run(octets, len(shares))
        if first:
            self.known.holds(messages, size_bytes)
            for share in shares:
                share.position = first
                first += 1
        else:
            self._on_result(requests.appended(octets))

    def _on_result(self, result: requests.AppendResult) -> None:
        """Take an answer that is not one run of positions."""
        shares = self.shares
        self.known.holds(result.messages, result.size_bytes)
        for share, position in zip(shares, result.positions, strict=True):
            share.position = position
        for at, hit in result.full.items():
            shares[at].hits += (hit,)
        for record, hit, first, length in result.dropped:
            share = shares[record]
            share.dropped += tuple(range(first, first + length))
            share.hits += (hit,) * length


def _sized(qos: int, flags: int, identifiers: tuple[int, ...], message_id: bytes, item: Item) -> bytes:
    is_apart = item.body_id != b""
    head = record_head(
        qos,
        flags,
        identifiers,
        item.expires_at_ms,
        message_id,
        item.size,
        is_apart=is_apart,
        is_settled_later=item.is_settled_later,
    )
    return requests.sized(head, len(item.stored))


def _merged(shares: list[Share]) -> Appended:
    """Return the answer to a message of all its shares'."""
    if len(shares) == 1 and not shares[0].hits:
        return _new(Appended, ((shares[0].position,), False, (), False, ()))  # for nearly every message
    positions = tuple([share.position for share in shares])
    hits = tuple([hit for share in shares for hit in share.hits])
    if not hits:
        return Appended(positions)
    dropped = tuple([(share.delivery.queue_id, each) for share in shares for each in share.dropped])
    return Appended(positions, dropped=dropped, hit=hits)
