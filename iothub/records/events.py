"""The events of the log: their types, their facts, and their stored form (key and versioned JSON value).

Knows no log and no session logic: what an event does to a session's state is `iothub.records.state.fold`.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Mapping
from dataclasses import field
from enum import Enum
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError
from iothub.base.values import value
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.json_text import read_json, require_utf8

EVENT_VERSION = 1
GENERATION_BITS = 40  # of an offset; above them stands how often the log was lost and begun anew
_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)  # values are flat
_text_json: Callable[[str], str] = json.encoder.encode_basestring

Fact = str | int | float | bool | None

HUB_FACT = "hub"  # which hub wrote the event, where several hubs share a log: "node number.incarnation"


class Topic(Enum):
    """Two logs with a retention each. The value is the name outside this process (Kafka)."""

    SESSIONS = "iothub.session-events"  # *the* log: session state is its fold
    ANALYTICS = "iothub.analytics-events"


class EventType(Enum):
    """What happened. The value is the word in the log, on topics and in the API."""

    SESSION_CREATED = "session.created"
    SESSION_RESUMED = "session.resumed"
    SESSION_CONNECTED = "session.connected"
    SESSION_DISCONNECTED = "session.disconnected"
    SESSION_TAKEN_OVER = "session.taken_over"
    SESSION_EXPIRED = "session.expired"
    SESSION_DISCARDED = "session.discarded"
    SESSION_SUBSCRIBED = "session.subscribed"
    SESSION_UNSUBSCRIBED = "session.unsubscribed"
    WILL_SET = "will.set"
    WILL_CLEARED = "will.cleared"
    MESSAGE_DROPPED = "message.dropped"
    QUOTA_REFUSED = "quota.refused"
    AUTH_FAILED = "auth.failed"
    TENANT_SAMPLED = "tenant.sampled"
    USAGE_COUNTED = "usage.counted"

    def __init__(self, word: str) -> None:
        self.word = word  # as `value`, which Enum looks up in Python
        self.topic = Topic.SESSIONS if word.startswith(("session.", "will.")) else Topic.ANALYTICS


@value
class Event:
    """One event. `epoch`: the reader epoch of a persistent session, 0 for everything else (such events are not folded).

    `facts`: flat, JSON scalars only; the functions below build those that the fold reads.
    """

    type: EventType
    tenant_id: int
    client_id: str
    epoch: int
    at_ms: int  # Unix time
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @property
    def key(self) -> str:
        return f"{self.tenant_id}/{self.client_id}"

    @property
    def hub(self) -> str:
        """Which hub wrote it; "": nobody says, for only one hub uses the log."""
        return str(self.facts.get(HUB_FACT, ""))

    def written_by(self, hub: str) -> Event:
        """Return the event with its writer's name on it."""
        facts = {**self.facts, HUB_FACT: hub}
        return Event(self.type, self.tenant_id, self.client_id, self.epoch, self.at_ms, facts)


def hub_name(number: int, incarnation: int) -> str:
    """Return what a hub writes on its events: its node number, and which of this number's hubs it is."""
    return f"{number}.{incarnation}"


def number_of_hub(hub: str) -> int | None:
    """Return the node number in a hub's name; None: there is none."""
    number, _, incarnation = hub.partition(".")
    return int(number) if number.isdigit() and incarnation else None


class Subject(NamedTuple):
    """Whom an event is about, and when it happened: what every event has."""

    tenant_id: int
    client_id: str
    epoch: int
    at_ms: int


def _encoder_of_facts() -> Callable[[Mapping[str, Fact]], str]:
    """Return what `_JSON.encode` does, with the C encoder made once: the standard library makes one for each value, which takes most of its time."""
    make = getattr(json.encoder, "c_make_encoder", None)
    if make is None:
        return _JSON.encode
    write = make(None, _JSON.default, json.encoder.encode_basestring, None, ":", ",", False, False, True)
    return lambda facts: "".join(write(facts, 0))


_facts_json = _encoder_of_facts()


def encode_event(event: Event) -> bytes:
    """Return the stored value."""
    client, facts = _text_json(event.client_id), _facts_json(event.facts)
    head = f'"v":{EVENT_VERSION},"type":"{event.type.word}","tenant":{event.tenant_id},"client":{client}'
    return f'{{{head},"epoch":{event.epoch},"at":{event.at_ms},"facts":{facts}}}'.encode()


def partition_of(key: str, partitions: int) -> int:
    """Return the partition of a key in a log with this number of partitions: all events of a session are in one, in their order."""
    return zlib.crc32(key.encode()) % partitions


def decode_event(value: bytes) -> Event:
    """Read a stored value. Raises CorruptRecordError: it is damaged, or of a version or a type that this program does not know."""
    try:
        fields = read_json(value)
        if fields["v"] != EVENT_VERSION:
            raise CorruptRecordError(f"damaged event (format version {fields['v']!r}, expected {EVENT_VERSION})")
        require_utf8(value, fields)
        event = Event(
            EventType(fields["type"]),
            fields["tenant"],
            fields["client"],
            fields["epoch"],
            fields["at"],
            fields["facts"],
        )
    except UNREADABLE as error:
        raise CorruptRecordError(f"damaged event ({in_words(error)})") from error
    _check(event)
    return event


def read_event(value: bytes, key: bytes, partition: int, partitions: int, topic: Topic = Topic.SESSIONS) -> Event:
    """Read an event of a log where it stands: hub and jobs pass over whatever this refuses.

    Raises CorruptRecordError: as `decode_event`, or a session event is not where its key belongs. Folded from another partition it would be out of
    order, under another key it would be in the hub's fold and not in the checkpoint's.
    """
    event = decode_event(value)
    if topic is Topic.SESSIONS:
        if key != event.key.encode():
            stands = "under the key of another session" if key else "without a key"
            raise CorruptRecordError(f"damaged event (event of {event.key[:200]} {stands})")
        home = partition_of(event.key, partitions) if partitions > 1 else 0
        if home != partition:
            raise CorruptRecordError(f"damaged event (its key belongs to partition {home})")
    return event


def session_created(
    subject: Subject,
    *,
    device: str,
    queue_id: int,
    protocol_version: int,
    session_expiry_s: int,
    device_id: int = 0,
) -> Event:
    """A persistent session's incarnation begins; `subject.epoch` must lie above that of every predecessor.

    `device_id`: the number of the device among all that ever had its name; 0: it has none.
    """
    facts: dict[str, Fact] = {
        "device": device,
        "queue_id": queue_id,
        "protocol_version": protocol_version,
        "session_expiry_s": session_expiry_s,
    }
    return _event(EventType.SESSION_CREATED, subject, **facts, **_numbered(device_id))


def session_resumed(subject: Subject, *, protocol_version: int, session_expiry_s: int, device_id: int = 0) -> Event:
    """A reader claimed the session's queue: `subject.epoch` is the claim's."""
    facts: dict[str, Fact] = {"protocol_version": protocol_version, "session_expiry_s": session_expiry_s}
    return _event(EventType.SESSION_RESUMED, subject, **facts, **_numbered(device_id))


def _numbered(device_id: int) -> dict[str, Fact]:
    return {"device_id": device_id} if device_id else {}


def session_connected(
    subject: Subject, *, device: str, protocol_version: int, session_expiry_s: int, peer: str, keep_alive_s: int
) -> Event:
    """A connection was admitted (transient sessions too, with epoch 0)."""
    facts: dict[str, Fact] = {
        "device": device,
        "protocol_version": protocol_version,
        "session_expiry_s": session_expiry_s,
        "peer": peer,
        "keep_alive_s": keep_alive_s,
    }
    return Event(EventType.SESSION_CONNECTED, *subject, facts)


def session_disconnected(subject: Subject, *, reason: str, session_expiry_s: int | None = None) -> Event:
    """The connection has ended. `session_expiry_s`: only when DISCONNECT changed it."""
    return Event(EventType.SESSION_DISCONNECTED, *subject, {"reason": reason, "session_expiry_s": session_expiry_s})


def session_taken_over(subject: Subject, *, by: str) -> Event:
    """Another connection (`by`: its address) took the Client Identifier."""
    return _event(EventType.SESSION_TAKEN_OVER, subject, by=by)


def session_expired(subject: Subject) -> Event:
    """The Session Expiry Interval has passed."""
    return _event(EventType.SESSION_EXPIRED, subject)


def session_discarded(subject: Subject, *, reason: str) -> Event:
    """The session ended otherwise: Clean Start, an operator, its tenant's end."""
    return _event(EventType.SESSION_DISCARDED, subject, reason=reason)


def session_subscribed(
    subject: Subject,
    *,
    topic_filter: str,
    group: str | None,
    qos: int,
    no_local: bool,
    retain_as_published: bool,
    retain_handling: int,
    identifier: int,
) -> Event:
    """A subscription was made or replaced. `topic_filter` is without `$share/{group}/`; `identifier` 0: none."""
    return _event(
        EventType.SESSION_SUBSCRIBED,
        subject,
        filter=topic_filter,
        group=group,
        qos=qos,
        no_local=no_local,
        retain_as_published=retain_as_published,
        retain_handling=retain_handling,
        identifier=identifier,
    )


def session_unsubscribed(subject: Subject, *, topic_filter: str, group: str | None) -> Event:
    return _event(EventType.SESSION_UNSUBSCRIBED, subject, filter=topic_filter, group=group)


def will_set(
    subject: Subject,
    *,
    topic: str,
    payload: bytes,
    qos: int,
    retain: bool,
    properties: bytes,
    delay_s: int,
    expiry_s: int | None = None,
) -> Event:
    """A connection with a Will Message. `properties`: encoded, as in `iothub.records.message`; `expiry_s`: None, it does not expire."""
    facts: dict[str, Fact] = {
        "topic": topic,
        "payload": base64.b64encode(payload).decode(),
        "qos": qos,
        "retain": retain,
        "properties": base64.b64encode(properties).decode(),
        "delay_s": delay_s,
    }
    if expiry_s is not None:
        facts["expiry_s"] = expiry_s
    return _event(EventType.WILL_SET, subject, **facts)


def will_cleared(subject: Subject) -> Event:
    """The Will Message was published or is not to be."""
    return _event(EventType.WILL_CLEARED, subject)


def _event(event_type: EventType, subject: Subject, **facts: Fact) -> Event:
    return Event(event_type, subject.tenant_id, subject.client_id, subject.epoch, subject.at_ms, facts)


# What the fold reads; an event without it is damaged.
_NEEDED: Mapping[EventType, tuple[str, ...]] = {
    EventType.SESSION_CREATED: ("device", "queue_id", "protocol_version", "session_expiry_s"),
    EventType.SESSION_RESUMED: ("protocol_version", "session_expiry_s"),
    EventType.SESSION_CONNECTED: ("protocol_version", "session_expiry_s"),
    EventType.SESSION_SUBSCRIBED: (
        "filter",
        "group",
        "qos",
        "no_local",
        "retain_as_published",
        "retain_handling",
        "identifier",
    ),
    EventType.SESSION_UNSUBSCRIBED: ("filter", "group"),
    EventType.WILL_SET: ("topic", "payload", "qos", "retain", "properties", "delay_s"),
}

_INTEGERS = {int}  # not `bool`, which is one
_SCALAR = frozenset((str, int, float, bool, type(None)))

# What the fold makes of it must fit the keys of the stores, the protocol's fields, and the calendar.
_TENANTS = 1 << 32
_IDS = 1 << 63
_LATEST_MS = 253_402_300_800_000  # the year 10000


def _is_text(fact: object) -> bool:
    return type(fact) is str


def _is_text_or_none(fact: object) -> bool:
    return fact is None or type(fact) is str


def _is_flag(fact: object) -> bool:
    return type(fact) is bool


def _is_small(fact: object) -> bool:
    return type(fact) is int and 0 <= fact < 1 << 31


def _is_seconds(fact: object) -> bool:
    return type(fact) is int and 0 <= fact < 1 << 32


def _is_id(fact: object) -> bool:
    return type(fact) is int and 0 <= fact < _IDS


def _is_base64(fact: object) -> bool:
    try:
        base64.b64decode(str(fact))
    except ValueError:
        return False
    return type(fact) is str


_FITS: Mapping[str, Callable[[object], bool]] = {
    "device": _is_text,
    "queue_id": _is_id,
    "device_id": _is_id,
    "protocol_version": _is_small,
    "session_expiry_s": _is_seconds,
    "reason": _is_text,
    "filter": _is_text,
    "group": _is_text_or_none,
    "qos": _is_small,
    "no_local": _is_flag,
    "retain_as_published": _is_flag,
    "retain_handling": _is_small,
    "identifier": _is_small,
    "topic": _is_text,
    "payload": _is_base64,
    "retain": _is_flag,
    "properties": _is_base64,
    "delay_s": _is_seconds,
    "expiry_s": _is_seconds,
    HUB_FACT: _is_text,
}


def _check(event: Event) -> None:
    numbers = {type(event.tenant_id), type(event.epoch), type(event.at_ms)}
    if numbers != _INTEGERS or not isinstance(event.client_id, str):
        raise CorruptRecordError("damaged event (a field has the wrong type)")
    if not (0 <= event.tenant_id < _TENANTS and 0 <= event.epoch < _IDS and 0 <= event.at_ms < _LATEST_MS):
        raise CorruptRecordError("damaged event (a number in it is out of bounds)")
    facts = event.facts
    if not isinstance(facts, dict) or not _SCALAR.issuperset(map(type, facts.values())):
        raise CorruptRecordError("damaged event (facts must be flat)")
    needed = _NEEDED.get(event.type, ())
    for name in needed:
        if name not in facts:
            raise CorruptRecordError(f"damaged event (a {event.type.value} without {name})")
    if event.type.topic is Topic.SESSIONS:
        for name, fact in facts.items():
            fits = _FITS.get(name)
            is_silent = fact is None and name not in needed
            if fits is not None and not (is_silent or fits(fact)):
                raise CorruptRecordError(f"damaged event (its {name} is {str(fact)[:40]!r})")
