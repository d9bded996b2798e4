"""When a queue of driver `hbase-plain` is full, and what its policy drops then.

Knows sums and known rows; knows no connection. The sums are those that this hub has heard of: with several hubs at one queue they are
approximate.
"""

from __future__ import annotations

from iothub_services.queues.hbase_plain.queue import LogQueue
from iothub_services.queues.port import Overflow


def full(queue: LogQueue, size: int) -> str:
    """Name the limit that one more message of `size` bytes would break, "" if there is room."""
    limits, tenant = queue.meta.limits, queue.known.tenant
    if limits.messages and queue.messages >= limits.messages:
        return "session_queued_messages"
    if limits.bytes and queue.size_bytes + size > limits.bytes:
        return "session_queued_bytes"
    if tenant.max_messages and tenant.messages >= tenant.max_messages:
        return "queued_messages"
    if tenant.max_bytes and tenant.bytes + size > tenant.max_bytes:
        return "queued_bytes"
    return ""


def may_drop(queue: LogQueue) -> bool:
    """Does the policy drop anything at all that may be there?"""
    overflow = queue.meta.limits.overflow
    return overflow is Overflow.DROP_OLDEST or (overflow is Overflow.DROP_QOS0_FIRST and queue.qos0 > 0)


def victims(queue: LogQueue, size: int) -> list[int]:
    """Return what the policy drops so that `size` bytes fit, the oldest first; nothing if that is not enough.

    What may have been sent already (up to `reserved`) is spared (!). All rows of the queue are known.
    """
    limits, tenant, meta = queue.meta.limits, queue.known.tenant, queue.meta
    is_any = limits.overflow is Overflow.DROP_OLDEST
    messages = max(_over(queue.messages + 1, limits.messages), _over(tenant.messages + 1, tenant.max_messages))
    size_bytes = max(_over(queue.size_bytes + size, limits.bytes), _over(tenant.bytes + size, tenant.max_bytes))
    found: list[int] = []
    for position, record in queue.stored(max(meta.head, meta.reserved)):
        if messages <= 0 and size_bytes <= 0:
            break
        if is_any or not record.qos:
            found.append(position)
            messages -= 1
            size_bytes -= record.size
    return found if messages <= 0 and size_bytes <= 0 else []


def _over(value: int, limit: int) -> int:
    return value - limit if limit else 0
