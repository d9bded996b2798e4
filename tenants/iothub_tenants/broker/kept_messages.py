"""Retained messages that were replayed lately, in memory, so that whoever subscribes next does not read and decode them again.

Knows no store and no topic: an index has the entries, and says which of them count. One for all tenants, with one bound.
"""

from __future__ import annotations

from collections import OrderedDict

from iothub.engine.message import Message
from iothub_services.retained.index import RetainedEntry

KEPT_BYTES = 32 << 20
PLACE_BYTES = 256  # what it takes to have one here, the Client Identifier of its publisher included


class KeptMessages:
    """At most `bound` bytes; the first that came goes first.

    Invariant: it has the entries whose `message` is set, and no others.
    """

    def __init__(self, bound: int = KEPT_BYTES) -> None:
        self._bound = bound
        self._kept: OrderedDict[RetainedEntry, int] = OrderedDict()
        self.size_bytes = 0

    def put(self, entry: RetainedEntry, message: Message) -> None:
        """Keep the message of an entry."""
        self.forget(entry)
        entry.message = message
        self._kept[entry] = size = message.size + PLACE_BYTES
        self.size_bytes += size
        while self.size_bytes > self._bound:
            self.forget(next(iter(self._kept)))

    def forget(self, entry: RetainedEntry) -> None:
        """Keep the message of an entry no longer."""
        entry.message = None
        self.size_bytes -= self._kept.pop(entry, 0)
