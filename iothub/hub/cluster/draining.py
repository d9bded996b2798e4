"""Empties a hub of its clients: the listeners close, and clients are asked to go elsewhere, so many a second.

Knows no other hub and no command: whoever drains says where clients shall go.

Invariants: while draining no listener is open. No Will is published because of it: one that has a delay waits for it, as after any connection
that ends, and any other is forgotten. Each slice of the work ends after `SLICE` clients or `SCANNED` sessions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.plane import Plane
from iothub.hub.phase import Phase
from iothub.mqtt.constants import PacketType
from iothub.mqtt.fields import write_variable_byte_integer
from iothub.mqtt.properties import Properties, encode_properties
from iothub.net.listeners import DelayedCall, Listeners
from iothub_tenants.broker.brokers import Brokers

if TYPE_CHECKING:
    from iothub.engine.state import Connection, Session
    from iothub_services.sessions.port import SessionControl

CLIENTS_PER_S = 500
TICK_S = 0.05
SLICE = 50
SCANNED = 2_000
AGAIN_S = 0.5  # until sessions are looked through anew: clients may still have been on their way in
REFERENCES = 8  # of other hubs, in one packet

Later = Callable[[float, Callable[[], None]], DelayedCall]
OnHub = Callable[[str], None]

log = logging.get(__name__)


@dataclass(frozen=True, slots=True)
class Destination:
    """Where clients shall go. `has_hubs`: another hub takes them; `references`: where those are for clients, as far as that is known."""

    has_hubs: bool = False
    references: tuple[str, ...] = ()

    @property
    def plain_packet(self) -> bytes:
        """A DISCONNECT of 5.0 without a reference: this hub ends, or clients know where to go."""
        return _disconnect((Reason.DRAINED if self.has_hubs else Reason.SERVER_SHUTDOWN).code)

    def packets(self) -> list[bytes]:
        """Return a DISCONNECT of 5.0 for each reference: each names another one first, so that clients spread."""
        names = self.references[:REFERENCES] if self.has_hubs else ()
        turns = [" ".join((*names[at:], *names[:at])) for at in range(len(names))]
        return [_disconnect(Reason.DRAINED.code, each) for each in turns] or [self.plain_packet]


class Draining:
    """On the reactor thread."""

    def __init__(
        self,
        plane: Plane,
        brokers: Brokers,
        listeners: Listeners,
        phase: Phase,
        clock: Clock,
        later: Later,
        on_hub: OnHub,
    ) -> None:
        """`on_hub`: gets `hub.draining` and `hub.resumed`."""
        self._plane = plane
        self._brokers = brokers
        self._listeners = listeners
        self._phase = phase
        self._clock = clock
        self._later = later
        self._on_hub = on_hub
        self._rate_per_s = 0.0
        self._credit = 0.0  # clients that may be closed now
        self._credited_at = 0.0
        self._destination = Destination()
        self._packets: list[bytes] = []
        self._pass: Iterator[Session | None] = iter(())
        self._next: DelayedCall | None = None
        self.closed = 0  # clients that were asked to go, since the drain began

    def require_ready(self) -> None:
        """Raises UnavailableError: the listeners are not open yet, or never again."""
        if not self._phase.is_ready:
            raise UnavailableError("the hub is starting or stopping")

    @property
    def is_draining(self) -> bool:
        return self._phase.is_draining

    @property
    def clients(self) -> int:
        """How many are connected."""
        return self._listeners.connections

    @property
    def is_done(self) -> bool:
        return self.is_draining and not self.clients

    def begin(self, rate_per_s: float, destination: Destination) -> None:
        """Let nobody in any more, and empty the hub. When it drains already, only the rate and the destination change."""
        now, packets = self._clock.monotonic(), destination.packets()
        if not self.is_draining:
            self._phase.begin_drain()
            self._listeners.stop_accepting()
            self.closed, self._pass = 0, self._sessions()
            self._credit, self._credited_at = 1.0, now
            log.info(
                "draining", clients=self.clients, rate_per_s=round(rate_per_s), has_other_hubs=destination.has_hubs
            )
            self._on_hub("hub.draining")
        self._rate_per_s, self._destination, self._packets = rate_per_s, destination, packets
        if self._next is None:
            self._next = self._later(0, self._go_on)

    def resume(self) -> bool:
        """Let clients in again; False: it did not drain. Raises UnavailableError: a port has been taken meanwhile."""
        if not self.is_draining:
            return False
        self._listeners.start()
        self._phase.end_drain()
        self.stop()
        log.info("draining ended: clients are let in again", clients=self.clients, clients_closed=self.closed)
        self._on_hub("hub.resumed")
        return True

    def stop(self) -> None:
        """Ask no more clients to go."""
        if self._next is not None and self._next.active():
            self._next.cancel()
        self._next = None

    # --- private

    def _go_on(self) -> None:
        self._next = None
        if self.is_done:
            log.info("drained", clients_closed=self.closed)
            return
        now = self._clock.monotonic()
        earned = (now - self._credited_at) * self._rate_per_s
        self._credit = min(
            self._credit + earned, max(self._rate_per_s * 2 * TICK_S, 1.0)
        )  # a busy hub does not catch up
        self._credited_at = now
        self._next = self._later(self._close_some(), self._go_on)

    def _close_some(self) -> float:
        """Close as many clients as may go now; return when to go on, in seconds."""
        for _ in range(SLICE):
            if self._credit < 1.0:
                return TICK_S
            try:
                session = next(self._pass)
            except StopIteration:
                self._pass = self._sessions()
                return AGAIN_S
            if session is None:
                return 0.0
            connection = session.connection
            if connection is not None and not connection.is_closing:
                self._credit -= 1.0
                self._close(session, connection)
        return 0.0

    def _sessions(self) -> Iterator[Session | None]:
        """Yield sessions with a connection; None after each `SCANNED` others, whose clients are away."""
        scanned = 0
        for broker in list(self._brokers):
            for session in list(broker.plane.sessions.awake.values()):
                if session.connection is not None:
                    yield session
                else:
                    scanned += 1
                    if scanned % SCANNED == 0:
                        yield None

    def _close(self, session: Session, connection: Connection) -> None:
        if not _has_delayed_will(session):
            connection.control.forget_will()
        packet = self._packets[self.closed % len(self._packets)] if connection.version == 5 else b""
        if 0 < connection.maximum_packet_size < len(packet):
            packet = self._destination.plain_packet  # the reference is a hint
        self.closed += 1
        self._plane.close(connection, Reason.DRAINED, packet)


def _has_delayed_will(session: Session) -> bool:
    """Tell whether the Will waits for its client to come back, to whichever hub."""
    control: SessionControl = session.control
    return session.is_persistent and control.will is not None and min(control.will.delay_s, control.expiry_s) > 0


def _disconnect(code: int, reference: str = "") -> bytes:
    """Return a DISCONNECT of 5.0 (§3.14)."""
    if not reference:
        return bytes((PacketType.DISCONNECT << 4, 1, code))
    properties = encode_properties(Properties(server_reference=reference), PacketType.DISCONNECT)
    body = bytes((code,)) + properties
    return bytes((PacketType.DISCONNECT << 4,)) + write_variable_byte_integer(len(body), "Remaining Length") + body
