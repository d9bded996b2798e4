"""Retained messages that were replayed lately, in memory, so that whoever subscribes next does not read and encode them again.

Knows no store: whoever asks says which version is the right one. One for all tenants, with one bound.
"""

from __future__ import annotations

from collections import OrderedDict

from iothub.engine.message import Message

KEPT_BYTES = 32 << 20
_COPIES = 5  # of a message: itself, and the frames that it may carry


class KeptMessages:
    """At most `bound` bytes; the first that came goes first.

    `owner`: whoever has put it there, renewed when what it has put must not be found any more.
    """

    def __init__(self, bound: int = KEPT_BYTES) -> None:
        self._bound = bound
        self._kept: OrderedDict[tuple[object, bytes], tuple[int, Message]] = OrderedDict()
        self.size_bytes = 0

    def get(self, owner: object, topic: bytes, version: int) -> Message | None:
        """Return the message of this version, if it is here."""
        found = self._kept.get((owner, topic))
        return found[1] if found is not None and found[0] == version else None

    def put(self, owner: object, topic: bytes, version: int, message: Message) -> None:
        """Keep one, in the place of another version."""
        kept = self._kept
        self._forget(kept.pop((owner, topic), None))
        self.size_bytes += _COPIES * message.size
        kept[owner, topic] = version, message
        while self.size_bytes > self._bound:
            self._forget(kept.popitem(last=False)[1])

    def _forget(self, found: tuple[int, Message] | None) -> None:
        if found is not None:
            self.size_bytes -= _COPIES * found[1].size
