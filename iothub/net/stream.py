"""The filters of one client as a chain: socket bytes in, MQTT bytes to the engine, and back.

Knows no particular filter and neither twin. A client without filters has no Stream at all.
"""

from __future__ import annotations

import logging
from typing import Protocol

from iothub.net.filters import Filter, FilterClosed
from iothub.net.ports import Channel
from iothub.reasons import Reason

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18  # encoded ahead at most: the rest stays in `connection.out`, where the engine's limits see it
MAX_REPLY_BYTES = 1 << 16  # a peer that makes a layer talk and never reads


class Door(Protocol):
    """Whom a Stream tells that its filters are through (`iothub.net.acceptor.Acceptor`)."""

    def opened(self, channel: Channel, ip: str, port: int, subject: str | None, /) -> bool: ...


class Stream:
    """A chain of filters, outermost first. Its owner is the channel; it lets go of everything when the channel ends.

    Invariants: bytes that have passed the filters outward are in `_raw` only; the connection is fed only when open.
    """

    __slots__ = ("_channel", "_door", "_filters", "_has_ended", "_ip", "_port", "_raw", "is_open", "subject")

    def __init__(self, channel: Channel, door: Door, filters: list[Filter], ip: str, port: int) -> None:
        self._channel = channel
        self._door = door
        self._filters = filters
        self._ip = ip
        self._port = port
        self._raw = bytearray()
        self._has_ended = False
        self.is_open = False
        self.subject: str | None = None

    def received(self, data: bytes) -> None:
        """Take bytes from the socket. Never raises for anything that a peer can send."""
        if self._has_ended:
            return
        try:
            plain = self._inward(data)
        except FilterClosed as end:
            log.debug("connection ended by a filter", extra={"reason": end.reason.word, "detail": str(end)})
            self._end(end.reason)
            return
        if not self.is_open and all(layer.is_open for layer in self._filters):
            self._open()
        if len(self._raw) > MAX_REPLY_BYTES + CHUNK_BYTES:
            self._end(Reason.SLOW_CONSUMER)
            return
        connection = self._channel.connection
        if plain and connection is not None and not self._has_ended:
            connection.feed(plain)
        if self._raw:
            self._channel.wake()

    def pending(self) -> bytearray:
        connection = self._channel.connection
        if not self._raw and connection is not None and connection.out and not self._has_ended:
            out = connection.out
            chunk = bytes(out[:CHUNK_BYTES])
            del out[: len(chunk)]
            self._outward(len(self._filters), chunk)
        return self._raw

    def farewell(self) -> None:
        if self._has_ended:
            return
        self._has_ended = True
        for depth in range(len(self._filters), 0, -1):
            self._outward(depth - 1, self._filters[depth - 1].farewell())

    def announce(self, ip: str, port: int) -> None:
        """A proxy says who the client is."""
        self._ip = ip
        self._port = port

    def identify(self, subject: str) -> None:
        """A verified certificate says who the client is."""
        self.subject = subject

    def _inward(self, data: bytes) -> bytes:
        for depth, layer in enumerate(self._filters):
            try:
                data = layer.receive(data)
            finally:
                if layer.replies:
                    replies = bytes(layer.replies)
                    layer.replies.clear()
                    self._outward(depth, replies)
            if not data:
                break
        return data

    def _outward(self, depth: int, data: bytes) -> None:
        """Send `data` out through the layers outside of `depth`."""
        for layer in reversed(self._filters[:depth]):
            if not data:
                return
            data = layer.send(data)
        self._raw += data

    def _open(self) -> None:
        self.is_open = True
        if not self._door.opened(self._channel, self._ip, self._port, self.subject):
            self._end(Reason.ADDRESS_DENIED)

    def _end(self, reason: Reason) -> None:
        self.farewell()
        self._channel.fail(reason)
