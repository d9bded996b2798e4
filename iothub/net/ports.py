"""What the transports ask of the message plane and of each other, as Protocols.

Knows no sockets and no MQTT: an engine connection is a thing that takes bytes and has bytes to send.
"""

from __future__ import annotations

import socket
from typing import Protocol

from iothub.base.reasons import Reason
from iothub.net.listener_info import ListenerInfo


class EngineConnection(Protocol):
    """The engine's half of one client: `out` waits to be written, `session` is None until CONNECT has succeeded.

    `partial`: what was read and is not parsed yet.
    """

    @property
    def out(self) -> bytearray: ...

    @property
    def partial(self) -> bytearray | None: ...

    @property
    def session(self) -> object | None: ...

    def feed(self, data: bytes, /) -> None: ...

    def lost(self, reason: Reason, /) -> None: ...


class EnginePlane(Protocol):
    """The part of `iothub.engine.plane.Plane` that transports use."""

    def accept(
        self, transport: Channel, listener: ListenerInfo, peer: str, certificate_subject: str | None, /
    ) -> EngineConnection | None: ...

    def close(self, connection: EngineConnection, reason: Reason, /) -> None: ...

    def is_routing(self) -> bool: ...

    def unwritten(self) -> int: ...

    def end_batch(self) -> None: ...

    def tick(self) -> None: ...


class ByteStream(Protocol):
    """The filters of one client (`iothub.net.stream.Stream`), as a channel sees them."""

    is_open: bool

    @property
    def unsent(self) -> int:
        """How many bytes `pending` would give now, without those of the connection that no filter has wrapped yet."""

    def received(self, data: bytes, /) -> None:
        """Take bytes from the socket; feeds the connection, answers through `pending()`, may close the channel."""

    def pending(self) -> bytearray:
        """Bytes for the socket; the channel removes what it has written and asks again until nothing is there."""

    def add_final_bytes(self) -> None:
        """Put what belongs before an orderly close (close frame, close_notify) into `pending()`. Idempotent."""

    def time_out(self) -> None:
        """The handshakes took too long; the channel closes."""


class Channel(Protocol):
    """One client's socket in either twin: the engine's Transport, plus what the acceptor and the filters need."""

    connection: EngineConnection | None
    stream: ByteStream | None

    def wake(self) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def close(self, *, abort: bool = False, drains: bool = False) -> None: ...

    def fail(self, reason: Reason, /) -> None:
        """Close from the transport's side: flush, then `connection.lost(reason)`."""


class ChannelAcceptor(Protocol):
    """Who accepts one listener's clients (`iothub.net.acceptor.Acceptor`), as the twins see it."""

    listener: ListenerInfo

    def allowance(self) -> int:
        """How many clients may be accepted now (accept rate); 0: ask again at the next tick."""

    def accepted(self, channel: Channel, ip: str, port: int, /) -> bool:
        """Accept a client; False: close its socket at once."""

    def shed(self, ip: str, port: int, /) -> None:
        """A client was closed because no descriptor was free to accept it with."""

    def released(self, channel: Channel, /) -> None:
        """The socket of an accepted client is closed; called exactly once."""


class Transports(Protocol):
    """One twin: all sockets of this process. Fulfilled by `PollerTransports` and `TwistedTransports`."""

    def listen(self, listening: socket.socket, acceptor: ChannelAcceptor) -> None:
        """Accept clients from a bound, listening socket; takes ownership of it."""

    def adopt(self, connected: socket.socket, acceptor: ChannelAcceptor) -> None:
        """Serve a non-blocking socket that this process has connected; takes ownership of it.

        `acceptor.accepted` is called before this returns, with no address: it knows whom it has dialled.
        """

    def stop_accepting(self, acceptor: ChannelAcceptor) -> None:
        """Close the listening sockets of an acceptor; its clients stay."""

    def tick(self) -> None:
        """Every 100 ms: the plane's tick, lingering closes, accepts that were put off."""

    def close(self) -> None:
        """Reset every client and free every descriptor."""

    def counters(self) -> dict[str, int]: ...
