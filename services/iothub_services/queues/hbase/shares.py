# cython: annotation_typing=False
"""The one call in which a queue in HBase gets all its shares of a round: its bytes, and what is made of the answer.

Knows the bytes of an append and of its answer by `requests`; knows neither regions nor rounds. Compiled: this runs for every message.
"""

from __future__ import annotations

from iothub.records.queued import record_head
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.index import KnownQueue
from iothub_services.queues.hbase.requests import Step
from iothub_services.queues.remote.shares import Item, Operation, Share


class Heads:
    """Makes what stands before the body of a record. Many records in a row differ only in their bodies: the last head is kept."""

    def __init__(self) -> None:
        self._head = b""
        self._qos = -1
        self._flags = 0
        self._expires_at_ms = 0
        self._size = 0
        self._is_apart = False

    def of(self, item: Item, share: Share) -> bytes:
        """Return the length of a delivery's record, and the record without its body."""
        qos, flags = share.qos, share.flags
        is_apart = item.body_id != b""
        identifiers = share.subscription_ids
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


class AppendCall(Operation):
    """The append to one queue, `step` for the coprocessor. Its bytes are made once."""

    def __init__(self, known: KnownQueue) -> None:
        Operation.__init__(self, known)
        self.step: Step = (b"", b"")

    def encode(self, writer: int, sequence: int, room: tuple[int, int], heads: Heads, settled: tuple[int, int]) -> None:
        """Make the bytes. `settled`: which calls of this writer are; said with those that have something to settle themselves."""
        known: KnownQueue = self.known  # type: ignore[assignment]  # an operation of this driver
        records = []
        is_settled_later = False
        for item, share in zip(self.items, self.shares, strict=True):
            is_settled_later |= item.is_settled_later
            records.append(heads.of(item, share))
            records.append(item.stored)
        said = settled if is_settled_later else None
        self.step = requests.append(known.key, writer, sequence, room, records, said)

    def on_answer(self, octets: bytes) -> None:
        """Give each share what the queue says.

        Raises:
            ValueError: The answer has another number of them.
            CorruptRecordError: It cannot be read.
        """
        messages, size_bytes, first = requests.appended_run(octets, len(self.shares))
        if first:
            self.known.holds(messages, size_bytes)
            self.take_run(first)
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
