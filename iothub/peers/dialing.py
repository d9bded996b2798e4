"""Connections to other hubs: names are resolved in a thread, connects do not block, and the certificate must be the dialled node's.

Knows no frame. One dial makes one wire or says, once and later than `dial` returns, why not.
"""

from __future__ import annotations

import errno
import os
import socket
import ssl
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Protocol

from twisted.internet.defer import Deferred
from twisted.internet.interfaces import IWriteDescriptor
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.base.errors import ConfigError, IotHubError, UnavailableError
from iothub.base.reasons import WireRefusal
from iothub.base.units import Endpoint
from iothub.net.cidr import parse_ip
from iothub.net.listener_info import ListenerInfo
from iothub.net.listeners import DelayedCall
from iothub.net.ports import Channel, Transports
from iothub.net.sockets import set_client_options
from iothub.peers.addresses import UnixPath, parse_address, through_directory
from iothub.peers.links import CONNECT_S
from iothub.peers.listening import NAME, Later
from iothub.peers.ports import PeerAddress, Wire, WireOwner
from iothub.peers.tls import Handshake, LinkTls
from iothub.peers.wire import PeerConnection
from iothub_services.auth.port import Run

RESOLVE = "links.resolve"

OwnerOf = Callable[[Wire], WireOwner]
Target = tuple[socket.AddressFamily, object]
"""What `socket.connect` takes, with its family; the path of a Unix socket as a Path."""


class Reactor(Later, Protocol):
    """The part of a Twisted reactor that is used."""

    def addWriter(self, writer: object) -> None: ...  # noqa: N802

    def removeWriter(self, writer: object) -> None: ...  # noqa: N802


class Dialler:
    """Fulfils `iothub.peers.ports.Dialer`. On the reactor thread."""

    def __init__(
        self,
        transports: Transports,
        reactor: Reactor,
        run: Run,
        client: ssl.SSLContext | None,
        on_trouble: Callable[[PeerAddress, str], None],
    ) -> None:
        """`client`: None: no TLS. `on_trouble`: gets why there is no connection; and why an open one ended, if this hub's certificate was refused."""
        self.on_trouble = on_trouble
        self.transports = transports
        self.reactor = reactor
        self._run = run
        self._client = client
        self._dials: set[_Dial] = set()
        self._asked: set[Endpoint] = set()

    def dial(self, address: PeerAddress, owner_of: OwnerOf, failed: Callable[[str], None]) -> None:
        is_plain = self._client is None or address.address.startswith("unix:")
        self._dials.add(_Dial(self, address, owner_of, failed, None if is_plain else self._client))

    async def resolve(self, place: Endpoint) -> list[Target]:
        """Raises OSError, UnicodeError, UnavailableError: it is being resolved already, since an earlier dial; a thread waits for one answer only."""
        if place in self._asked:
            raise UnavailableError("the name is still being resolved")
        self._asked.add(place)
        try:
            return await self._run(RESOLVE, _addresses_of, place)
        finally:
            self._asked.discard(place)

    def use(self, client: ssl.SSLContext | None) -> None:
        """Dials that begin from now on are made with another certificate."""
        self._client = client

    def over(self, dial: _Dial) -> None:
        self._dials.discard(dial)

    def close(self) -> None:
        """End what is not a wire yet; nobody hears of it."""
        for dial in list(self._dials):
            dial.end()


class _Dial:
    """One dial, and the acceptor of its socket. Invariant: `owner_of` or `failed` is called once; neither after `end`."""

    def __init__(
        self,
        dialler: Dialler,
        peer: PeerAddress,
        owner_of: OwnerOf,
        failed: Callable[[str], None],
        client: ssl.SSLContext | None,
    ) -> None:
        self.listener = ListenerInfo(NAME)
        self._dialler = dialler
        self._peer = peer
        self._owner_of = owner_of
        self._failed = failed
        self._client = client
        self._targets: Iterator[Target] = iter(())
        self._connecting: _Connecting | None = None
        self._channel: Channel | None = None
        self._handshake: Handshake | None = None
        self._is_over = False
        self._cause = "no address answers"
        self._deadline = dialler.reactor.callLater(CONNECT_S, self._time_out)
        self._begin = dialler.reactor.callLater(0, self._resolve)

    def end(self) -> None:
        """Stop; what was opened is closed."""
        if self._is_over:
            return
        self._finish()
        if self._connecting is not None:
            self._connecting.close()
        if self._channel is not None:
            self._channel.close(abort=True)

    # --- from a name to a socket

    def _resolve(self) -> None:
        try:
            place = parse_address(self._peer.address)
        except ConfigError as error:
            self._fail(str(error))
            return
        if isinstance(place, UnixPath):
            self._connect([(socket.AF_UNIX, place.path)])
        elif parse_ip(place.host) is not None:
            family = socket.AF_INET6 if ":" in place.host else socket.AF_INET
            self._connect([(family, (place.host, place.port))])
        else:
            Deferred.fromCoroutine(self._ask_for(place))

    async def _ask_for(self, place: Endpoint) -> None:
        try:
            targets = await self._dialler.resolve(place)
        except (OSError, UnicodeError, IotHubError) as error:
            self._fail(f"{place.host}: {_words(error)}")
        else:
            self._connect(targets)

    def _connect(self, targets: Sequence[Target]) -> None:
        if not self._is_over:
            self._targets = iter(targets)
            self._connect_next()

    def _connect_next(self) -> None:
        for family, target in self._targets:
            try:
                connecting = _begin_connect(family, target)
            except OSError as error:
                self._cause = _words(error)
                continue
            self._connecting = _Connecting(self._dialler.reactor, connecting, self._connected)
            return
        self._fail(self._cause)

    def _connected(self, connected: socket.socket, error: int) -> None:
        self._connecting = None
        if error:
            connected.close()
            self._cause = os.strerror(error)
            self._connect_next()
            return
        set_client_options(connected)
        self._dialler.transports.adopt(connected, self)
        if self._handshake is not None:
            self._handshake.begin()
        elif self._channel is None:
            self._fail("the connection could not be served; see the log")

    # --- the channel's acceptor

    def allowance(self) -> int:
        return 1

    def accepted(self, channel: Channel, _ip: str, _port: int) -> bool:
        self._channel = channel
        if self._client is None:
            self._open(channel, None)
        else:
            self._handshake = Handshake(channel, self._client, self._on_tls, self._refused, is_server=False)
        return True

    def shed(self, ip: str, port: int) -> None:
        """Only what is accepted is shed."""

    def released(self, _channel: Channel) -> None:
        if self._handshake is not None:
            self._handshake.refuse(WireRefusal.CLOSED, "the other hub closed the connection during the TLS handshake")

    def _on_tls(self, tls: LinkTls) -> bool:
        if tls.node != self._peer.node:
            whose = "no node" if tls.node is None else f"node {tls.node}"
            self._refused(
                WireRefusal.CERTIFICATE_OF_ANOTHER_NODE, f"expected that of node {self._peer.node}, got that of {whose}"
            )
            return False
        if self._is_over or self._channel is None:
            return False
        self._open(self._channel, tls)
        return True

    def _open(self, channel: Channel, tls: LinkTls | None) -> None:
        self._finish()
        wire = PeerConnection(channel, self._peer.address, tls, self._report)
        channel.connection = wire
        wire.belong_to(self._owner_of(wire))

    # --- ends

    def _refused(self, refusal: WireRefusal, detail: str) -> None:
        self._fail(f"{refusal}: {detail}")

    def _time_out(self) -> None:
        if not self._is_over:
            self.end()
            self._report(f"{WireRefusal.TIMEOUT}: no connection within {CONNECT_S:g} s")
            self._failed(WireRefusal.TIMEOUT)

    def _fail(self, text: str) -> None:
        if not self._is_over:
            self._finish()
            self._report(text)
            self._failed(text)

    def _report(self, text: str) -> None:
        self._dialler.on_trouble(self._peer, text)

    def _finish(self) -> None:
        self._is_over = True
        self._dialler.over(self)
        for call in (self._deadline, self._begin):
            _cancel(call)


@implementer(IWriteDescriptor)
class _Connecting:
    """A socket that connects, until it is connected or has failed."""

    def __init__(self, reactor: Reactor, connecting: socket.socket, done: Callable[[socket.socket, int], None]) -> None:
        """`done`: gets the socket, with 0 or an errno."""
        self._reactor = reactor
        self._socket: socket.socket | None = connecting
        self._done = done
        self._number = connecting.fileno()
        reactor.addWriter(self)

    def close(self) -> None:
        connecting = self._release()
        if connecting is not None:
            connecting.close()

    def fileno(self) -> int:
        return self._number

    def doWrite(self) -> None:  # noqa: N802
        connecting = self._release()
        if connecting is not None:
            self._done(connecting, connecting.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def connectionLost(self, reason: Failure) -> None:  # noqa: N802
        """The reactor reports a refusal so; the socket knows why. At the reactor's end nobody is left who asks."""
        self.doWrite()

    def logPrefix(self) -> str:  # noqa: N802
        return "link"

    def _release(self) -> socket.socket | None:
        connecting, self._socket = self._socket, None
        if connecting is not None:
            self._reactor.removeWriter(self)
            self._number = -1
        return connecting


def _begin_connect(family: socket.AddressFamily, target: object) -> socket.socket:
    """Raises OSError."""
    connecting = socket.socket(family, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        if isinstance(target, Path):
            with through_directory(target) as short:
                connecting.connect(short)
        else:
            connecting.connect(target)  # type: ignore[arg-type]
    except OSError as error:
        if error.errno != errno.EINPROGRESS:
            connecting.close()
            raise
    return connecting


def _addresses_of(place: Endpoint) -> list[Target]:
    """In a thread. Raises OSError."""
    found = socket.getaddrinfo(place.host, place.port, type=socket.SOCK_STREAM)
    return [(family, address) for family, _, _, _, address in found]


def _words(error: object) -> str:
    return (isinstance(error, OSError) and error.strerror) or str(error)


def _cancel(call: DelayedCall) -> None:
    if call.active():
        call.cancel()
