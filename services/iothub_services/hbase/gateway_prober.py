"""A scout: asks one gateway that is in trouble until it answers, so that no call has to find out.

Knows no lane. Runs on the reactor thread.
"""

from __future__ import annotations

from collections.abc import Callable

from twisted.internet.interfaces import IConnector, IDelayedCall

from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call
from iothub_services.hbase.pipeline import Pipeline
from iothub_services.hbase.wire import Attempt, Reactor, Wire

PAUSE_S = 2.0  # between two attempts


class _Question:
    """What is asked reaches HBase's master: a gateway that is cut off from it is of no use."""

    call: Call[object] = calls.table_names()


class Scout:
    """Tries again and again, with a connection for each attempt, until it was answered or is closed. A refusal is an answer."""

    def __init__(
        self,
        reactor: Reactor,
        gateway: Endpoint,
        frame_bytes: int,
        timeout_s: float,
        on_answer: Callable[[Endpoint], None],
    ) -> None:
        """`timeout_s`: for the connection, and then for the answer."""
        self._reactor = reactor
        self._gateway = gateway
        self._frame_bytes = frame_bytes
        self._timeout_s = timeout_s
        self._on_answer = on_answer
        self._pipeline: Pipeline[_Question] = Pipeline(frame_bytes)
        self._wire: Wire | None = None
        self._connector: IConnector | None = None
        self._timer: IDelayedCall | None = None
        self._is_closed = False

    def open(self) -> None:
        """Try after a pause: whoever has just failed there knows."""
        self._wait(PAUSE_S, self._connect)

    def close(self) -> None:
        """Ask no more. Idempotent."""
        self._is_closed = True
        self._wait(0.0, None)
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop()
        elif self._connector is not None:
            self._connector.disconnect()

    def _wait(self, seconds: float, then: Callable[[], None] | None) -> None:
        if self._timer is not None and self._timer.active():
            self._timer.cancel()
        self._timer = None if then is None else self._reactor.callLater(seconds, then)

    def _connect(self) -> None:
        gateway = self._gateway
        self._connector = self._reactor.connectTCP(gateway.host, gateway.port, Attempt(self), timeout=self._timeout_s)

    # --- as the owner of a wire

    def made(self, wire: Wire) -> None:
        """Ask."""
        if self._is_closed:
            wire.drop()
            return
        self._wire = wire
        self._pipeline = Pipeline(self._frame_bytes)
        self._wait(self._timeout_s, self._again)
        wire.send(self._pipeline.send(_Question()))

    def received(self, wire: Wire, octets: bytes) -> None:
        """Tell that there was an answer; a stranger's is none."""
        if wire is not self._wire:
            return
        if self._pipeline.receive(octets):
            self.close()
            self._on_answer(self._gateway)
        elif self._pipeline.broken:
            self._again()

    def lost(self, wire: Wire, _reason: str) -> None:
        if wire is self._wire:
            self._again()

    def missed(self, _reason: str) -> None:
        if not self._is_closed:
            self._again()

    def _again(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            wire.drop()
        self._wait(PAUSE_S, self._connect)
