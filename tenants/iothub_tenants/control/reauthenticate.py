"""Handles AUTH: the client's next step of an enhanced authentication, or the start of a re-authentication (§4.12.1).

Knows no Authentication Method: plug-ins do (`proving`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.hooks import Challenge, Proof
from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import MqttError, ProtocolError
from iothub.mqtt.packets import Auth
from iothub_tenants.broker.client_contexts import ClientContext, Exchange
from iothub_tenants.broker.hub import Hub
from iothub_tenants.control.authentication import CONTINUE, REAUTHENTICATE, auth_packet, send_challenge

SUCCESS = 0x00


async def authenticate(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one AUTH. The method never changes [MQTT-4.12.0-5] [MQTT-4.12.1-1]."""
    packet = cast("Auth", decode_packet(header, body, MQTT_5_0))
    context: ClientContext = connection.control
    exchange = context.exchange
    if exchange is None or packet.properties.authentication_method != exchange.method:
        raise ProtocolError("AUTH: not the Authentication Method of CONNECT")
    data = packet.properties.authentication_data
    if exchange.awaited is not None and packet.reason_code == CONTINUE:
        awaited, exchange.awaited = exchange.awaited, None
        awaited.callback(data)
        return  # the CONNECT, or the re-authentication begun below, continues and answers
    if context.session is None or packet.reason_code != REAUTHENTICATE:
        raise ProtocolError("AUTH: out of order")
    await _reauthenticate(hub, connection, exchange, data)


async def _reauthenticate(hub: Hub, connection: Connection, exchange: Exchange, data: bytes | None) -> None:
    """Re-authenticate a connected client; the session stays online meanwhile, and the connection closes if it fails [MQTT-4.12.1-2]."""
    hook = hub.hooks.authenticate
    exchange.attempt = replace(exchange.attempt, data=data, memory={})
    while not connection.is_closed:
        step = await hook(exchange.attempt) if hook is not None else None
        if step is True or isinstance(step, Proof):
            last = step.data if isinstance(step, Proof) else None
            hub.plane.send(connection, auth_packet(SUCCESS, exchange.method, last))
            hub.plane.resume(connection)
            return
        if not isinstance(step, Challenge):
            raise MqttError("re-authentication failed", Reason.NOT_AUTHORIZED)
        answer = await send_challenge(hub, connection, exchange, step.data)
        exchange.attempt = replace(exchange.attempt, data=answer)
