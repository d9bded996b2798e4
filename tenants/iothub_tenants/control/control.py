"""The control plane's front desk: takes what the message plane hands up, starts the walk that answers it, and catches what walks raise.

Knows no packet's meaning: `connect`, `subscribe`, `leave` and `reauthenticate` do. Fulfils `iothub.engine.ports.Control`.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from twisted.internet.defer import Deferred

from iothub.base import log as logging
from iothub.base.errors import TenantLimitError, UnavailableError
from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.mqtt.constants import PacketType
from iothub.mqtt.errors import LimitExceeded, MqttError
from iothub_services.quota.names import BY_NAME
from iothub_tenants.broker.client_contexts import ClientContext
from iothub_tenants.broker.hub import Hub
from iothub_tenants.control.connect import connect, overdue, turn_away
from iothub_tenants.control.connect_timeout import Doorstep
from iothub_tenants.control.leave import disconnect, say_goodbye
from iothub_tenants.control.reauthenticate import authenticate
from iothub_tenants.control.subscribe import subscribe, unsubscribe

log = logging.get(__name__)

Walk = Callable[[Hub, Connection, int, bytes], Coroutine[Any, Any, None]]

WALKS: dict[int, Walk] = {
    PacketType.CONNECT: connect,
    PacketType.SUBSCRIBE: subscribe,
    PacketType.UNSUBSCRIBE: unsubscribe,
    PacketType.DISCONNECT: disconnect,
    PacketType.AUTH: authenticate,
}


class ControlPlane:
    """One worker's control plane. Invariant: every packet taken ends in `plane.admit`, `plane.resume` or `plane.close`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        timeout_s, give_up_s = hub.settings.mqtt.connect_timeout_s, hub.settings.queues.give_up_s
        self.doorstep = Doorstep(hub.plane, hub.clock, timeout_s, give_up_s, partial(turn_away, hub))

    def opened(self, connection: Connection) -> None:
        connection.control = ClientContext()
        self._hub.counters.opened(connection.listener.name)

    def packet(self, connection: Connection, header: int, body: bytes) -> None:
        if say_goodbye(self._hub, connection, header, body):
            return
        if self._hub.is_short_of_memory and header >> 4 == PacketType.CONNECT:
            turn_away(self._hub, connection, body)
            return
        walk = WALKS.get(header >> 4)
        if walk is None:
            self._hub.plane.close(connection, Reason.PROTOCOL_ERROR)
            return
        steps = self._guarded(walk, connection, header, body)
        try:
            steps.send(None)
        except StopIteration:
            return  # most walks find everything in memory and wait for nothing: they need no Deferred
        waits = Deferred.fromCoroutine(steps)  # asked again, the Deferred that it waits for yields itself again
        if walk is connect:
            self.doorstep.wait(connection, partial(overdue, self._hub, connection, body))
            waits.addBoth(lambda _: self.doorstep.leave(connection))

    def closed(self, connection: Connection, reason: Reason) -> None:
        context: ClientContext = connection.control
        context.is_gone = True
        self._hub.counters.closed(connection.listener.name, connection.version, reason)
        if context.proven is not None and context.proven.token is not None:
            self._hub.token_ends.forget(connection)
        context.detach(reason)

    async def _guarded(self, walk: Walk, connection: Connection, header: int, body: bytes) -> None:
        """The one place where a walk's failure becomes an answer."""
        try:
            await walk(self._hub, connection, header, body)
        except MqttError as error:
            _count(connection, error)
            self._hub.plane.close(connection, error.reason)
        except TenantLimitError:
            self._hub.plane.close(connection, Reason.QUOTA)
        except UnavailableError as error:
            log.warning("store unavailable", peer=connection.peer, error=str(error))
            self._hub.plane.close(connection, Reason.SERVER_UNAVAILABLE)
        except Exception as error:  # the protocol edge: a defect of ours ends one connection, and the hub goes on
            log.error("defect in the control plane", peer=connection.peer, exc_info=error)
            self._hub.plane.close(connection, Reason.IMPLEMENTATION)


def _count(connection: Connection, error: MqttError) -> None:
    """A packet with more of something than its tenant allows is a refusal of that quota."""
    context: ClientContext = connection.control
    if isinstance(error, LimitExceeded) and context.broker is not None:
        context.broker.allowance.refused(BY_NAME[error.limit])
