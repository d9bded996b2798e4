"""The filters of one client as a chain: socket bytes in, MQTT bytes to the engine, and back.

Knows no particular filter and neither twin. A client without filters has no Stream at all.
"""

from __future__ import annotations

import logging
from typing import Protocol

from iothub.base.reasons import Reason
from iothub.net.filters import ClientFacts, Filter, FilterClosed
from iothub.net.ports import Channel

log = logging.getLogger(__name__)

CHUNK_BYTES = 1 << 18  # encoded ahead at most: the rest stays in `connection.out`, where the engine's limits see it
MAX_RAW_BYTES = CHUNK_BYTES + (1 << 16)  # beyond it: a peer that makes a layer talk and never reads


class StreamOwner(Protocol):
    """What a Stream notifies when its filters are through, or have failed (`iothub.net.acceptor.Acceptor`)."""

    def opened(self, channel: Channel, client: ClientFacts, /) -> bool: ...

    def failed(self, client: ClientFacts, reason: Reason, text: str, /) -> None: ...


class Stream:
    """A chain of filters, outermost first.

    Invariants: bytes that have passed the filters outward are in `_raw` only; the connection is fed only when open;
    `_raw` holds at most one chunk with its wrapping, and a bounded number of replies.
    """

    __slots__ = ("_channel", "_client", "_filters", "_has_ended", "_owner", "_raw", "is_open")

    def __init__(self, channel: Channel, owner: StreamOwner, filters: list[Filter], client: ClientFacts) -> None:
        self._channel = channel
        self._owner = owner
        self._filters = filters
        self._client = client
        self._raw = bytearray()
        self._has_ended = False
        self.is_open = False

    @property
    def unsent(self) -> int:
        return len(self._raw)

    def received(self, data: bytes) -> None:
        """Take bytes from the socket. Never raises for anything that a peer can send."""
        if self._has_ended:
            return
        plain, end = self._inward(data)
        if not self.is_open and all(layer.is_open for layer in self._filters):
            self._open()
        connection = self._channel.connection
        if plain and connection is not None and not self._has_ended:
            connection.feed(plain)
        if end is not None:
            log.debug("connection ended by a filter", extra={"reason": end.reason.word, "detail": str(end)})
            if not self.is_open:
                self._owner.failed(self._client, end.reason, str(end))
            self._end(end.reason)
        elif len(self._raw) > MAX_RAW_BYTES:
            self._end(Reason.SLOW_CONSUMER)
        if self._raw:
            self._channel.wake()

    def pending(self) -> bytearray:
        """Give what waits for the socket; wraps the next chunk of the connection's output only when the last one is gone."""
        connection = self._channel.connection
        if not self._raw and connection is not None and not self._has_ended:
            out = connection.out
            if out:
                chunk = bytes(out) if len(out) <= CHUNK_BYTES else bytes(out[:CHUNK_BYTES])
                del out[: len(chunk)]
                self._outward(len(self._filters), chunk)
        return self._raw

    def add_final_bytes(self) -> None:
        """Put each layer's final bytes into `pending()`, innermost first. Idempotent."""
        if self._has_ended:
            return
        self._has_ended = True
        for depth in range(len(self._filters) - 1, -1, -1):
            self._outward(depth, self._filters[depth].final_bytes())

    def time_out(self) -> None:
        """The handshakes took too long; the channel closes."""
        if not self.is_open and not self._has_ended:
            self._owner.failed(self._client, Reason.CONNECT_TIMEOUT, "handshake not finished in time")

    def _inward(self, data: bytes) -> tuple[bytes, FilterClosed | None]:
        end: FilterClosed | None = None
        for depth, layer in enumerate(self._filters):
            try:
                data = layer.receive(data)
            except FilterClosed as closed:
                data = closed.data
                end = end or closed
            if layer.replies:
                replies = bytes(layer.replies)
                layer.replies.clear()
                self._outward(depth, replies)
            if not data:
                break
        return data, end

    def _outward(self, depth: int, data: bytes) -> None:
        """Send `data` out through the layers outside of `depth`."""
        for layer in reversed(self._filters[:depth]):
            if not data:
                return
            data = layer.send(data)
        self._raw += data

    def _open(self) -> None:
        self.is_open = True
        if not self._owner.opened(self._channel, self._client):
            self._end(Reason.ADDRESS_DENIED)

    def _end(self, reason: Reason) -> None:
        self.add_final_bytes()
        self._channel.fail(reason)
