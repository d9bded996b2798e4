"""All listeners of this process: build them from `ListenerInfo`, start, stop, tick, close.

Knows no configuration file and no twin: transports, plane and reactor are handed in.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from iothub.base.clock import Clock
from iothub.net.acceptor import Acceptor, OnRefused
from iothub.net.cidr import plain_ip
from iothub.net.descriptors import Descriptors
from iothub.net.filter_factory import FilterFactory
from iothub.net.gate import Gate
from iothub.net.listener_info import ListenerInfo
from iothub.net.ports import EnginePlane, Transports
from iothub.net.sockets import open_listening, try_port

TICK_S = 0.1


class DelayedCall(Protocol):
    """What a reactor's `callLater` answers."""

    def cancel(self) -> None: ...

    def active(self) -> int: ...


class TickReactor(Protocol):
    """The part of a reactor that gives the plane its heartbeat."""

    def callLater(self, delay: float, callable: Callable[[], None]) -> DelayedCall: ...  # noqa: N802


class Listeners:
    """The listeners of this process.

    Start either all listeners or none: a port in use leaves nothing open.
    """

    def __init__(
        self,
        infos: Sequence[ListenerInfo],
        plane: EnginePlane,
        clock: Clock,
        transports: Transports,
        reactor: TickReactor,
        descriptors: Descriptors,
        on_refused: OnRefused,
    ) -> None:
        """`descriptors`: those of the process; `on_refused`: gets each client that is closed before its CONNECT was read."""
        self.transports = transports
        self._reactor = reactor
        self._acceptors = [
            Acceptor(plane, Gate(info, clock, descriptors), clock, FilterFactory(info), on_refused) for info in infos
        ]
        self._addresses: dict[str, tuple[str, int]] = {}
        self._next_tick: DelayedCall | None = None

    def try_ports(self) -> None:
        """Check that every port is free, before waiting for anything else. Raises as `start`."""
        for acceptor in self._acceptors:
            try_port(acceptor.listener)

    def start(self) -> None:
        """Open every port, then accept. One that the system chose before is taken again: clients know it.

        Raises:
            UnavailableError: a port is in use or not permitted.
            ConfigError: an address or a certificate file is wrong.
        """
        opened: list[socket.socket] = []
        try:
            for acceptor in self._acceptors:
                opened.append(open_listening(self._placed(acceptor.listener)))  # noqa: PERF401 - on failure we must know what is open
        except BaseException:
            for listening in opened:
                listening.close()
            raise
        for acceptor, listening in zip(self._acceptors, opened, strict=True):
            host, port = listening.getsockname()[:2]
            self._addresses[acceptor.listener.name] = (plain_ip(host), port)
            self.transports.listen(listening, acceptor)
        self.begin_ticks()

    def begin_ticks(self) -> None:
        """See to ends of connections, time-outs and the plane from now on, also before clients may come."""
        if self._next_tick is None:
            self._tick()

    def addresses(self) -> dict[str, tuple[str, int]]:
        """Where each listener really is: name -> (host, port)."""
        return dict(self._addresses)

    @property
    def connections(self) -> int:
        """How many clients have a socket here, those included that have not sent their CONNECT yet, or are being closed."""
        return sum(acceptor.gate.connections for acceptor in self._acceptors)

    def gates(self) -> dict[str, Gate]:
        """The counts and limits of each listener, for metrics."""
        return {acceptor.listener.name: acceptor.gate for acceptor in self._acceptors}

    def prepare(self, infos: Sequence[ListenerInfo]) -> Callable[[], None]:
        """Read what the listeners need as they are to be, their certificates above all; the answer puts that to use.

        New connections meet the new rules, limits and certificates; who is connected stays. `infos`: the same listeners, by name, at the same places.

        Raises:
            ConfigError: a file is missing or does not fit; every listener keeps what it has.
        """
        wanted = {info.name: info for info in infos}
        uses = [acceptor.prepare(wanted[acceptor.listener.name]) for acceptor in self._acceptors]

        def use() -> None:
            for each in uses:
                each()

        return use

    def with_certificates(self) -> list[str]:
        """Return the names of the listeners that show a certificate."""
        return [acceptor.listener.name for acceptor in self._acceptors if acceptor.listener.is_tls]

    def stop_accepting(self) -> None:
        """Close every port; who is connected stays, and `start` opens the same ports again."""
        for acceptor in self._acceptors:
            self.transports.stop_accepting(acceptor)

    def close(self) -> None:
        """Reset who is still there and stop the heartbeat."""
        if self._next_tick is not None and self._next_tick.active():
            self._next_tick.cancel()
        self._next_tick = None
        self.transports.close()

    def _placed(self, listener: ListenerInfo) -> ListenerInfo:
        """Return a listener with the port that it has had."""
        place = self._addresses.get(listener.name)
        return listener if place is None else replace(listener, port=place[1])

    def _tick(self) -> None:
        self._next_tick = self._reactor.callLater(TICK_S, self._tick)
        for acceptor in self._acceptors:
            acceptor.tick()
        self.transports.tick()
