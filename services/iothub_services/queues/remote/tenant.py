# cython: annotation_typing=False
"""What a tenant has stored in all of its queues on a server, as far as this hub has heard.

Knows no queue and no server.
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
