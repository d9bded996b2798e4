"""MQTT Control Packets as frozen values, the same for 3.1, 3.1.1 and 5.0.

Knows no bytes: `decode` and `encoder` move between these and the wire. What a version does not have keeps its default: no properties,
Reason Code 0, no subscription options beyond QoS.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from iothub.base.values import value
from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.properties import NO_PROPERTIES, Properties


@dataclass(frozen=True, slots=True)
class Will:
    """The Will Message of a CONNECT."""

    topic: str
    payload: bytes
    qos: int = 0
    is_retained: bool = False
    properties: Properties = NO_PROPERTIES


@value
class Connect:
    """§3.1. `version` is the Protocol Level (3, 4, 5); `is_clean_start` is CleanSession in 3.x. An absent password is not an empty one."""

    client_id: str
    version: int = MQTT_5_0
    is_clean_start: bool = True
    keep_alive_s: int = 0
    will: Will | None = None
    username: str | None = None
    password: bytes | None = field(default=None, repr=False)
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Connack:
    """§3.2. In 3.x `reason_code` is the return code, 0 to 5."""

    reason_code: int = 0
    is_session_present: bool = False
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Publish:
    """§3.3. `packet_id` is 0 exactly if `qos` is 0. An empty `topic` needs a Topic Alias."""

    topic: str
    payload: bytes = b""
    qos: int = 0
    is_retained: bool = False
    is_duplicate: bool = False
    packet_id: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One layout: PUBACK, PUBREC, PUBREL and PUBCOMP."""

    packet_id: int
    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Puback(Acknowledgement):
    """§3.4."""


@dataclass(frozen=True, slots=True)
class Pubrec(Acknowledgement):
    """§3.5."""


@dataclass(frozen=True, slots=True)
class Pubrel(Acknowledgement):
    """§3.6."""


@dataclass(frozen=True, slots=True)
class Pubcomp(Acknowledgement):
    """§3.7."""


@dataclass(frozen=True, slots=True)
class Subscription:
    """One Topic Filter with its Subscription Options (§3.8.3.1)."""

    topic_filter: str
    qos: int = 0
    is_no_local: bool = False
    is_retain_as_published: bool = False
    retain_handling: int = 0


@dataclass(frozen=True, slots=True)
class Subscribe:
    """§3.8."""

    packet_id: int
    subscriptions: tuple[Subscription, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Suback:
    """§3.9. One code for each Topic Filter of the SUBSCRIBE, in its order."""

    packet_id: int
    reason_codes: tuple[int, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsubscribe:
    """§3.10."""

    packet_id: int
    topic_filters: tuple[str, ...]
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Unsuback:
    """§3.11. 3.x has no codes here."""

    packet_id: int
    reason_codes: tuple[int, ...] = ()
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Pingreq:
    """§3.12."""


@dataclass(frozen=True, slots=True)
class Disconnect:
    """§3.14."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


@dataclass(frozen=True, slots=True)
class Auth:
    """§3.15, 5.0 only."""

    reason_code: int = 0
    properties: Properties = NO_PROPERTIES


Packet = (
    Connect
    | Connack
    | Publish
    | Puback
    | Pubrec
    | Pubrel
    | Pubcomp
    | Subscribe
    | Suback
    | Unsubscribe
    | Unsuback
    | Pingreq
    | Disconnect
    | Auth
)
