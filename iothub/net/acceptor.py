"""One listener: counts a client in, puts filters around it, introduces it, watches its time-out.

Knows neither twin (a channel is a Protocol) nor MQTT.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import Protocol

from iothub.base.clock import Clock
from iothub.base.reasons import Reason
from iothub.net.cidr import peer_name, plain_ip
from iothub.net.filter_factory import FilterFactory
from iothub.net.filters import ClientFacts
from iothub.net.gate import ADDRESS_DENIED, BUFFERS_FULL, NO_DESCRIPTORS, Gate, Refused
from iothub.net.listener_info import ListenerInfo
from iothub.net.ports import Channel, EnginePlane
from iothub.net.stream import Stream

log = logging.getLogger(__name__)


class OnRefused(Protocol):
    """Gets a client that is closed before its CONNECT was read."""

    def __call__(self, listener: str, address: str, reason: Reason, rule: str, /) -> None: ...


def _ignore(_listener: str, _address: str, _reason: Reason, _rule: str) -> None:
    """Nobody wants to know."""


class Acceptor:
    """Accepts the clients of one listener. Everything on the reactor thread."""

    def __init__(
        self,
        plane: EnginePlane,
        gate: Gate,
        clock: Clock,
        filters: FilterFactory,
        on_refused: OnRefused = _ignore,
    ) -> None:
        self.gate = gate
        self._plane = plane
        self._clock = clock
        self.filters = filters
        self._on_refused = on_refused
        self._use()
        # When each was accepted, in order; who has connected meanwhile leaves the queue at its turn. Without filters the plane's own
        # time-out for CONNECT is all there is to watch.
        self._accepted: deque[tuple[float, Channel]] = deque()

    def prepare(self, listener: ListenerInfo) -> Callable[[], None]:
        """Read what the listener needs as it is to be; the answer puts that to use. Its name and its place stay.

        Raises:
            ConfigError: a file is missing or does not fit; nothing has changed.
        """
        use_filters = self.filters.prepare(listener)

        def use() -> None:
            use_filters()
            self.gate.apply(listener)
            self._use()

        return use

    def allowance(self) -> int:
        return self.gate.allowance()

    def accepted(self, channel: Channel, ip: str, port: int) -> bool:
        """Let a client in, or answer False: the twin closes the socket and nothing remembers it."""
        ip = plain_ip(ip)
        refused = self.gate.enter(ip, has_handshake=self._has_filters)
        if refused is not None:
            self._report(ip, port, refused)
            return False
        if self._has_filters:
            client = ClientFacts(ip, port)
            channel.stream = Stream(channel, self, self.filters.make(client), client)
            self._accepted.append((self._clock.monotonic(), channel))
        elif not self._introduce(channel, ip, port, None):
            self.gate.leave(had_handshake=False)
            return False
        return True

    def opened(self, channel: Channel, client: ClientFacts) -> bool:
        """The filters are through: hold the client's own address against the rules and introduce it to the plane."""
        self.gate.opened()
        if not self.gate.may_come(client.ip):  # whom a proxy announces; the rules may have changed meanwhile, too
            self._refuse(client.ip, client.port, ADDRESS_DENIED)
            return False
        return self._introduce(channel, client.ip, client.port, client.subject)

    def failed(self, client: ClientFacts, reason: Reason, text: str) -> None:
        """A filter has ended the connection before it was open: a TLS or WebSocket handshake, a PROXY header."""
        if reason is not Reason.NETWORK:  # else the client has left by itself
            self._report(client.ip, client.port, Refused(reason, text))

    def shed(self, ip: str, port: int) -> None:
        """The twin has closed a client with its spare descriptor, because no other was free."""
        self._refuse(plain_ip(ip), port, NO_DESCRIPTORS)

    def released(self, channel: Channel) -> None:
        stream = channel.stream
        self.gate.leave(had_handshake=stream is not None and not stream.is_open)

    def tick(self) -> None:
        """Close whoever has not connected in time: one bound over TLS, HTTP and CONNECT together."""
        latest = self._clock.monotonic() - self.listener.connect_timeout_s
        while self._accepted and self._accepted[0][0] <= latest:
            channel = self._accepted.popleft()[1]
            connection = channel.connection
            if connection is not None:
                if connection.session is None:
                    self._plane.close(connection, Reason.CONNECT_TIMEOUT)
            elif channel.stream is not None:
                channel.stream.time_out()
                channel.close(abort=True)

    def _use(self) -> None:
        self.listener: ListenerInfo = self.gate.listener
        self._has_filters = self.filters.has_filters()

    def _introduce(self, channel: Channel, ip: str, port: int, subject: str | None) -> bool:
        try:
            channel.connection = self._plane.accept(channel, self.listener, peer_name(ip, port), subject)
        except Exception:  # the protocol edge: a defect of ours refuses one client and leaves no count behind
            log.exception("opening a connection failed", extra={"listener": self.listener.name})
        if channel.connection is None:
            self._refuse(ip, port, BUFFERS_FULL)
            return False
        return True

    def _refuse(self, ip: str, port: int, refused: Refused) -> None:
        self.gate.count_refusal(refused)
        self._report(ip, port, refused)

    def _report(self, ip: str, port: int, refused: Refused) -> None:
        self._on_refused(self.listener.name, peer_name(ip, port), refused.reason, refused.rule)
