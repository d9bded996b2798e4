"""The one known error of the decoder: what a peer sent cannot be taken, and under which name of the list in `iothub/base/reasons.py`.

Knows nothing of what the edge does about it; `version` says in which form a refused CONNECT may be answered.
"""
# ruff: noqa: N818 - the specification calls them Malformed Packet and Protocol Error, the rest follows that

from __future__ import annotations

from iothub.base.errors import IotHubError
from iothub.base.reasons import Reason


class MqttError(IotHubError):
    """The peer's bytes are refused and its Network Connection must be closed [MQTT-4.13.1-1] [MQTT3-4.8.0-1].

    `reason` names the refusal. `version` is 3, 4 or 5 when a CONNECT was refused after its Protocol Level was read (answer in that
    form), else 0 (no answer before CONNACK).
    """

    def __init__(self, message: str, reason: Reason, *, version: int = 0) -> None:
        super().__init__(message)
        self.reason = reason
        self.version = version

    @property
    def reason_code(self) -> int:
        """MQTT 5.0 Reason Code for CONNACK or DISCONNECT."""
        return self.reason.code


class MalformedPacket(MqttError):
    """The packet cannot be parsed according to the specification (§1.2): 0x81."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.MALFORMED)


class ProtocolError(MqttError):
    """The packet is out of order or contains what the protocol does not allow (§1.2): 0x82."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.PROTOCOL_ERROR)


class PacketTooLarge(MqttError):
    """The Fixed Header declares more bytes than this connection may send, or the Will Payload is too long: 0x95."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.PACKET_TOO_LARGE)


class UnsupportedVersion(MqttError):
    """An MQTT client asks for a Protocol Level that is not served: CONNACK 0x84, or 0x01 in 3.x."""

    def __init__(self, message: str, *, version: int) -> None:
        super().__init__(message, Reason.UNSUPPORTED_VERSION, version=version)


class ClientIdInvalid(MqttError):
    """The Client Identifier is too long, or empty where it may not be: CONNACK 0x85, or 0x02 in 3.x."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.CLIENT_ID_INVALID)


class TopicNameInvalid(MqttError):
    """A Topic Name is empty or contains a wildcard: 0x90."""

    def __init__(self, message: str) -> None:
        super().__init__(message, Reason.TOPIC_NAME_INVALID)


class LimitExceeded(MqttError):
    """A packet carries more of something than one packet may: 0x97. `limit` is the quota's name."""

    def __init__(self, message: str, *, limit: str) -> None:
        super().__init__(message, Reason.QUOTA)
        self.limit = limit
