"""The hub's local socket: whoever may read the data directory's secrets asks, one request to a connection, and is answered in rows.

Knows no verb and no store: it asks an `Answering`. There is no login: the socket's mode (0600) is the right to use it.

Invariants: a bounded number of connections, each of which counts until its request is answered, also when its asker has left: what changes
something is done all the same; one that does not ask in time, or does not read its answer, is cut; no more of an answer is made than the
asker takes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from typing import Any, Protocol, cast

from twisted.internet.defer import Deferred, maybeDeferred
from twisted.internet.error import CannotListenError
from twisted.internet.interfaces import IAddress, IDelayedCall, IListeningPort, IPushProducer, ITransport
from twisted.internet.protocol import Protocol as TwistedProtocol
from twisted.internet.protocol import ServerFactory, connectionDone
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.base import log as logging
from iothub.base.errors import IotHubError, UnavailableError
from iothub.config.datadir import DataDir
from iothub.net import admin_frames
from iothub.net.admin_frames import BadFrameError, FrameDecoder
from iothub.records.admin_commands import Answering, Json, Request

MAX_CONNECTIONS = 16
PATIENCE_S = 30.0  # until the request is there; and for an asker that does not read on

log = logging.get(__name__)


class Reactor(Protocol):
    """The part of a Twisted reactor that is used."""

    def callLater(self, delay: float, callable: Callable[[], None]) -> IDelayedCall: ...  # noqa: N802

    def listenUNIX(self, address: str, factory: object, backlog: int = ..., mode: int = ...) -> IListeningPort: ...  # noqa: N802


@implementer(IPushProducer)
class AdminExchange(TwistedProtocol):
    """One connection: both hellos, one request, its answer, the end. Fulfils `Reply`."""

    def __init__(self, server: AdminServer, reactor: Reactor) -> None:
        self._server = server
        self._reactor = reactor
        self._decoder = FrameDecoder()
        self._is_greeted = self._is_asked = self._is_over = False
        self._is_lost = self._is_answering = False
        self._deadline: IDelayedCall | None = None
        self._room: Deferred[None] | None = None  # the transport is full: who waits until it is not
        self._is_full = False

    def connectionMade(self) -> None:  # noqa: N802
        transport = self._transport
        transport.registerProducer(self, True)
        transport.write(admin_frames.hello())
        self._wait()

    def dataReceived(self, data: bytes) -> None:  # noqa: N802
        if self._is_over:
            return
        try:
            for frame in self._decoder.feed(data):
                self._take(frame)
        except IotHubError as error:
            self._end(admin_frames.refusal_frame(error))

    def connectionLost(self, reason: Failure = connectionDone) -> None:  # noqa: N802
        self._is_lost = self._is_over = True
        self._leave()
        self._wait_no_longer()
        self._go_on()

    # --- the transport's pace

    def pauseProducing(self) -> None:  # noqa: N802
        self._is_full = True
        self._wait()

    def resumeProducing(self) -> None:  # noqa: N802
        self._is_full = False
        self._wait_no_longer()
        self._go_on()

    def stopProducing(self) -> None:  # noqa: N802
        """The connection is lost: `connectionLost` follows."""

    async def rows(self, rows: Sequence[Json]) -> None:
        for frame in admin_frames.row_frames(rows):
            if self._is_full and not self._is_over:
                self._room = Deferred()
                await self._room
            if self._is_over:
                raise UnavailableError("the caller has closed the connection")
            self._transport.write(frame)

    # --- private

    @property
    def _transport(self) -> Any:
        return cast("ITransport", self.transport)

    def _take(self, frame: Json) -> None:
        """Raises BadFrameError, ConflictError."""
        if not self._is_greeted:
            admin_frames.check_hello(frame)
            self._is_greeted = True
        elif not self._is_asked:
            request = admin_frames.request_in(frame)
            self._is_asked = self._is_answering = True
            self._wait_no_longer()
            Deferred.fromCoroutine(self._answer(request))
        else:
            raise BadFrameError("a second request, expected one to a connection")

    async def _answer(self, request: Request) -> None:
        try:
            last = admin_frames.result_frame(await self._server.answer(request, self))
        except IotHubError as error:
            last = admin_frames.refusal_frame(error)
        except Exception as error:  # noqa: BLE001, RUF100 - protocol edge: the asker hears of a defect, too
            log.error("defect in an admin request", verb=request.verb, exc_info=error)
            last = admin_frames.refusal_frame(IotHubError("internal error; see the hub's log"))
        note = log.info if request.is_change else log.debug
        note("admin request", verb=request.verb, tenant=request.tenant, is_heard=not self._is_over)
        self._end(last)
        self._is_answering = False
        self._leave()

    def _leave(self) -> None:
        if self._is_lost and not self._is_answering:
            self._server.open_connections -= 1

    def _end(self, last: bytes) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._transport.write(last)
        self._transport.unregisterProducer()
        self._transport.loseConnection()
        self._wait()  # for an asker that does not read it
        self._go_on()

    def _go_on(self) -> None:
        room, self._room = self._room, None
        if room is not None:
            room.callback(None)

    def _wait(self) -> None:
        if self._deadline is None:
            self._deadline = self._reactor.callLater(PATIENCE_S, self._cut)

    def _wait_no_longer(self) -> None:
        deadline, self._deadline = self._deadline, None
        if deadline is not None and deadline.active():
            deadline.cancel()

    def _cut(self) -> None:
        self._deadline = None
        self._transport.abortConnection()


class AdminServer(ServerFactory[AdminExchange]):
    """The factory of the local socket."""

    noisy = False

    def __init__(self, answer: Answering, reactor: Reactor) -> None:
        self.answer = answer
        self.open_connections = 0
        self._reactor = reactor

    def buildProtocol(self, addr: IAddress | None) -> AdminExchange | None:  # noqa: N802
        if self.open_connections >= MAX_CONNECTIONS:
            return None
        self.open_connections += 1
        return AdminExchange(self, self._reactor)


class AdminSocket:
    """The open socket of a data directory whose lock is held."""

    def __init__(self, reactor: Reactor, server: AdminServer, data_dir: DataDir) -> None:
        """Raises UnavailableError."""
        self._path = data_dir.admin_socket
        self._address = ExitStack()  # Twisted needs it until the end, to remove the file
        try:
            self._path.unlink(missing_ok=True)  # of a hub that was killed
            address = self._address.enter_context(data_dir.admin_address())
            self._port = reactor.listenUNIX(address, server, MAX_CONNECTIONS, 0o600)
        except (OSError, CannotListenError) as error:
            self._address.close()
            why = error.socketError if isinstance(error, CannotListenError) else error
            raise UnavailableError(f"{self._path}: cannot be opened: {getattr(why, 'strerror', None) or why}") from None

    def close(self) -> None:
        """Take no more requests; those that are answered now may end."""
        with suppress(OSError):
            self._path.touch()  # somebody may have removed it: Twisted would stumble over that
        maybeDeferred(self._port.stopListening).addBoth(lambda _: self._address.close())
