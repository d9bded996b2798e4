# cython: annotation_typing=False
"""The control plane's entry point: gets control packets from the message plane, calls their packet handler, and turns its errors into answers.

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
from iothub_tenants.control.connect import client_of, connect, reject_overload, reject_timed_out
from iothub_tenants.control.connect_timeout import ConnectTimeouts
from iothub_tenants.control.disconnect import PLAIN, disconnect, disconnect_plain
from iothub_tenants.control.reauthenticate import authenticate
from iothub_tenants.control.subscribe import subscribe, unsubscribe

log = logging.get(__name__)

PacketHandler = Callable[[Hub, Connection, int, bytes], Coroutine[Any, Any, None]]

PACKET_HANDLERS: dict[int, PacketHandler] = {
    PacketType.CONNECT: connect,
    PacketType.SUBSCRIBE: subscribe,
    PacketType.UNSUBSCRIBE: unsubscribe,
    PacketType.DISCONNECT: disconnect,
    PacketType.AUTH: authenticate,
}
_NO_REFUSALS = frozenset(
    {Reason.NETWORK, Reason.CLIENT, Reason.SERVER_SHUTDOWN}
)  # ends of connections without a session


class ControlPlane:
    """One worker's control plane. Invariant: every packet ends in `plane.admit`, `plane.resume` or `plane.close`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        give_up_s = hub.settings.queues.give_up_s
        self.connect_timeouts = ConnectTimeouts(hub.plane, hub.clock, give_up_s, partial(reject_overload, hub))

    def opened(self, connection: Connection) -> None:
        connection.control = ClientContext()

    def packet(self, connection: Connection, header: int, body: bytes) -> None:
        if header == PLAIN and disconnect_plain(self._hub, connection, body):
            return
        if header >> 4 == PacketType.CONNECT and self._hub.is_short_of_memory():
            reject_overload(self._hub, connection, body)
            return
        handler = PACKET_HANDLERS.get(header >> 4)
        if handler is None:
            self._hub.plane.close(connection, Reason.PROTOCOL_ERROR)
            return
        steps = self._guarded(handler, connection, header, body)
        try:
            steps.send(None)
        except StopIteration:
            return  # most handlers find everything in memory and never wait: they need no Deferred
        self._wait_for(steps, handler, connection, body)

    def _wait_for(
        self, steps: Coroutine[Any, Any, None], handler: PacketHandler, connection: Connection, body: bytes
    ) -> None:
        waits = Deferred.fromCoroutine(steps)  # safe after `send`: the Deferred that it waits for yields itself again
        if handler is connect:
            self.connect_timeouts.watch(connection, partial(reject_timed_out, self._hub, connection, body))
            waits.addBoth(lambda _: self.connect_timeouts.forget(connection))

    def closed(self, connection: Connection, reason: Reason) -> None:
        context: ClientContext = connection.control
        self._hub.counters.closed(reason)
        if context.token is not None:
            self._hub.token_ends.forget(connection)
        self._log_end(connection, reason)
        self._hub.traces.closed(connection, reason)
        if reason is not Reason.EXPELLED:  # else another hub does what is due for the session, its Will included
            context.detach(reason)

    def _log_end(self, connection: Connection, reason: Reason) -> None:
        """A client with a session has left; one whose CONNECT was not answered is refused, unless it has left by itself."""
        hub, context, session = self._hub, connection.control, connection.session
        if session is not None:
            tenant = context.broker.record
            if hub.connection_log.has_line(tenant.id, tenant.name):
                hub.connection_log.disconnected(client_of(connection, session, tenant), reason)
        elif connection in hub.answered:
            hub.answered.remove(connection)
        elif reason not in _NO_REFUSALS:
            hub.connection_log.refused_unread(connection.listener.name, connection.peer, reason, reason.word)

    async def _guarded(self, handler: PacketHandler, connection: Connection, header: int, body: bytes) -> None:
        """The one place where an error of a packet handler becomes an answer."""
        try:
            await handler(self._hub, connection, header, body)
        except MqttError as error:
            _count_quota_refusal(connection, error)
            self._hub.plane.close(connection, error.reason)
        except TenantLimitError:
            self._hub.plane.close(connection, Reason.QUOTA)
        except UnavailableError as error:
            log.warning("store unavailable", peer=connection.peer, error=str(error))
            self._hub.plane.close(connection, Reason.SERVER_UNAVAILABLE)
        except Exception as error:  # the protocol edge: a defect of the hub closes one connection, and the hub goes on
            log.error("defect in the control plane", peer=connection.peer, exc_info=error)
            self._hub.plane.close(connection, Reason.IMPLEMENTATION)


def _count_quota_refusal(connection: Connection, error: MqttError) -> None:
    """Count a packet that exceeds a limit of its tenant as a refusal by that quota."""
    context: ClientContext = connection.control
    if isinstance(error, LimitExceeded) and context.broker is not None:
        context.broker.allowance.count_refusal(BY_NAME[error.limit])
