"""The listener of links: TCP with mutual TLS, plain TCP on loopback, or a Unix socket that only this user may use.

Knows no frame: whoever has shown a certificate of the installation, or came where none is needed, becomes a wire; the links look at what it says.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from iothub.base.errors import UnavailableError
from iothub.base.reasons import WireRefusal
from iothub.net.cidr import peer_name, plain_ip
from iothub.net.listener_info import ListenerInfo
from iothub.net.listeners import DelayedCall
from iothub.net.ports import Channel
from iothub.net.sockets import set_client_options
from iothub.peers.addresses import UnixPath, parse_address, through_directory
from iothub.peers.ports import Wire, WireOwner
from iothub.peers.tls import Handshake, LinkTls
from iothub.peers.wire import PeerConnection

NAME = "cluster"
MOST_CONNECTIONS = 1024  # open ones: many more than hubs, so that a stranger who opens some keeps no hub out
HANDSHAKE_S = 10.0
_ACCEPTS_PER_EVENT = 16
_BACKLOG = 128


class Later(Protocol):
    """The part of a reactor that is used."""

    def callLater(self, delay: float, callable: Callable[[], None]) -> DelayedCall: ...  # noqa: N802


class OnRefused(Protocol):
    """Gets a connection that did not become a wire."""

    def __call__(self, address: str, refusal: WireRefusal, detail: str, /) -> None: ...


class LinkAcceptor:
    """Fulfils `iothub.net.ports.ChannelAcceptor`. On the reactor thread. Invariant: `connections` is the number of open sockets that were let in."""

    def __init__(
        self,
        server: ssl.SSLContext | None,
        reactor: Later,
        owner_of: Callable[[Wire], WireOwner],
        on_refused: OnRefused,
    ) -> None:
        """`server`: None: no TLS."""
        self.listener = ListenerInfo(NAME)
        self.connections = 0
        self._server = server
        self._reactor = reactor
        self._owner_of = owner_of
        self._on_refused = on_refused
        self._handshakes: dict[Channel, tuple[Handshake, DelayedCall]] = {}

    def allowance(self) -> int:
        return _ACCEPTS_PER_EVENT

    def accepted(self, channel: Channel, ip: str, port: int) -> bool:
        address = peer_name(plain_ip(ip), port) if ip else "unix"
        if self.connections >= MOST_CONNECTIONS:
            self._on_refused(address, WireRefusal.TOO_MANY, f"{self.connections} connections are open")
            return False
        self.connections += 1
        if self._server is None:
            self._open(channel, address, None)
        else:
            self._shake(channel, self._server, address)
        return True

    def shed(self, ip: str, port: int) -> None:
        self._on_refused(peer_name(plain_ip(ip), port), WireRefusal.TOO_MANY, "no file descriptor is free")

    def released(self, channel: Channel) -> None:
        self.connections -= 1
        handshake = self._end_of(channel)
        if handshake is not None:
            handshake.refuse(WireRefusal.CLOSED, "closed during the TLS handshake")

    def use(self, server: ssl.SSLContext | None) -> None:
        """Handshakes that begin from now on are made with another certificate."""
        self._server = server

    def close(self) -> None:
        """Wait for no handshake any more."""
        for channel in list(self._handshakes):
            self._end_of(channel)
            channel.close(abort=True)

    def _shake(self, channel: Channel, server: ssl.SSLContext, address: str) -> None:
        def on_open(tls: LinkTls) -> bool:
            self._end_of(channel)
            if tls.node is None:
                self._on_refused(address, WireRefusal.CERTIFICATE_OF_ANOTHER_NODE, "the certificate is for no node")
                return False
            self._open(channel, address, tls)
            return True

        def on_refused(refusal: WireRefusal, detail: str) -> None:
            self._on_refused(address, refusal, detail)

        def on_timeout() -> None:
            self._end_of(channel)
            handshake.refuse(WireRefusal.TIMEOUT, f"no TLS handshake within {HANDSHAKE_S:g} s")
            channel.close(abort=True)

        handshake = Handshake(channel, server, on_open, on_refused, is_server=True)
        self._handshakes[channel] = handshake, self._reactor.callLater(HANDSHAKE_S, on_timeout)

    def _end_of(self, channel: Channel) -> Handshake | None:
        handshake, deadline = self._handshakes.pop(channel, (None, None))
        if deadline is not None and deadline.active():
            deadline.cancel()
        return handshake

    def _open(self, channel: Channel, address: str, tls: LinkTls | None) -> None:
        wire = PeerConnection(channel, address, tls)
        channel.connection = wire
        wire.belong_to(self._owner_of(wire))


def open_listening(address: str) -> socket.socket:
    """Bind and listen. Raises UnavailableError."""
    place = parse_address(address)
    if isinstance(place, UnixPath):
        return _open_unix(place.path)
    family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listening.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0 if place.host == "::" else 1)
        listening.bind((place.host, place.port))
        set_client_options(listening)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise UnavailableError(_why_not(address, error)) from None
    return listening


def _open_unix(path: Path) -> socket.socket:
    """Make a socket that only this user may connect to: its mode is set before it listens."""
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        path.unlink(missing_ok=True)  # of a hub that was killed
        with through_directory(path) as short:
            listening.bind(short)
            os.chmod(short, 0o600)
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise UnavailableError(_why_not(f"unix:{path}", error)) from None
    return listening


def _why_not(address: str, error: OSError) -> str:
    place = f"cluster.listen: cannot use {address}"
    match error.errno:
        case errno.EADDRINUSE:
            return f"{place}: the port is in use; stop the other program or choose another port"
        case errno.EADDRNOTAVAIL:
            return f"{place}: this machine does not have that address"
        case _:
            return f"{place}: {error.strerror or error}"
