"""The AUTH walk: enhanced authentication (§4.12) in as many steps as the method wants, at CONNECT and again while connected.

Knows no method: plug-ins bring them. A method that nobody brought is refused with 0x8C at CONNECT.
"""

from __future__ import annotations

from iothub.engine.connection import Connection
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.errors import ProtocolError
from iothub_tenants.hub import Hub


class Exchange:
    """One enhanced authentication under way."""

    __slots__ = ("method",)

    def __init__(self, method: str) -> None:
        self.method = method


async def authenticate(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one AUTH."""
    decode_packet(header, body, connection.version)
    raise ProtocolError("AUTH: CONNECT named no Authentication Method")  # [MQTT-4.12.0-6]
