"""The plain twin of the poller: the same channels on Twisted's own transports, for any reactor, nothing compiled.

Knows no MQTT and no filter. Written for sameness with `iothub.engine.poller`, not for speed.
"""

# ruff: noqa: N802 - Twisted's callbacks have Twisted's names

from __future__ import annotations

import logging
import select
import socket
from collections import deque
from collections.abc import Callable
from typing import Protocol as TypingProtocol

from twisted.internet.address import IPv4Address, IPv6Address, UNIXAddress
from twisted.internet.interfaces import IReadDescriptor
from twisted.internet.protocol import Factory, Protocol
from twisted.python.failure import Failure
from zope.interface import implementer

from iothub.base.clock import Clock
from iothub.base.reasons import Reason
from iothub.net.ports import ByteStream, ChannelAcceptor, EngineConnection, EnginePlane
from iothub.net.sockets import set_client_options, unread_bytes

log = logging.getLogger(__name__)

READ_BYTES = 1 << 16
READ_BYTES_FILTERED = 44 << 10  # with what a filter may hold back (one TLS record) still at most 64 KiB in one feed
READ_BYTES_BEFORE_SESSION = 1 << 12
WRITE_BYTES = 1 << 16
LINGER_S = 5.0  # how long a polite close may take
DRAIN_S = 1.0  # how long input is thrown away after our end is shut
DRAIN_BYTES = 1 << 20
MOST_DRAINING = 1024  # channels; above it a close is a close: their descriptors are needed
HALF_CLOSED_S = 30.0  # how long what a vanished peer has sent waits for its paused reader


class ClientTransport(TypingProtocol):
    """The methods of `twisted.internet.tcp.Server` that are used here, with types."""

    bufferSize: int  # noqa: N815

    def getHandle(self) -> socket.socket: ...

    def getPeer(self) -> IPv4Address | IPv6Address | UNIXAddress: ...

    def fileno(self) -> int: ...

    def registerProducer(self, producer: object, streaming: bool) -> None: ...

    def unregisterProducer(self) -> None: ...

    def startReading(self) -> None: ...

    def stopReading(self) -> None: ...

    def write(self, data: bytes) -> None: ...

    def loseWriteConnection(self) -> None: ...

    def loseConnection(self) -> None: ...

    def abortConnection(self) -> None: ...


class Port(TypingProtocol):
    """The methods of `twisted.internet.tcp.Port` that are used here, with types."""

    def startReading(self) -> None: ...

    def stopReading(self) -> None: ...

    def stopListening(self) -> object: ...


class PlainReactor(TypingProtocol):
    """What this twin needs of a reactor; every stock reactor for POSIX has it."""

    def adoptStreamPort(self, fileDescriptor: int, addressFamily: int, factory: Factory) -> Port: ...  # noqa: N803

    def addReader(self, reader: object) -> None: ...

    def removeReader(self, reader: object) -> None: ...

    def adoptStreamConnection(self, fileDescriptor: int, addressFamily: int, factory: Factory) -> object: ...  # noqa: N803

    def callLater(self, delay: float, callable: Callable[[], None]) -> object: ...


class PlainChannel(Protocol):
    """One client on a Twisted transport.

    Invariants: `connection.lost` and `acceptor.released` are called once, in `connectionLost`; nothing is fed after
    `_is_closing`; Twisted's own buffer holds at most one chunk beyond its mark, the rest stays in `connection.out`.
    """

    transport: ClientTransport  # type: ignore[assignment]

    def __init__(self, hub: TwistedTransports, acceptor: ChannelAcceptor) -> None:
        self.connection: EngineConnection | None = None
        self.stream: ByteStream | None = None
        self.is_dirty = False
        self.watched_fd = -1
        self._hub = hub
        self._acceptor = acceptor
        self._reason = Reason.NETWORK
        self._is_paused = False
        self._is_congested = False
        self._is_closing = False
        self._has_finished = False
        self._is_in = False
        self._drains = False
        self._drain_bytes = 0  # that may still come; 0: it is not drained

    # --- Twisted's side

    def connectionMade(self) -> None:
        set_client_options(self.transport.getHandle())
        self.transport.bufferSize = READ_BYTES_BEFORE_SESSION
        peer = self.transport.getPeer()
        ip, port = ("", 0) if isinstance(peer, UNIXAddress) else (peer.host, peer.port)
        self._is_in = True  # the acceptor may write already, or close
        try:
            is_accepted = self._acceptor.accepted(self, ip, port)
        except Exception:
            log.exception("accepting a connection failed", extra={"listener": self._acceptor.listener.name})
            is_accepted = False
        if not is_accepted:
            self._is_in = False
            self.transport.abortConnection()
            return
        self.transport.registerProducer(self, True)
        self._hub.accepted(self)

    def dataReceived(self, data: bytes) -> None:
        hub = self._hub
        hub.count_received(len(data))
        if self._is_closing:
            self._drain(len(data))
            return
        try:
            if self.stream is not None:
                self.stream.received(data)
            elif self.connection is not None:
                self.connection.feed(data)
        except Exception:  # the protocol edge: one client's defect is one client's end
            log.exception("a connection failed", extra={"listener": self._acceptor.listener.name})
            self.fail(Reason.IMPLEMENTATION)
        if self.connection is not None and self.connection.session is not None:
            self.transport.bufferSize = READ_BYTES if self.stream is None else READ_BYTES_FILTERED
        hub.schedule()

    def connectionLost(self, reason: Failure | None = None) -> None:
        if not self._is_in:
            return
        self._is_in = False
        self._is_closing = self._has_finished = True
        self._hub.gone(self)
        self._detach()
        self._acceptor.released(self)
        self.stream = None
        self._hub.schedule()

    def pauseProducing(self) -> None:
        """Twisted's buffer is full: what follows stays in `connection.out`."""
        self._is_congested = True

    def resumeProducing(self) -> None:
        self._is_congested = False
        self.wake()

    def stopProducing(self) -> None:
        self._is_congested = True

    # --- the engine's side

    def wake(self) -> None:
        if not self.is_dirty and self._is_in:
            self.is_dirty = True
            self._hub.wake(self)

    def pause(self) -> None:
        if not self._is_paused and self._is_in and not self._has_finished:
            self._is_paused = True
            self.transport.stopReading()
            self._hub.watch(self)

    def resume(self) -> None:
        if self._is_paused and self._is_in:
            self._is_paused = False
            self._hub.unwatch(self)
            if not self._has_finished:
                self.transport.startReading()

    def close(self, *, abort: bool = False, drains: bool = False) -> None:
        if not self._is_in or (self._is_closing and not abort):
            return
        if abort:
            self._is_closing = self._has_finished = True
            if self.connection is not None:
                self.connection.out.clear()
            self._hub.doom(self)
            return
        self._is_closing = True
        self._drains = drains
        self._hub.linger(self)
        self.wake()

    def fail(self, reason: Reason) -> None:
        self._reason = reason
        self.close()

    # --- the hub's side

    def flush(self) -> None:
        """Write what Twisted's buffer takes; the end of a polite close."""
        self.is_dirty = False
        if not self._is_in or self._has_finished:
            return
        while not self._is_congested:
            source = self._pending()
            if not source:
                break
            chunk = bytes(source[:WRITE_BYTES])
            del source[: len(chunk)]
            self._hub.count_sent(len(chunk))
            self.transport.write(chunk)
        else:
            return
        if self._is_closing:
            self._hub.finished(self)

    def abort(self) -> None:
        """Reset, unless the last bytes may be unread; `connectionLost` follows."""
        if not self._is_in:
            return
        self._is_closing = self._has_finished = True
        if self._drain_bytes:
            self.transport.loseConnection()
        else:
            self.transport.abortConnection()

    def peer_has_gone(self) -> None:
        """A paused peer has closed or reset. What it sent before may still be read, for a while; its DISCONNECT may be with the engine already."""
        has_more = self.connection is not None and self.connection.partial is not None
        if unread_bytes(self.transport.getHandle()) == 0 and not has_more:
            self.abort()
        else:
            self._hub.half_closed(self)

    def _pending(self) -> bytearray:
        if self.stream is not None:
            source = self.stream.pending()
            if not source and self._is_closing:
                self.stream.add_final_bytes()
                source = self.stream.pending()
            return source
        return self.connection.out if self.connection is not None else bytearray()

    def finish(self) -> None:
        """Everything is with Twisted: end. Unread bytes, or bytes that come later, would make the close a reset, which eats what we sent last."""
        if not self._is_in or self._has_finished:
            return
        self._has_finished = True
        self._detach()
        self.transport.unregisterProducer()
        self._hub.unwatch(self)
        is_drained = self._drains or unread_bytes(self.transport.getHandle()) > 0
        if is_drained and self._hub.draining(self):
            self._drain_bytes = DRAIN_BYTES
            self.transport.startReading()
            self.transport.loseWriteConnection()
        else:
            self.transport.loseConnection()

    def _drain(self, size: int) -> None:
        """Throw away what comes after our end was shut."""
        if self._drain_bytes:
            self._drain_bytes = max(self._drain_bytes - size, 0)
            if not self._drain_bytes:
                self.transport.loseConnection()

    def _detach(self) -> None:
        connection, self.connection = self.connection, None
        if connection is not None:
            try:
                connection.lost(self._reason)
            except Exception:
                log.exception("closing a connection failed", extra={"listener": self._acceptor.listener.name})


class PlainFactory(Factory):
    """Makes the channels of one listener, and stops accepting while the accept rate says so."""

    noisy = False

    def __init__(self, hub: TwistedTransports, acceptor: ChannelAcceptor) -> None:
        self._hub = hub
        self.acceptor = acceptor

    def buildProtocol(self, _address: object) -> PlainChannel:
        return PlainChannel(self._hub, self.acceptor)


@implementer(IReadDescriptor)
class _UnixPort:
    """A listening Unix socket. Twisted's own port would give it to everybody (mode 0666), and needs its name."""

    def __init__(self, listening: socket.socket, reactor: PlainReactor, factory: PlainFactory) -> None:
        self._listening = listening
        self._reactor = reactor
        self._factory = factory
        self.startReading()

    def startReading(self) -> None:
        self._reactor.addReader(self)

    def stopReading(self) -> None:
        self._reactor.removeReader(self)

    def stopListening(self) -> None:
        self.stopReading()
        self._listening.close()

    def fileno(self) -> int:
        return self._listening.fileno()

    def doRead(self) -> None:
        try:
            client, _ = self._listening.accept()
        except OSError:  # it is gone again, or there is no descriptor: the next turn tries again
            return
        client.setblocking(False)
        with client:  # the reactor makes its own duplicate
            self._reactor.adoptStreamConnection(client.fileno(), client.family, self._factory)

    def connectionLost(self, reason: Failure) -> None:
        """Twisted ends every reader when it stops."""
        self._listening.close()

    def logPrefix(self) -> str:
        return "listener"


class TwistedTransports:
    """All sockets of this process on a stock reactor. Output is combined: one write per channel and reactor turn."""

    def __init__(self, plane: EnginePlane, clock: Clock, reactor: PlainReactor) -> None:
        self._plane = plane
        self._clock = clock
        self._reactor = reactor
        self._ports: list[tuple[Port, PlainFactory]] = []
        self._put_off: list[tuple[Port, PlainFactory]] = []
        self._channels: set[PlainChannel] = set()
        self._dirty: list[PlainChannel] = []
        self._finished: list[PlainChannel] = []
        self._doomed: list[PlainChannel] = []
        self._lingering: deque[tuple[float, PlainChannel]] = deque()
        self._draining: dict[PlainChannel, float] = {}  # until then, the next first
        self._half_closed: deque[tuple[float, PlainChannel]] = deque()
        self._watched: dict[int, PlainChannel] = {}
        self._hangups = select.poll()
        self._is_scheduled = False
        self._counters = dict.fromkeys(("turns", "events", "bytes_in", "bytes_out", "recv_calls", "send_calls"), 0)

    def listen(self, listening: socket.socket, acceptor: ChannelAcceptor) -> None:
        factory = PlainFactory(self, acceptor)
        if listening.family == socket.AF_UNIX:
            self._ports.append((_UnixPort(listening, self._reactor, factory), factory))
            return
        with listening:  # the reactor makes its own duplicate
            port = self._reactor.adoptStreamPort(listening.fileno(), listening.family, factory)
        self._ports.append((port, factory))

    def adopt(self, connected: socket.socket, acceptor: ChannelAcceptor) -> None:
        with connected:  # the reactor makes its own duplicate
            self._reactor.adoptStreamConnection(connected.fileno(), connected.family, PlainFactory(self, acceptor))

    def stop_accepting(self, acceptor: ChannelAcceptor) -> None:
        for port, factory in self._ports:
            if factory.acceptor is acceptor:
                port.stopListening()
        self._ports = [each for each in self._ports if each[1].acceptor is not acceptor]
        self._put_off = [each for each in self._put_off if each[1].acceptor is not acceptor]

    def tick(self) -> None:
        self._plane.tick()
        now = self._clock.monotonic()
        for waiting in (self._lingering, self._half_closed):
            while waiting and waiting[0][0] <= now:
                waiting.popleft()[1].abort()
        for channel in [each for each, until in self._draining.items() if until <= now]:
            del self._draining[channel]
            channel.abort()
        self._notice_hangups()
        self._accept_again()
        self.settle()

    def close(self) -> None:
        for port, _ in self._ports:
            port.stopListening()
        self._ports.clear()
        self._put_off.clear()
        for channel in list(self._channels):
            channel.abort()

    def counters(self) -> dict[str, int]:
        return dict(self._counters)

    def settle(self) -> None:
        """End of a batch: the plane wakes who has output, each is written once; then those end that must."""
        self._is_scheduled = False
        self._counters["turns"] += 1
        while True:
            self._end_batch()
            while self._dirty:
                dirty, self._dirty = self._dirty, []
                for channel in dirty:
                    self._flush(channel)
            if not self._finished and not self._doomed:
                return
            finished, self._finished = self._finished, []
            for channel in finished:
                channel.finish()
            doomed, self._doomed = self._doomed, []
            for channel in doomed:
                channel.abort()

    # --- what channels report

    def schedule(self) -> None:
        if not self._is_scheduled:
            self._is_scheduled = True
            self._reactor.callLater(0, self.settle)

    def accepted(self, channel: PlainChannel) -> None:
        self._channels.add(channel)
        self.schedule()
        for port, factory in self._ports:
            if factory.acceptor.allowance() == 0 and (port, factory) not in self._put_off:
                port.stopReading()
                self._put_off.append((port, factory))

    def gone(self, channel: PlainChannel) -> None:
        self._channels.discard(channel)
        self._draining.pop(channel, None)
        self.unwatch(channel)

    def wake(self, channel: PlainChannel) -> None:
        self._dirty.append(channel)
        self.schedule()

    def finished(self, channel: PlainChannel) -> None:
        self._finished.append(channel)

    def doom(self, channel: PlainChannel) -> None:
        self._doomed.append(channel)
        self.schedule()

    def linger(self, channel: PlainChannel) -> None:
        self._lingering.append((self._clock.monotonic() + LINGER_S, channel))

    def draining(self, channel: PlainChannel) -> bool:
        """End it in a moment; False: too many are being drained."""
        if len(self._draining) >= MOST_DRAINING:
            return False
        self._draining[channel] = self._clock.monotonic() + DRAIN_S
        return True

    def half_closed(self, channel: PlainChannel) -> None:
        self._half_closed.append((self._clock.monotonic() + HALF_CLOSED_S, channel))

    def watch(self, channel: PlainChannel) -> None:
        """A paused channel is not read; its peer's reset or close is looked for at each tick."""
        channel.watched_fd = channel.transport.fileno()
        self._watched[channel.watched_fd] = channel
        self._hangups.register(channel.watched_fd, select.POLLRDHUP)

    def unwatch(self, channel: PlainChannel) -> None:
        if channel.watched_fd >= 0:
            self._hangups.unregister(channel.watched_fd)
            del self._watched[channel.watched_fd]
            channel.watched_fd = -1

    def count_received(self, size: int) -> None:
        self._counters["events"] += 1
        self._counters["recv_calls"] += 1
        self._counters["bytes_in"] += size

    def count_sent(self, size: int) -> None:
        self._counters["send_calls"] += 1
        self._counters["bytes_out"] += size

    def _end_batch(self) -> None:
        try:
            self._plane.end_batch()
        except Exception:
            log.exception("writing the answers of a batch failed")

    def _flush(self, channel: PlainChannel) -> None:
        try:
            channel.flush()
        except Exception:  # the protocol edge: one client's defect is one client's end
            log.exception("writing to a connection failed")
            channel.abort()

    def _notice_hangups(self) -> None:
        if not self._watched:
            return
        for fd, _events in self._hangups.poll(0):
            channel = self._watched.get(fd)
            if channel is not None:
                self.unwatch(channel)
                channel.peer_has_gone()

    def _accept_again(self) -> None:
        waiting, self._put_off = self._put_off, []
        for port, factory in waiting:
            if factory.acceptor.allowance() > 0:
                port.startReading()
            else:
                self._put_off.append((port, factory))
