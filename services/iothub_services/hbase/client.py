"""The client of HBase on the reactor: some connections, the rule which call takes which, and a prober at each gateway in trouble.

Knows no table and no queue. Calls with the same pin take the same connection, so they are done in order; threads come by `ThreadCaller`.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from zlib import crc32

from iothub.base import log as logging
from iothub.base.errors import BackendError
from iothub.base.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Call, Pin
from iothub_services.hbase.connection import Connection, OnOutcome
from iothub_services.hbase.gateways import Gateways
from iothub_services.hbase.pipeline import PendingCall, Receiver
from iothub_services.hbase.wire import Bounds, Reactor

log = logging.get(__name__)


def _uncounted(verb: str, result: str, seconds: float) -> None:
    """For whoever counts nothing."""


class HBaseClient:
    """Connections to one or several gateways.

    Invariants: everything but the constructor runs on the reactor thread, `thread` while it is open; gateways are the first choice
    of connections in turn.
    """

    def __init__(
        self,
        reactor: Reactor,
        gateways: Sequence[Endpoint],
        *,
        connections: int,
        bounds: Bounds | None = None,
        on_outcome: OnOutcome = _uncounted,
        jitter: Callable[[], float] = random.random,
    ) -> None:
        self.bounds = bounds or Bounds()
        self.gateways = Gateways(gateways, self._on_trouble)
        self.thread = 0
        self._reactor = reactor
        self._jitter = jitter
        self._probers: dict[Endpoint, GatewayProber] = {}
        self.connections = [
            Connection(reactor, self.gateways, at, self.bounds, jitter, on_outcome) for at in range(connections)
        ]

    def open(self) -> None:
        """Begin to connect; calls may be made at once, they wait for their connection."""
        self.thread = threading.get_ident()
        for connection in self.connections:
            connection.open()

    def close(self) -> None:
        """Give up the connections; calls without an answer fail. Idempotent."""
        for connection in self.connections:
            connection.close()
        for prober in self._probers.values():
            prober.close()
        self._probers.clear()
        self.gateways.forget()

    @property
    def is_up(self) -> bool:
        """Has every connection been answered?"""
        return all(connection.is_up for connection in self.connections)

    @property
    def problem(self) -> str:
        """Return why the first connection that is not up is not, "" when all are."""
        return next((each.problem for each in self.connections if not each.is_up), "")

    def connection(self, pin: Pin) -> Connection:
        """Return the connection of a pin: numbers take the connections in turn."""
        return self.connections[(pin if isinstance(pin, int) else crc32(pin)) % len(self.connections)]

    def begin(self, made: Sequence[Call[object]], receiver: Receiver) -> None:
        """Make calls; the receiver gets the outcome of each by its index. For callers that keep bounded how much they ask for.

        An outcome is the answer's frame or a BackendError: the connection was lost, nothing was answered in time, the client is closed.
        """
        batches: dict[Connection, list[PendingCall]] = {}
        for index, call in enumerate(made):
            pending = PendingCall(call, receiver, index)
            if call.size > self.bounds.frame_bytes:
                pending.fail(BackendError, _too_large(call, self.bounds.frame_bytes), is_retryable=False)
            else:
                batches.setdefault(self.connection(call.pin), []).append(pending)
        for connection, batch in batches.items():
            connection.send_calls(batch)

    def _on_trouble(self, gateway: Endpoint, reason: str) -> None:
        gateways = self.gateways
        if not (self.bounds.is_hasty and len(gateways.troubles) == len(gateways)):  # then the calls' error says it all
            log.warning(
                "a gateway of HBase does not answer", gateway=str(gateway), cause=reason, gateways=len(gateways)
            )
        prober = GatewayProber(self._reactor, gateway, self.bounds, self._jitter, self._on_recovery)
        self._probers[gateway] = prober
        prober.open()

    def _on_recovery(self, gateway: Endpoint) -> None:
        self._probers.pop(gateway).close()
        self.gateways.answers(gateway)
        log.info("a gateway of HBase answers again", gateway=str(gateway))


class GatewayProber:
    """Asks one gateway in trouble, on a connection of its own, until it answers: so no call has to find out.

    What is asked reaches HBase's master: a gateway that is cut off from it is of no use. A refusal is an answer.
    """

    is_over = False

    def __init__(
        self,
        reactor: Reactor,
        gateway: Endpoint,
        bounds: Bounds,
        jitter: Callable[[], float],
        on_recovery: Callable[[Endpoint], None],
    ) -> None:
        self._gateway = gateway
        self._on_recovery = on_recovery
        alone = Gateways((gateway,), lambda _gateway, _reason: None)  # it is known to be in trouble
        hurried = replace(bounds, timeout_s=bounds.silence_s)
        self._connection = Connection(reactor, alone, 0, hurried, jitter, _uncounted)

    def open(self) -> None:
        self._connection.open_later()
        self._ask()

    def close(self) -> None:
        """Ask no more. Idempotent."""
        self._connection.close()

    def _ask(self) -> None:
        self._connection.send_calls([PendingCall(calls.table_names(), self)])

    def on_outcome(self, _index: int, outcome: bytes | BackendError) -> None:
        """Be called with an answer, or ask again; the connection pauses between attempts."""
        if not isinstance(outcome, BackendError):
            self._on_recovery(self._gateway)
        elif outcome.retryable:
            self._ask()


def _too_large(call: Call[object], limit: int) -> str:
    """Say what to do about a call that the gateway would hang up on."""
    return (
        f"{call.verb.name} has {call.size} bytes, more than hbase.frame_limit allows ({limit}); "
        "split it, or raise that and the gateway's hbase.regionserver.thrift.framed.max_frame_size_in_mb"
    )
