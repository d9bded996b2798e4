# cython: annotation_typing=False
"""The one call in which a queue in Redis gets all its shares of a round: its bytes, and what is made of the answer.

Knows what an append says and is answered, and how a command looks on the wire; knows neither rounds nor connections. Compiled: this runs for
every message.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from iothub.base.errors import BackendError
from iothub_services.queues.port import Refused
from iothub_services.queues.redis.index import KnownQueue
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.scripts import APPEND, WRITERS_KEPT
from iothub_services.queues.remote.shares import Item, Operation, Share
from iothub_services.redis.calls import Call, PackedCall, packed, packed_start

MOST_RECORDS = 256  # of one call: other queues wait for its script
MOST_BYTES = 1 << 20

_FULL = int(Refused.FULL)
_UNMADE = Call(())
_LIMITS = ("", "session_queued_messages", "session_queued_bytes", "queued_messages", "queued_bytes")
_RESULT = re.compile(rb"(?P<at>\d+)|f(?P<full>[1-4])|d(?P<record>\d+):(?P<limit>[1-4]):(?P<dropped>[\d,]+)")
_END = b"\r\n"
_WORDS = Names.count + 7  # keys; what an append says once
_WORDS_OF_RECORD = 6
_SPACE, _RUN, _ZERO, _NINE = b" =09"


class Encoder:
    """Makes the bytes of appends. Many of them differ only in queue, sequence and body: what stands between is kept."""

    def __init__(self, names: Names, writer: int) -> None:
        self._names = names
        self._writer = packed_number(writer)
        self._start = _start(1)
        self._now_ms = -1
        self._room: tuple[int, int] = (0, 0)
        self._said = b""
        self._head = b""
        self._qos = -1
        self._flags = 0
        self._expires_at_ms = 0
        self._size = 0

    def call(self, append: AppendCall, sequence: int, now_ms: int, room: tuple[int, int]) -> Call:
        """Return the call."""
        known: KnownQueue = append.known  # type: ignore[assignment]  # an operation of this driver
        items, shares = append.items, append.shares
        count = len(shares)
        if now_ms != self._now_ms or room != self._room:
            self._now_ms = now_ms
            self._room = room
            self._said = b"".join([packed_number(each) for each in (now_ms, *room, WRITERS_KEPT)])
        parts = [
            self._start if count == 1 else _start(count),
            self._names.packed_keys(known.queue_id),
            self._writer,
            packed_number(sequence),
            self._said,
            packed_number(known.tail),
        ]
        for at in range(count):
            item: Item = items[at]
            parts.append(self._head_of(item, shares[at]))
            parts.append(item.stored)
            parts.append(_END)
        return PackedCall(APPEND, b"".join(parts))

    def _head_of(self, item: Item, share: Share) -> bytes:
        """Return what goes before a record's body."""
        if share.qos == 2 or share.subscription_ids:
            return _head(item, share)
        if (
            share.qos != self._qos
            or item.size != self._size
            or item.expires_at_ms != self._expires_at_ms
            or share.flags != self._flags
        ):
            self._qos = share.qos
            self._flags = share.flags
            self._expires_at_ms = item.expires_at_ms
            self._size = item.size
            self._head = _head(item, share)
        return self._head


class AppendCall(Operation):
    """The append to one queue. Its call is made once, and repeated as it is.

    `went_back_to`: where the queue was found, before what it had answered.
    """

    def __init__(self, known: KnownQueue) -> None:
        Operation.__init__(self, known)
        self.went_back_to = -1
        self.call = _UNMADE

    @property
    def earliest_ms(self) -> int:
        """The first deadline among its messages, 0: none has one."""
        earliest = 0
        for each in self.items:
            item: Item = each
            if item.expires_at_ms and (not earliest or item.expires_at_ms < earliest):
                earliest = item.expires_at_ms
        return earliest

    def on_answer(self, answer: bytes) -> None:
        """Give each share what the queue says. Raises BackendError: that cannot be read."""
        messages, size_bytes, first = run_of(answer)
        known: KnownQueue = self.known  # type: ignore[assignment]  # an operation of this driver
        if first:
            self.take_run(first)
            known.holds(messages, size_bytes)
            known.tail = max(known.tail, first + len(self.shares) - 1)
        else:
            self._on_words(answer.split(b" "))

    def _on_words(self, words: list[bytes]) -> None:
        """Take an answer that is not one run of positions."""
        messages, size_bytes, *rest = words
        if rest[-1][:1] == b"b":
            self.went_back_to = int(rest.pop()[1:])
        if len(rest) == 1 and rest[0][:1] == b"=":
            self.take_run(int(rest[0][1:]))
        else:
            self._take_results(rest)
        known: KnownQueue = self.known  # type: ignore[assignment]
        known.holds(int(messages), int(size_bytes))
        for share in self.shares:
            known.tail = max(known.tail, share.position)
            if not share.position:
                raise BackendError(
                    f"queue {known.queue_id} gave no position to a message", retryable=False, is_written=True
                )

    def _take_results(self, words: Sequence[bytes]) -> None:
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


def run_of(answer: bytes) -> tuple[int, int, int]:
    """Read the usual answer to an append, `MESSAGES BYTES =FIRST`: its three numbers. Position 0: the answer is not that."""
    messages = size_bytes = value = 0
    word = 0
    is_number = False
    for octet in answer:
        if _ZERO <= octet <= _NINE:
            value = value * 10 + octet - _ZERO
            is_number = True
        elif octet == _SPACE and is_number and word < 2:
            messages, size_bytes = size_bytes, value
            value = 0
            word += 1
            is_number = False
        elif octet == _RUN and word == 2 and not is_number:
            word = 3
        else:
            return 0, 0, 0
    if word != 3 or not is_number:
        return 0, 0, 0
    return messages, size_bytes, value


def packed_number(number: int) -> bytes:
    """Return a number as an argument on its way to Redis."""
    digits = f"{number}"
    return f"${len(digits)}\r\n{digits}\r\n".encode()


def _start(records: int) -> bytes:
    return packed_start(APPEND, _WORDS + _WORDS_OF_RECORD * records)


def _head(item: Item, share: Share) -> bytes:
    identifiers = b",".join([b"%d" % each for each in share.subscription_ids])
    message_id = item.message_id if share.qos == 2 else b""
    numbers = [packed_number(share.qos), packed_number(share.flags), packed_number(item.expires_at_ms)]
    return b"".join([*numbers, packed(identifiers), packed(message_id), b"$%d\r\n" % item.size])
