# cython: annotation_typing=False
"""The keys of queues in Redis: those of one queue, all with its id for a hash tag, and those that all queues share.

Knows no value.
"""

from __future__ import annotations

from iothub_services.redis.calls import packed

# What follows `PREFIX:queue:{ID}:`, in the order in which every script gets them as KEYS:
#   m  hash: tenant, tail, head, epoch, counters, limits ...    e  sorted set: position by deadline, of records that expire
#   r  stream: the records, entry `POSITION-0`                  z  sorted set: positions of records with QoS 0
#   d  hash: message id (QoS 2) -> position                     w  hash: writer -> its last call and what it was answered
#   k  sorted set: message ids of records that are              p  sorted set: positions above the head whose PUBREC was seen
#      acknowledged, by when (ms)                               i  hash: Packet Identifier -> inbound QoS 2 message
_MOST_DIGITS = 20  # of an id of 64 bits
_SUFFIXES = (b"m", b"r", b"d", b"k", b"e", b"z", b"w", b"p", b"i")


class Names:
    """All keys below one prefix. `count`: of those of one queue."""

    count = len(_SUFFIXES)

    __slots__ = ("_packed", "_queue", "_tenant", "due", "life", "owner", "probe", "tenants")

    def __init__(self, prefix: str) -> None:
        start = prefix.encode()
        self._queue = start + b":queue:{"
        self._tenant = start + b":queues:of:"
        self.tenants = start + b":queues:tenants"  # set: tenants that may have queues
        self.due = start + b":queues:due"  # sorted set: queues by when to look for what has expired (ms)
        self.life = start + b":queues:life"  # a word that goes when everything goes
        self.owner = start + b":queues:owner"  # whose they are (`iothub.records.owner`)
        self.probe = start + b":queues:probe"
        self._packed = [self._parts_of_packed(digits) for digits in range(_MOST_DIGITS + 1)]

    def meta(self, queue_id: int) -> bytes:
        return b"%b%d}:m" % (self._queue, queue_id)

    def keys(self, queue_id: int) -> list[bytes]:
        """Return all keys of a queue."""
        base = b"%b%d}:" % (self._queue, queue_id)
        return [base + suffix for suffix in _SUFFIXES]

    def packed_keys(self, queue_id: int) -> bytes:
        """Return how many keys a queue has, and all of them, as arguments of a command on their way to Redis."""
        digits = f"{queue_id}".encode()
        return digits.join(self._packed[len(digits)])

    def _parts_of_packed(self, digits: int) -> list[bytes]:
        """Return what stands between the ids in the keys of a queue whose id has so many digits."""
        size = len(self._queue) + digits + len(b"}:m")
        starts = [b"\r\n$%d\r\n%b" % (size, self._queue)] * len(_SUFFIXES)
        ends = [b"", *[b"}:" + suffix for suffix in _SUFFIXES]]
        starts[0] = packed(b"%d" % self.count).removesuffix(b"\r\n") + starts[0]
        return [end + start for end, start in zip(ends, [*starts, b"\r\n"], strict=True)]

    def inbound(self, queue_id: int) -> bytes:
        return b"%b%d}:i" % (self._queue, queue_id)

    def ids(self, queue_id: int) -> tuple[bytes, bytes]:
        """Return the keys of the message ids that are known, and of those of them whose records are gone."""
        base = b"%b%d}:" % (self._queue, queue_id)
        return base + b"d", base + b"k"

    def due_in(self, queue_id: int) -> bytes:
        return b"%b%d}:e" % (self._queue, queue_id)

    def of_tenant(self, tenant_id: int) -> bytes:
        """Set: the tenant's queues."""
        return b"%b%d" % (self._tenant, tenant_id)
