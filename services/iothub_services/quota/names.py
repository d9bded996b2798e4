"""Every name of a limit, in one Enum for grammar, ledger, engine and docs.

Knows no tenant and no usage: what a name means, not how much of it is left.
"""

from __future__ import annotations

from enum import Enum


class Scope(Enum):
    """Whose usage a limit counts."""

    TENANT = "tenant"
    DEVICE = "device"
    SESSION = "session"
    GROUP = "group"  # one shared-subscription group
    PACKET = "packet"
    MESSAGE = "message"


class Kind(Enum):
    """How usage is counted."""

    COUNT = "count"  # reserved and released: exact
    RATE = "rate"  # units per window: token buckets below an hour, durable calendar windows from an hour on
    BOUND = "bound"  # compared with one packet, message or session; nothing is counted


class Unit(Enum):
    """The unit of a value, which decides its suffixes: `KiB MiB GiB` for bytes, `s m h d` for seconds."""

    ITEMS = "items"
    BYTES = "bytes"
    SECONDS = "seconds"


MOST_LEVELS = 1_024
"""The maximum for every plan; `unlimited` means this. Far beyond practical use, because each level costs a step of every topic match."""

_BYTES = Unit.BYTES
_Row = tuple[str, Scope, Kind, Unit, str | None, int, int, str]


def _count(name: str, scope: Scope, standard: str, doc: str, unit: Unit = Unit.ITEMS, *, least: int = 0) -> _Row:
    return name, scope, Kind.COUNT, unit, standard, least, 0, doc


def _rate(name: str, scope: Scope, standard: str | None, doc: str, unit: Unit = Unit.ITEMS) -> _Row:
    return name, scope, Kind.RATE, unit, standard, 1, 0, doc


def _bound(name: str, scope: Scope, standard: str, bounds: tuple[int, int], doc: str, unit: Unit = Unit.ITEMS) -> _Row:
    return name, scope, Kind.BOUND, unit, standard, *bounds, doc


def _seconds(name: str, standard: str, most: int, doc: str) -> _Row:
    return name, Scope.SESSION, Kind.BOUND, Unit.SECONDS, standard, 1, most, doc


class Quota(Enum):
    """One limit. The value is its name. A name that a plan and those it inherits from do not have is unlimited.

    `least` and `most` (0: none) bound its value. `standard` is its value in the plan `standard`, as the grammar
    writes it; None: unlimited there.
    """

    _value_: str
    scope: Scope
    kind: Kind
    unit: Unit
    standard: str | None
    least: int
    most: int
    doc: str

    CONNECTIONS = _count("connections", Scope.TENANT, "1000", "open connections")
    CONNECTS = _rate("connects", Scope.TENANT, "50/1s", "CONNECT packets accepted")
    SESSIONS = _count("sessions", Scope.TENANT, "2000", "persistent sessions, connected or not")
    SESSION_EXPIRY_S = _seconds(
        "session_expiry_s", "7d", 0xFFFFFFFE, "maximum Session Expiry Interval; a longer one is reduced"
    )
    KEEP_ALIVE_MIN_S = _seconds("keep_alive_min_s", "1s", 65_535, "minimum Keep Alive; a shorter one is raised")
    PUBLISH_MESSAGES = _rate("publish_messages", Scope.TENANT, "500/1s,10000000/1d", "PUBLISH packets from all devices")
    PUBLISH_BYTES = _rate("publish_bytes", Scope.TENANT, "1MiB/1s", "bytes of PUBLISH packets from all devices", _BYTES)
    DEVICE_PUBLISH_MESSAGES = _rate("device_publish_messages", Scope.DEVICE, None, "PUBLISH packets from one device")
    DEVICE_PUBLISH_BYTES = _rate(
        "device_publish_bytes", Scope.DEVICE, None, "bytes of PUBLISH packets from one device", _BYTES
    )
    DELIVER_MESSAGES = _rate("deliver_messages", Scope.TENANT, "5000/1s", "messages sent to all devices")
    DELIVER_BYTES = _rate("deliver_bytes", Scope.TENANT, "10MiB/1s", "bytes sent to all devices", _BYTES)
    DEVICE_DELIVER_MESSAGES = _rate("device_deliver_messages", Scope.DEVICE, None, "messages sent to one device")
    DEVICE_DELIVER_BYTES = _rate("device_deliver_bytes", Scope.DEVICE, None, "bytes sent to one device", _BYTES)
    SUBSCRIPTIONS = _count("subscriptions", Scope.TENANT, "20000", "subscriptions of all sessions")
    SESSION_SUBSCRIPTIONS = _count("session_subscriptions", Scope.SESSION, "100", "subscriptions of one session")
    SUBSCRIBES = _rate("subscribes", Scope.TENANT, "100/1s", "Topic Filters subscribed")
    SHARED_GROUPS = _count("shared_groups", Scope.TENANT, "1000", "shared-subscription groups")
    GROUP_MEMBERS = _count("group_members", Scope.GROUP, "1000", "members of one shared group", least=1)
    FILTER_LEVELS = _bound("filter_levels", Scope.PACKET, "128", (1, MOST_LEVELS), "levels of a Topic Filter")
    TOPIC_LEVELS = _bound("topic_levels", Scope.PACKET, "128", (1, MOST_LEVELS), "levels of a Topic Name")
    TOPIC_BYTES = _bound(
        "topic_bytes", Scope.PACKET, "4KiB", (1, 65_535), "bytes of a Topic Name or Topic Filter", _BYTES
    )
    FANOUT = _bound("fanout", Scope.MESSAGE, "10000", (1, 0), "deliveries of one message")
    FANOUT_BYTES = _bound(
        "fanout_bytes", Scope.MESSAGE, "64MiB", (1, 0), "bytes of all deliveries of one message", _BYTES
    )
    PERSISTENT_FANOUT = _rate(
        "persistent_fanout", Scope.TENANT, "50000/1s", "deliveries stored for persistent sessions"
    )
    QUEUED_MESSAGES = _count("queued_messages", Scope.TENANT, "10000000", "messages stored for all sessions")
    QUEUED_BYTES = _count("queued_bytes", Scope.TENANT, "1GiB", "bytes stored for all sessions", _BYTES)
    SESSION_QUEUED_MESSAGES = _count(
        "session_queued_messages", Scope.SESSION, "100000", "messages stored for one session", least=1
    )
    SESSION_QUEUED_BYTES = _count(
        "session_queued_bytes", Scope.SESSION, "64MiB", "bytes stored for one session", _BYTES, least=1
    )
    RETAINED_MESSAGES = _count("retained_messages", Scope.TENANT, "10000", "retained messages")
    RETAINED_BYTES = _count("retained_bytes", Scope.TENANT, "64MiB", "bytes of retained messages", _BYTES)
    PACKET_BYTES = _bound("packet_bytes", Scope.PACKET, "1MiB", (64, 268_435_460), "bytes of a Control Packet", _BYTES)
    RECEIVE_MAXIMUM = _bound(
        "receive_maximum", Scope.PACKET, "64", (1, 65_535), "unacknowledged QoS 1 and 2 PUBLISH packets from a client"
    )
    TOPIC_ALIASES = _bound("topic_aliases", Scope.PACKET, "16", (0, 65_535), "Topic Alias Maximum")
    WILL_BYTES = _bound("will_bytes", Scope.PACKET, "64KiB", (1, 65_536), "bytes of a Will Payload", _BYTES)
    USER_PROPERTIES = _bound("user_properties", Scope.PACKET, "128", (1, 0), "User Properties of a packet")
    SUBSCRIBE_FILTERS = _bound(
        "subscribe_filters", Scope.PACKET, "100", (1, 0), "Topic Filters of a SUBSCRIBE or UNSUBSCRIBE"
    )
    STREAMS = _count("streams", Scope.TENANT, "10", "streams to and from Kafka")
    STREAM_MESSAGES = _rate("stream_messages", Scope.TENANT, "5000/1s", "messages to and from streams")
    STREAM_BYTES = _rate("stream_bytes", Scope.TENANT, "10MiB/1s", "bytes to and from streams", _BYTES)
    API_REQUESTS = _rate("api_requests", Scope.TENANT, "50/1s", "requests to the API")

    def __new__(
        cls, name: str, scope: Scope, kind: Kind, unit: Unit, standard: str | None, least: int, most: int, doc: str
    ) -> Quota:
        quota = object.__new__(cls)
        quota._value_ = name
        quota.scope, quota.kind, quota.unit = scope, kind, unit
        quota.standard, quota.least, quota.most, quota.doc = standard, least, most, doc
        return quota

    # Members are single objects; Enum's own hash runs in Python at every dictionary lookup.
    __hash__ = object.__hash__

    @property
    def is_for_devices(self) -> bool:
        """Whether a device may have its own limit: not if all devices share one count, or if the message plane has one value per tenant."""
        return self.scope not in (Scope.TENANT, Scope.GROUP) and self not in _ALIKE

    @property
    def has_trial(self) -> bool:
        """Whether `dry-run:` works for it: only for what the quota service counts, not for bounds."""
        return self.kind is Kind.RATE or (self.kind is Kind.COUNT and self not in _ELSEWHERE)


_ALIKE = frozenset({Quota.TOPIC_LEVELS, Quota.TOPIC_BYTES, Quota.USER_PROPERTIES, Quota.FANOUT, Quota.FANOUT_BYTES})
_ELSEWHERE = frozenset(  # counted by the queues' stores and by the accounts
    {
        Quota.QUEUED_MESSAGES,
        Quota.QUEUED_BYTES,
        Quota.SESSION_QUEUED_MESSAGES,
        Quota.SESSION_QUEUED_BYTES,
        Quota.STREAMS,
    }
)
BY_NAME = {str(quota.value): quota for quota in Quota}
