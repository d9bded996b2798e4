"""Which messages of a batch a tenant has room for, when its queues are in many regions and no region knows the others.

Knows sums and bounds; knows no request.

Theory: what fits for certain, whatever the queues do with it, goes out at once, side by side. The first message that may not fit waits
until those before it are answered, and the sum is known again; so refusals fall on the same messages as with one writer and one file.
When nothing goes before it, it is sent with the room that there is, and with it all that follow and do not fit either, each with no more
than its share: a tenant at its limit costs one round, not one for each message. A queue that drops to make room may then drop a message
more than it must; the sum never goes above the bound.
"""

from __future__ import annotations

from iothub_services.queues.remote.tenant import Tenant

UNBOUND = (-1, -1)

_PLENTY = 1 << 62


class TenantRoom:
    """One tenant's room during one round.

    Invariant: what is handed out is never more than what is left.
    """

    __slots__ = ("_bytes", "_first", "_given", "_is_closed", "_is_over", "_messages", "_taken_bytes", "_taken_messages")

    def __init__(self, tenant: Tenant) -> None:
        self._messages = max(tenant.max_messages - tenant.messages, 0) if tenant.max_messages else _PLENTY
        self._bytes = max(tenant.max_bytes - tenant.bytes, 0) if tenant.max_bytes else _PLENTY
        self._taken_messages = 0
        self._taken_bytes = 0
        self._is_over = False  # this round is for messages that do not fit
        self._is_closed = False  # what comes now waits for the next round
        self._first = 0
        self._given: dict[int, tuple[int, int]] = {}  # queue -> room, in a round for what does not fit

    def reserve(self, messages: int, size_bytes: int) -> None:
        """Something goes out in this round as it is: it may take so much."""
        self._taken_messages += messages
        self._taken_bytes += size_bytes

    def admits(self, queue_id: int, size: int) -> bool:
        """Does this message go out in this round? Ask in the order of the batch."""
        if self._is_closed:
            return False
        if not self._is_over:
            if self._taken_messages < self._messages and self._taken_bytes + size <= self._bytes:
                self._taken_messages += 1
                self._taken_bytes += size
                return True
            if self._taken_messages:
                self._is_closed = True
                return False
            self._is_over = True
            self._first = queue_id
        if self._messages and size <= self._bytes:
            self._is_closed = True  # it would fit alone: its turn is when those before it are answered
            return False
        self._give(queue_id, size)
        return True

    def of(self, queue_id: int) -> tuple[int, int]:
        """Return the room that goes with one queue's messages of this round."""
        messages, size_bytes = self._given.get(queue_id, (0, 0)) if self._is_over else (self._messages, self._bytes)
        return (
            -1 if self._messages == _PLENTY else messages,
            -1 if self._bytes == _PLENTY else size_bytes,
        )

    def _give(self, queue_id: int, size: int) -> None:
        messages, size_bytes = self._given.get(queue_id, (0, 0))
        if self._messages:  # it is too large: one queue gets the bytes that there are
            if self._taken_messages < self._messages:
                self._taken_messages += 1
                messages += 1
            size_bytes = self._bytes if queue_id == self._first else 0
        else:
            given = min(size, self._bytes - self._taken_bytes)
            self._taken_bytes += given
            size_bytes += given
        self._given[queue_id] = messages, size_bytes
