"""The one list of names for every close, refusal and drop: log, metric, event and API use the same word.

Knows no wire format beyond the two codes that belong to a name: MQTT 5.0 Reason Code (§2.4) and MQTT 3.1.1 CONNACK return code (§3.2.2.3).
"""

from __future__ import annotations

from enum import Enum, StrEnum

_OF_DISCONNECT = {0x84: 0x82, 0x85: 0x82, 0x88: 0x80, 0x8A: 0x98, 0x8C: 0x87}
"""What DISCONNECT has in place of a Reason Code that is for CONNACK only (§3.14.2.1)."""


class Reason(Enum):
    """Why a connection was refused or closed. Value: (name, Reason Code of 5.0, CONNACK return code of 3.x or 0 for "just close").

    `code` is that of CONNACK and of log, metric and event, `disconnect` that of DISCONNECT.
    """

    CLIENT = ("client", 0x00, 0)
    CLIENT_WITH_WILL = ("client_with_will", 0x04, 0)
    NETWORK = ("network", 0x80, 0)
    MALFORMED = ("malformed", 0x81, 0)
    PROTOCOL_ERROR = ("protocol_error", 0x82, 0)
    IMPLEMENTATION = ("implementation_specific_error", 0x83, 3)
    UNSUPPORTED_VERSION = ("unsupported_version", 0x84, 1)
    CLIENT_ID_INVALID = ("client_id_invalid", 0x85, 2)
    BAD_CREDENTIALS = ("bad_credentials", 0x87, 5)  # indistinguishable from NOT_AUTHORIZED for the peer (B69)
    NOT_AUTHORIZED = ("not_authorized", 0x87, 5)
    CREDENTIAL_REVOKED = ("credential_revoked", 0x87, 5)
    CREDENTIAL_EXPIRED = ("credential_expired", 0x87, 5)
    SERVER_UNAVAILABLE = ("server_unavailable", 0x88, 3)
    OVERLOAD = ("overload", 0x89, 3)
    BANNED = ("banned", 0x8A, 5)
    SERVER_SHUTDOWN = ("server_shutdown", 0x8B, 3)
    DRAINED = ("drained", 0x9C, 3)  # 0x8B if there is no other hub
    EXPELLED = ("expelled", 0x8B, 3)  # the other hubs go on without this one, and have its sessions
    BAD_AUTHENTICATION_METHOD = ("bad_authentication_method", 0x8C, 5)
    KEEPALIVE_TIMEOUT = ("keepalive_timeout", 0x8D, 0)
    TAKEN_OVER = ("taken_over", 0x8E, 0)
    TOPIC_NAME_INVALID = ("topic_name_invalid", 0x90, 0)
    RECEIVE_MAXIMUM_EXCEEDED = ("receive_maximum_exceeded", 0x93, 0)
    TOPIC_ALIAS_INVALID = ("topic_alias_invalid", 0x94, 0)
    PACKET_TOO_LARGE = ("packet_too_large", 0x95, 0)
    MESSAGE_RATE = ("message_rate", 0x96, 0)
    QUOTA = ("quota", 0x97, 3)
    ADMINISTRATIVE = ("administrative_action", 0x98, 0)
    TENANT_SUSPENDED = ("tenant_suspended", 0x98, 5)
    CONNECTION_RATE = ("connection_rate", 0x9F, 3)
    CONNECT_TIMEOUT = ("connect_timeout", 0x8D, 0)
    SLOW_CONSUMER = ("slow_consumer", 0x97, 0)
    STORE_UNAVAILABLE = ("store_unavailable", 0x97, 3)
    SESSION_DISCARDED = ("session_discarded", 0x98, 0)
    ADDRESS_DENIED = ("address_denied", 0x87, 5)
    FILE_DESCRIPTORS = ("file_descriptors", 0x89, 3)

    __hash__ = (
        object.__hash__
    )  # members are single objects; Enum's own hash runs in Python at every look into a dictionary

    def __init__(self, word: str, code: int, connack: int) -> None:
        self.word = word
        self.code = code
        self.connack = connack
        self.disconnect = _OF_DISCONNECT.get(code, code)


class Drop(Enum):
    """Why a message, or one delivery of it, was dropped. The value is the metric's label."""

    __hash__ = object.__hash__

    NO_SUBSCRIBERS = "no_subscribers"
    QUEUE_FULL = "queue_full"
    EXPIRED = "expired"
    TOO_LARGE = "too_large"
    QUOTA = "quota"
    DENIED = "denied"
    QOS0_SLOW = "qos0_slow"
    SESSION_ENDED = "session_ended"
    QOS0_OFFLINE = "qos0_offline"
    FANOUT = "fanout"
    STORE_FAILED = "store_failed"
    PURGED = "purged"
    HOOK = "hook"
    STREAM_REFUSED = "stream_refused"
    LINK_FULL = "link_full"
    ACCOUNTS_FAILED = "accounts_failed"


class EventLoss(StrEnum):
    """Why an event was not published below `$events`. The value is the word in metric and event."""

    RATE = "rate"  # the tenant has more events than `mqtt.events_rate`
    HELD = "held"  # its publishers are held for long, and too many wait
    OVERLOAD = "overload"  # the hub's buffers are full
    STOPPED = "stopped"  # the hub ends


class PeerRefusal(Enum):
    """Why the HELLO of a peer was refused. The value is the word in log, status and alarm, and in the frame that tells the other side."""

    INSTALLATION = "other_installation"
    VERSION = "incompatible_version"
    CERTIFICATE = "wrong_certificate"
    NUMBER = "node_number_in_use"  # it has the number of the hub that refuses it
    NODE = "other_node"  # not the one that was dialled
    INCARNATION = "old_incarnation"
    GONE = "gone"  # this very incarnation, for good: the accounts say so
    DIRECTION = "wrong_direction"  # the lower node number dials
    NUMBERS = "frames_out_of_step"  # what it has applied cannot be
    MALFORMED = "malformed"
    TIMEOUT = "no_hello"
    OVERLOAD = "too_many_handshakes"


class LinkClose(Enum):
    """Why a link went down. The value is the word in log and event."""

    LOST = "lost"
    SILENT = "peer_silent"
    BAD_FRAME = "bad_frame"
    REFUSED = "peer_refused"  # by the other side
    RELINKED = "relinked"  # the peer came again on another connection
    PEER_GONE = "peer_gone"  # what it had not acknowledged is dropped
    LEFT = "peer_left"  # the other side stops, and said so before it closed
    CLOSED = "closed"


class WireRefusal(StrEnum):
    """Why a connection between hubs ended before its HELLO; the value is the word in log and status."""

    CERTIFICATE_MISSING = "certificate_missing"
    CERTIFICATE_EXPIRED = "certificate_expired"
    CERTIFICATE_REFUSED = "certificate_refused"  # another authority's, most of all
    CERTIFICATE_OF_ANOTHER_NODE = "certificate_of_another_node"
    NO_TLS = "no_tls"
    TLS_FAILED = "tls_failed"
    TIMEOUT = "timeout"
    CLOSED = "closed"
    TOO_MANY = "too_many_connections"
