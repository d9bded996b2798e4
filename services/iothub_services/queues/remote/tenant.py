# cython: annotation_typing=False
"""What a tenant has stored in all of its queues on a server, and what each queue held, as far as this hub has heard.

Knows no server.
"""

from __future__ import annotations


class Tenant:
    """The sum over a tenant's queues, and its bounds (0: none)."""

    __slots__ = ("bytes", "max_bytes", "max_messages", "messages")

    def __init__(self) -> None:
        self.messages = 0
        self.bytes = 0
        self.max_messages = 0
        self.max_bytes = 0

    def has_room(self, messages: int, size_bytes: int) -> bool:
        """Do this many more fit, for certain?"""
        return (not self.max_messages or self.messages + messages <= self.max_messages) and (
            not self.max_bytes or self.bytes + size_bytes <= self.max_bytes
        )


class RemoteQueue:
    """One queue, and what it held when its server last answered. Each driver has a class of its own, with what it needs beside that."""

    __slots__ = ("bytes", "messages", "queue_id", "tenant", "tenant_id")

    def __init__(self, queue_id: int, tenant_id: int, tenant: Tenant) -> None:
        self.queue_id = queue_id
        self.tenant_id = tenant_id
        self.tenant = tenant
        self.messages = 0
        self.bytes = 0

    def holds(self, messages: int, size_bytes: int) -> None:
        """Store what the server answered; only the writing thread may."""
        tenant = self.tenant
        tenant.messages += messages - self.messages
        tenant.bytes += size_bytes - self.bytes
        self.messages = messages
        self.bytes = size_bytes
