"""The state of one persistent session, its stored form, and `fold`: the one function that makes state from events.

Knows no log, no store and no live session. Brokers, the state service, the loader at start and the Spark job all call `fold`:
session state *is* checkpoint + tail folded.

Theory: in a log nothing can be refused, so only the fold can fence: an event whose reader epoch is below the state's is ignored (!). A session that
ended stays as a tombstone that keeps its last epoch; only `session.created` with a higher one begins a new incarnation.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from iothub.errors import CorruptRecordError, FutureRecordError
from iothub.records.events import Event, EventType

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


@dataclass(frozen=True, slots=True)
class SessionState:
    """Everything that must be known to resume a persistent session, but its queue.

    `offset`: the log up to here is in it. `is_ended`: a tombstone, of which only key, epoch and offset count.
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
    subscriptions: Mapping[SubscriptionKey, SubscriptionState] = field(default_factory=dict)
    will: WillState | None = None
    is_ended: bool = False
    offset: int = 0
    device_id: int = 0  # of the device that the session is of; 0: it has none
    hub: str = ""  # which hub wrote the last event: it has the session; "": nobody says, for only one hub uses the log

    @property
    def key(self) -> tuple[int, str]:
        return self.tenant_id, self.client_id


def fold(state: SessionState | None, event: Event, offset: int = 0) -> SessionState | None:
    """Return the state after an event; pure. `offset`: the event's place in the log; what is folded already is ignored.

    Events without an epoch (transient sessions, analytics) change nothing.
    """
    if event.epoch == 0 or (state is not None and offset and offset <= state.offset):
        return state
    if event.type is EventType.SESSION_CREATED:
        return _created(state, event, offset)
    if state is None or state.is_ended or event.epoch < state.epoch:
        return state
    change = _CHANGES.get(event.type)
    if change is None:
        return state
    return replace(change(state, event), epoch=event.epoch, offset=offset or state.offset, hub=event.hub or state.hub)


def _created(state: SessionState | None, event: Event, offset: int) -> SessionState:
    if state is not None and event.epoch <= state.epoch:
        return state  # of a predecessor, or folded before
    facts: Mapping[str, Any] = event.facts
    return SessionState(
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


def _resumed(state: SessionState, event: Event) -> SessionState:
    facts: Mapping[str, Any] = event.facts
    return replace(
        state,
        protocol_version=facts["protocol_version"],
        session_expiry_s=facts["session_expiry_s"],
        device_id=facts.get("device_id", state.device_id),
    )


def _connected(state: SessionState, event: Event) -> SessionState:
    return replace(_resumed(state, event), is_connected=True, connected_at_ms=event.at_ms)


def _disconnected(state: SessionState, event: Event) -> SessionState:
    facts: Mapping[str, Any] = event.facts
    expiry_s = facts.get("session_expiry_s")
    return replace(
        state,
        is_connected=False,
        disconnected_at_ms=event.at_ms,
        disconnect_reason=facts.get("reason", "taken_over"),
        session_expiry_s=state.session_expiry_s if expiry_s is None else expiry_s,
    )


def _ended(state: SessionState, event: Event) -> SessionState:
    del event
    return SessionState(state.tenant_id, state.client_id, state.epoch, is_ended=True)


def _subscribed(state: SessionState, event: Event) -> SessionState:
    facts: Mapping[str, Any] = event.facts
    options = SubscriptionState(
        facts["qos"],
        facts["no_local"],
        facts["retain_as_published"],
        facts["retain_handling"],
        facts["identifier"],
    )
    return replace(state, subscriptions={**state.subscriptions, (facts["group"], facts["filter"]): options})


def _unsubscribed(state: SessionState, event: Event) -> SessionState:
    gone = (event.facts["group"], event.facts["filter"])
    kept = {key: options for key, options in state.subscriptions.items() if key != gone}
    return replace(state, subscriptions=kept)


def _will_set(state: SessionState, event: Event) -> SessionState:
    facts: Mapping[str, Any] = event.facts
    will = WillState(
        facts["topic"],
        base64.b64decode(facts["payload"]),
        facts["qos"],
        facts["retain"],
        base64.b64decode(facts["properties"]),
        facts["delay_s"],
        facts.get("expiry_s"),
    )
    return replace(state, will=will)


def _will_cleared(state: SessionState, event: Event) -> SessionState:
    del event
    return replace(state, will=None)


_CHANGES: Mapping[EventType, Callable[[SessionState, Event], SessionState]] = {
    EventType.SESSION_RESUMED: _resumed,
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

_PLAIN = (
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


def encode_state(state: SessionState) -> bytes:
    """Return the whole record: JSON with a version, subscriptions in order, so that equal states are equal bytes."""
    value: dict[str, Any] = {"v": STATE_VERSION}
    value.update((name, getattr(state, name)) for name in _PLAIN)
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
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def decode_state(record: bytes) -> SessionState:
    """Read a record. Raises CorruptRecordError for damage, FutureRecordError for a future version."""
    try:
        value = json.loads(record)
        version = value["v"]
        if version != STATE_VERSION:
            raise _unknown_version(version)
        subscriptions = {
            (group, topic_filter): SubscriptionState(*options)
            for group, topic_filter, *options in value["subscriptions"]
        }
        return SessionState(
            **{name: value[name] for name in _PLAIN},
            device_id=value.get("device_id", 0),
            hub=value.get("hub", ""),
            subscriptions=subscriptions,
            will=_decode_will(value["will"]),
        )
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptRecordError(f"damaged session state ({type(error).__name__})") from error


def _unknown_version(version: object) -> CorruptRecordError:
    text = f"session state of format version {version!r}, this program knows {STATE_VERSION}: upgrade it"
    is_future = type(version) is int and version > STATE_VERSION
    return FutureRecordError(text) if is_future else CorruptRecordError(text)


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
