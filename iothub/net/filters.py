"""What a byte filter is: one layer between a socket and the MQTT byte stream, without any I/O of its own.

Knows no sockets and no plane; `iothub.net.stream` drives a chain of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from iothub.base.reasons import Reason


class FilterClosed(Exception):  # noqa: N818 - an end, not always an error
    """This layer ends the connection. Its last bytes for the peer are in `replies`; `data` came before the end and is processed.

    The text is for the log at debug level and holds nothing that the peer sent.
    """

    def __init__(self, reason: Reason, text: str, data: bytes = b"") -> None:
        super().__init__(text)
        self.reason = reason
        self.data = data


@dataclass(slots=True)
class ClientFacts:
    """Who the client is: the socket's peer, until a proxy or a certificate knows better.

    `subject`: a whole subject, or "=" and the common name (`iothub.base.distinguished_names`).
    """

    ip: str
    port: int
    subject: str | None = None


class Filter(Protocol):
    """One layer. `replies` collects bytes that the layer itself sends outward (handshake, pong, close)."""

    is_open: bool  # the layer's handshake is over: bytes pass in both directions
    replies: bytearray

    def receive(self, data: bytes) -> bytes:
        """Take bytes from the outer side, give those for the inner side.

        Raises:
            FilterClosed: the layer ends the connection.
        """

    def send(self, data: bytes) -> bytes:
        """Take bytes from the inner side, give those for the outer side."""

    def final_bytes(self) -> bytes:
        """Return what this layer sends outward before an orderly close (close frame, close_notify)."""
