"""Handles DISCONNECT: the client keeps or withdraws its Will, and may change its Session Expiry Interval.

Knows no session rules: what the packet says is kept in the client context and applied when the connection closes.
"""

from __future__ import annotations

from typing import cast

from iothub.base.reasons import Reason
from iothub.engine.state import Connection
from iothub.mqtt.constants import STANDARD_LIMITS
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import ProtocolError
from iothub.mqtt.packets import Disconnect
from iothub_services.sessions.port import SessionControl
from iothub_tenants.broker.client_contexts import ClientContext, Leaving
from iothub_tenants.broker.hub import Hub

NORMAL = 0x00
PLAIN = 0xE0  # without a body: Reason Code 0x00 and no properties (§3.14.2.1); all that 3.x knows


def disconnect_plain(hub: Hub, connection: Connection, body: bytes) -> bool:
    """Close at once on a DISCONNECT without a body, as nearly all are; False: it has one, or the client is not connected."""
    if body or not connection.version:
        return False
    context: ClientContext = connection.control
    context.forget_will()
    hub.plane.close(connection, Reason.CLIENT)
    return True


async def disconnect(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Close as the client asks; with another Reason Code than 0x00 the Will is published [MQTT-3.14.4-3]."""
    context: ClientContext = connection.control
    limits = STANDARD_LIMITS
    if context.broker is not None and context.session is not None:
        limits = context.broker.packet_limits(context.session.device)
    packet = cast("Disconnect", decode_packet(header, body, connection.version, limits=limits))
    asked_s = packet.properties.session_expiry_interval_s
    expiry_s: int | None = None
    if asked_s is not None and context.session is not None:
        control: SessionControl = context.session.control
        if control.expiry_s == 0 and asked_s != 0:  # §3.14.2.2.2
            raise ProtocolError("DISCONNECT: a Session Expiry Interval of 0 cannot be changed")
        expiry_s = context.broker.expiry_of(context.session.device, asked_s) if context.broker else asked_s
    context.leaving = Leaving(packet.reason_code != NORMAL, expiry_s)
    hub.plane.close(connection, Reason.CLIENT if packet.reason_code == NORMAL else Reason.CLIENT_WITH_WILL)
