"""Messages on their way to queues in Redis, cut into shares, and the one call in which a queue gets all its shares of a round.

Knows what an append says and is answered; knows neither rounds nor connections.
"""

from __future__ import annotations

import re
from enum import IntEnum

from iothub.base.errors import BackendError
from iothub.records.queued import Body, Target
from iothub_services.queues.port import Appended, Delivery, Refused
from iothub_services.queues.redis.index import KnownQueue
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import APPEND, WRITERS_KEPT
from iothub_services.redis.calls import Argument, Call, script_call

MOST_RECORDS = 256  # of one call: other queues wait for its script
MOST_BYTES = 1 << 20

_GONE, _FULL = int(Refused.GONE), int(Refused.FULL)
_LIMITS = ("", "session_queued_messages", "session_queued_bytes", "queued_messages", "queued_bytes")
_RESULT = re.compile(rb"(?P<at>\d+)|f(?P<full>[1-4])|d(?P<record>\d+):(?P<limit>[1-4]):(?P<dropped>[\d,]+)")


class Progress(IntEnum):
    """How far the publisher's side of an inbound QoS 2 message is."""

    NEW = 0
    ASKED = 1  # its intent was sent; it may be there
    INTENDED = 2  # it is there
    ROUTED = 3


class Item:
    """One message on its way."""

    __slots__ = ("answer", "body", "expires_at_ms", "is_settled_later", "message_id", "progress", "shares")

    def __init__(self, message_id: bytes, expires_at_ms: int, body: bytes) -> None:
        self.message_id = message_id
        self.expires_at_ms = expires_at_ms
        self.body = body
        self.shares: list[Share] = []
        self.answer: Appended | None = None
        self.progress = Progress.NEW  # of the publisher's side, if there is one
        self.is_settled_later = False  # its intent is ours alone: nobody appends it again once that is routed

    @property
    def is_waiting(self) -> bool:
        """Has any queue not given the position yet?"""
        return any(not share.position for share in self.shares)

    def answered(self) -> Appended:
        """Return what the port says, once every share is answered."""
        if self.answer is None:
            self.answer = _merged(self.shares)
        return self.answer

    def refuse(self, answer: Appended) -> None:
        """Nothing of it goes to any queue."""
        self.answer = answer
        self.shares = []

    def stored(self) -> Body:
        return Body(self.body, len(self.body))


class Share:
    """One queue's share of a message. `position`: 0 until Redis has answered, then a position or a `Refused`."""

    __slots__ = ("delivery", "dropped", "hits", "known", "position")

    def __init__(self, delivery: Delivery | Target, known: KnownQueue | None) -> None:
        self.delivery = delivery
        self.known = known
        self.position = 0 if known is not None else _GONE
        self.dropped: tuple[int, ...] = ()
        self.hits: tuple[str, ...] = ()


class Operation:
    """What one queue is asked in one round: `shares`, of `items`. `alive`: how many of them may still be asked for.

    Its call is made once, and repeated as it is.
    """

    __slots__ = ("alive", "call", "is_full", "is_uncertain", "items", "known", "shares", "size_bytes", "went_back_to")

    def __init__(self, known: KnownQueue) -> None:
        self.known = known
        self.items: list[Item] = []
        self.shares: list[Share] = []
        self.size_bytes = 0
        self.alive = 0
        self.is_full = False
        self.is_uncertain = False
        self.went_back_to = -1  # where the queue was found, before what it had answered
        self.call = Call(())

    def add_share(self, item: Item, share: Share) -> None:
        """Add a share, unless that would make too large a call; then this and all that follow wait for the next round."""
        size_bytes = self.size_bytes + len(item.body)
        if self.shares and (size_bytes > MOST_BYTES or len(self.shares) >= MOST_RECORDS):
            self.is_full = True
        if not self.is_full:
            self.items.append(item)
            self.shares.append(share)
            self.size_bytes = size_bytes

    def encode_call(self, names: Names, writer: int, sequence: int, now_ms: int, room: tuple[int, int]) -> None:
        """Make the call."""
        self.alive = len(self.shares)
        arguments: list[Argument] = [writer, sequence, now_ms, *room, WRITERS_KEPT, self.known.tail]
        for item, share in zip(self.items, self.shares, strict=True):
            delivery = share.delivery
            identifiers = ",".join(map(str, delivery.subscription_ids)) if delivery.subscription_ids else b""
            message_id = item.message_id if delivery.qos == 2 else b""
            arguments += (delivery.qos, delivery.flags, item.expires_at_ms, identifiers, message_id, item.body)
        self.call = script_call(APPEND, names.keys(self.known.queue_id), *arguments)

    @property
    def earliest_ms(self) -> int:
        """The first deadline among its messages, 0: none has one."""
        return min([item.expires_at_ms for item in self.items if item.expires_at_ms], default=0)

    def on_answer(self, answer: bytes) -> None:
        """Give each share what the queue says. Raises BackendError: that cannot be read."""
        messages, size_bytes, *rest = answer.split(b" ")
        if rest[-1][:1] == b"b":
            self.went_back_to = int(rest.pop()[1:])
        if len(rest) == 1 and rest[0][:1] == b"=":
            first = int(rest[0][1:])
            for position, share in enumerate(self.shares, first):
                share.position = position
        else:
            self._take_results(rest)
        self.known.holds(int(messages), int(size_bytes))
        self.known.tail = max(self.known.tail, *[share.position for share in self.shares])
        if not all(share.position for share in self.shares):
            raise BackendError(
                f"queue {self.known.queue_id} gave no position to a message", retryable=False, is_written=True
            )

    def _take_results(self, words: list[bytes]) -> None:
        shares = iter(self.shares)
        for word in words:
            found = _RESULT.fullmatch(word)
            if found is None:
                raise BackendError(
                    f"queue {self.known.queue_id} answered {word[:100]!r}", retryable=False, is_written=True
                )
            if found["record"]:
                share = self.shares[int(found["record"])]
                share.dropped = tuple(map(int, found["dropped"].split(b",")))
                share.hits += (_LIMITS[int(found["limit"])],) * len(share.dropped)
            elif found["full"]:
                share = next(shares)
                share.position = _FULL
                share.hits += (_LIMITS[int(found["full"])],)
            else:
                next(shares).position = int(found["at"])


def _merged(shares: list[Share]) -> Appended:
    """Return the answer to a message of all its shares'."""
    positions = tuple([share.position for share in shares])
    hits = tuple([hit for share in shares for hit in share.hits])
    if not hits:
        return Appended(positions)
    dropped = tuple([(share.delivery.queue_id, each) for share in shares for each in share.dropped])
    return Appended(positions, dropped=dropped, hit=hits)
