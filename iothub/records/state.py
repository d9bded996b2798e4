"""The state of one persistent session, its stored form, and `fold`: the one function that makes state from events.

Knows no log, no store and no live session. Brokers, the state service, the loader at start and the Spark job all call `fold`:
session state *is* checkpoint + tail folded.

Theory: a session that ended stays as a tombstone that keeps its last epoch; only `session.created` with a higher one begins a new incarnation.

Invariant: an event whose reader epoch is below the state's changes nothing. A log cannot refuse an event, so only the fold can fence a hub that
has lost a session and still writes events of it.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from operator import attrgetter, itemgetter
from typing import Any, NamedTuple

from iothub.base.errors import CorruptRecordError
from iothub.records.causes import UNREADABLE, in_words
from iothub.records.events import Event, EventType
from iothub.records.json_text import read_json, require_utf8

STATE_VERSION = 1

SubscriptionKey = tuple[str | None, str]  # (shared group, Topic Filter)


@dataclass(frozen=True, slots=True)
class SubscriptionState:
    """The options of one subscription; `identifier` 0: none."""

    qos: int
    no_local: bool = False
    retain_as_published: bool = False
    retain_handling: int = 0
    identifier: int = 0


@dataclass(frozen=True, slots=True)
class WillState:
    """The Will Message of the current or last connection."""

    topic: str
    payload: bytes
    qos: int
    retain: bool
    properties: bytes
    delay_s: int
    expiry_s: int | None = None


_NO_SUBSCRIPTIONS: Mapping[SubscriptionKey, SubscriptionState] = {}  # never changed


class SessionState(NamedTuple):
    """Everything that must be known to resume a persistent session, but its queue.

    `offset`: the log up to here is in it. `is_ended`: a tombstone, of which only key, epoch and offset count.
    A tuple, for a start and a replay make millions: a frozen dataclass takes five times as long.
    """

    tenant_id: int
    client_id: str
    epoch: int
    device: str = ""
    queue_id: int = 0
    protocol_version: int = 0
    session_expiry_s: int = 0
    created_at_ms: int = 0
    is_connected: bool = False
    connected_at_ms: int = 0
    disconnected_at_ms: int = 0
    disconnect_reason: str = ""
    subscriptions: Mapping[SubscriptionKey, SubscriptionState] = _NO_SUBSCRIPTIONS
    will: WillState | None = None
    is_ended: bool = False
    offset: int = 0
    device_id: int = 0  # of the device that the session is of; 0: it has none
    hub: str = ""  # which hub wrote the last event: it has the session; "": nobody says, for only one hub uses the log

    @property
    def key(self) -> tuple[int, str]:
        return self.tenant_id, self.client_id


_Draft = dict[str, Any]  # the fields of a state that events are changing: a new state for each event would cost more


def fold(state: SessionState | None, event: Event, offset: int = 0) -> SessionState | None:
    """Return the state after an event; pure. `offset`: the event's place in the log; what is folded already is ignored.

    Events without an epoch (transient sessions, analytics) change nothing.
    """
    return fold_all(state, ((offset, event),))


def fold_all(state: SessionState | None, events: Iterable[tuple[int, Event]]) -> SessionState | None:
    """Return the state after events, (offset, event) each, as if every one was folded by itself: a state is made once, at the end."""
    draft = None if state is None else state._asdict()
    is_changed = False
    for offset, event in events:
        if event.epoch == 0 or (draft is not None and offset and offset <= draft["offset"]):
            continue
        if event.type is EventType.SESSION_CREATED:
            if draft is None or event.epoch > draft["epoch"]:  # else it is of a predecessor, or folded before
                draft = _created(event, offset)
                is_changed = True
        elif draft is not None:
            is_changed |= _is_changed(draft, event, offset)
    return SessionState(**draft) if is_changed and draft is not None else state


def _is_changed(draft: _Draft, event: Event, offset: int) -> bool:
    """Let an event change a draft, unless it is fenced, late, or none that changes anything."""
    change = _CHANGES.get(event.type)
    if change is None or draft["is_ended"] or event.epoch < draft["epoch"]:
        return False
    change(draft, event)
    draft["epoch"] = event.epoch
    draft["offset"] = offset or draft["offset"]
    draft["hub"] = event.hub or draft["hub"]
    return True


def _created(event: Event, offset: int) -> _Draft:
    facts: Mapping[str, Any] = event.facts
    state = SessionState(
        tenant_id=event.tenant_id,
        client_id=event.client_id,
        epoch=event.epoch,
        device=facts["device"],
        queue_id=facts["queue_id"],
        protocol_version=facts["protocol_version"],
        session_expiry_s=facts["session_expiry_s"],
        created_at_ms=event.at_ms,
        disconnected_at_ms=event.at_ms,
        offset=offset,
        device_id=facts.get("device_id", 0),
        hub=event.hub,
    )
    return state._asdict()


def _resumed(draft: _Draft, event: Event) -> None:
    facts = event.facts
    draft["protocol_version"] = facts["protocol_version"]
    draft["session_expiry_s"] = facts["session_expiry_s"]
    draft["device_id"] = facts.get("device_id", draft["device_id"])


def _opened(draft: _Draft, event: Event) -> None:
    """A CONNECT is on its way to its CONNACK: if nothing else comes, its hub has died meanwhile, and the session is offline since then."""
    _resumed(draft, event)
    if not draft["is_connected"]:
        draft["disconnected_at_ms"] = event.at_ms


def _connected(draft: _Draft, event: Event) -> None:
    _resumed(draft, event)
    draft["is_connected"] = True
    draft["connected_at_ms"] = event.at_ms


def _disconnected(draft: _Draft, event: Event) -> None:
    facts = event.facts
    draft["is_connected"] = False
    draft["disconnected_at_ms"] = event.at_ms
    draft["disconnect_reason"] = facts.get("reason", "taken_over")
    expiry_s = facts.get("session_expiry_s")
    if expiry_s is not None:
        draft["session_expiry_s"] = expiry_s


def _ended(draft: _Draft, event: Event) -> None:
    del event
    ended = SessionState(draft["tenant_id"], draft["client_id"], draft["epoch"], is_ended=True)
    draft.update(ended._replace(offset=draft["offset"], hub=draft["hub"])._asdict())


def _subscribed(draft: _Draft, event: Event) -> None:
    facts: Mapping[str, Any] = event.facts
    options = SubscriptionState(
        facts["qos"],
        facts["no_local"],
        facts["retain_as_published"],
        facts["retain_handling"],
        facts["identifier"],
    )
    draft["subscriptions"] = {**draft["subscriptions"], (facts["group"], facts["filter"]): options}


def _unsubscribed(draft: _Draft, event: Event) -> None:
    gone = (event.facts["group"], event.facts["filter"])
    draft["subscriptions"] = {key: options for key, options in draft["subscriptions"].items() if key != gone}


def _will_set(draft: _Draft, event: Event) -> None:
    facts: Mapping[str, Any] = event.facts
    draft["will"] = WillState(
        facts["topic"],
        base64.b64decode(facts["payload"]),
        facts["qos"],
        facts["retain"],
        base64.b64decode(facts["properties"]),
        facts["delay_s"],
        facts.get("expiry_s"),
    )


def _will_cleared(draft: _Draft, event: Event) -> None:
    del event
    draft["will"] = None


_CHANGES: Mapping[EventType, Callable[[_Draft, Event], None]] = {
    EventType.SESSION_RESUMED: _opened,
    EventType.SESSION_CONNECTED: _connected,
    EventType.SESSION_DISCONNECTED: _disconnected,
    EventType.SESSION_TAKEN_OVER: _disconnected,
    EventType.SESSION_EXPIRED: _ended,
    EventType.SESSION_DISCARDED: _ended,
    EventType.SESSION_SUBSCRIBED: _subscribed,
    EventType.SESSION_UNSUBSCRIBED: _unsubscribed,
    EventType.WILL_SET: _will_set,
    EventType.WILL_CLEARED: _will_cleared,
}


# --- stored form

_JSON = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, check_circular=False)
_PLAIN = (  # in the order of the fields
    "tenant_id",
    "client_id",
    "epoch",
    "device",
    "queue_id",
    "protocol_version",
    "session_expiry_s",
    "created_at_ms",
    "is_connected",
    "connected_at_ms",
    "disconnected_at_ms",
    "disconnect_reason",
    "is_ended",
    "offset",
)
_plain_values = attrgetter(*_PLAIN)
_plain_items = itemgetter(*_PLAIN)


def encode_state(state: SessionState) -> bytes:
    """Return the whole record: JSON with a version, subscriptions in order, so that equal states are equal bytes."""
    value: dict[str, Any] = {"v": STATE_VERSION, **dict(zip(_PLAIN, _plain_values(state), strict=True))}
    if state.device_id:
        value["device_id"] = state.device_id  # not there in records of programs that did not know of it
    if state.hub:
        value["hub"] = state.hub  # the same
    value["subscriptions"] = [
        [group, topic_filter, o.qos, o.no_local, o.retain_as_published, o.retain_handling, o.identifier]
        for (group, topic_filter), o in sorted(
            state.subscriptions.items(), key=lambda item: (item[0][0] or "", item[0][1])
        )
    ]
    will = state.will
    value["will"] = will and [
        will.topic,
        base64.b64encode(will.payload).decode(),
        will.qos,
        will.retain,
        base64.b64encode(will.properties).decode(),
        will.delay_s,
        *([] if will.expiry_s is None else [will.expiry_s]),
    ]
    return _JSON.encode(value).encode()


def decode_state(record: bytes) -> SessionState:
    """Read a record. Raises CorruptRecordError: it is damaged, or of another version."""
    try:
        value = read_json(record)
        if value["v"] != STATE_VERSION:
            raise CorruptRecordError(f"damaged session state (format version {value['v']!r}, expected {STATE_VERSION})")
        require_utf8(record, value)
        subscriptions = {
            (group, topic_filter): _options(*options) for group, topic_filter, *options in value["subscriptions"]
        }
        *first, is_ended, offset = _plain_items(value)
        device_id, hub = value.get("device_id", 0), value.get("hub", "")
        rest: list[Any] = [subscriptions, _decode_will(value["will"]), is_ended, offset, device_id, hub]
        return SessionState(*first, *rest)
    except UNREADABLE as error:
        raise CorruptRecordError(f"damaged session state ({in_words(error)})") from error


@lru_cache(1_024, typed=True)
def _options(
    qos: int,
    no_local: bool = False,
    retain_as_published: bool = False,
    retain_handling: int = 0,
    identifier: int = 0,
) -> SubscriptionState:
    """Return the same value for the same options: a start reads millions, of which few differ."""
    return SubscriptionState(qos, no_local, retain_as_published, retain_handling, identifier)


def _decode_will(fields: list[Any] | None) -> WillState | None:
    if fields is None:
        return None
    topic, payload, qos, retain, properties, delay_s, *rest = fields
    (expiry_s,) = rest or [None]
    return WillState(
        topic,
        base64.b64decode(payload, validate=True),
        qos,
        retain,
        base64.b64decode(properties, validate=True),
        delay_s,
        expiry_s,
    )
