# cython: annotation_typing=False
"""One Application Message on its way through the plane, and one delivery of it that has to wait.

Knows no sessions and no windows; the encoded frames that it carries are shared by all its receivers (`iothub.engine.encode` makes them).
"""

from __future__ import annotations

from typing import Any


class Message:
    """One Application Message. Immutable once routed, but for the caches `frame*` and `message_id`.

    `properties` are the encoded 5.0 PUBLISH properties that are forwarded unaltered and in order, without length prefix, Topic Alias,
    Message Expiry Interval and Subscription Identifier. `expires_at`: wall clock seconds, 0.0 never.
    """

    def __init__(
        self,
        topic: bytes,
        payload: bytes,
        qos: int = 0,
        retain: bool = False,
        properties: bytes = b"",
        expires_at: float = 0.0,
        message_id: bytes = b"",
        publisher: Any = None,
        publisher_client_id: str = "",
    ) -> None:
        self.topic = topic
        self.payload = payload
        self.qos = qos
        self.retain = retain
        self.properties = properties
        self.expires_at = expires_at
        self.message_id = message_id  # 16 bytes, allocated only when something durable needs it
        self.publisher = publisher  # the Session, for No Local; None for wills, $SYS and the API
        self.publisher_client_id = publisher_client_id
        self.size = len(topic) + len(payload) + len(properties) + 120  # what holding it costs, in bytes
        # PUBLISH without flags and identifier, by family (3.x, 5.0) and whether it has a Packet Identifier; None until a receiver needs it.
        self.frame3: bytes | None = None
        self.frame3_identified: bytes | None = None
        self.frame5: bytes | None = None
        self.frame5_identified: bytes | None = None


def received(
    topic: bytes,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: bytes,
    expires_at: float,
    publisher: Any,
    publisher_client_id: str,
) -> Message:
    """Make the Message of a PUBLISH. The same as the constructor, without Python's way of passing arguments: it runs once per message."""
    message: Message = Message.__new__(Message)
    message.topic = topic
    message.payload = payload
    message.qos = qos
    message.retain = retain
    message.properties = properties
    message.expires_at = expires_at
    message.message_id = b""
    message.publisher = publisher
    message.publisher_client_id = publisher_client_id
    message.size = len(topic) + len(payload) + len(properties) + 120
    message.frame3 = None
    message.frame3_identified = None
    message.frame5 = None
    message.frame5_identified = None
    return message


def copy_of(message: Message) -> Message:
    """Return the same message without its id, for a store that gives it one. Its frames are not taken along."""
    return received(
        message.topic,
        message.payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        message.publisher,
        message.publisher_client_id,
    )


def blocks(message: Message) -> int:
    """Return how many messages of 4 KiB this one is worth to metering: Topic Name, payload and properties, every block begun."""
    return (len(message.topic) + len(message.payload) + len(message.properties) + 4095) >> 12


class Delivery:
    """One message that waits in a session's backlog. `position` is 0 for QoS 0 and for transient sessions.

    `is_shared`: of a page of a queue; it came there by a shared subscription.
    """

    def __init__(
        self,
        message: Message,
        qos: int,
        retain: bool,
        identifiers: tuple[int, ...],
        position: int = 0,
        group: Any = None,
    ) -> None:
        self.message = message
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.position = position
        self.group = group  # the shared group that chose this session: it chooses another one if this session ends
        self.is_shared = False


def loaded(
    message: Message, qos: int, retain: bool, identifiers: tuple[int, ...], position: int, is_shared: bool
) -> Delivery:
    """Make one of a page of a queue. The same as the constructor, without Python's way of passing arguments: it runs once per message."""
    delivery: Delivery = Delivery.__new__(Delivery)
    delivery.message = message
    delivery.qos = qos
    delivery.retain = retain
    delivery.identifiers = identifiers
    delivery.position = position
    delivery.group = None
    delivery.is_shared = is_shared
    return delivery
