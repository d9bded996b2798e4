"""What happens when a limit is exceeded: one table for control plane, engine tests and documentation.

Knows no packets and decides nothing: for each limit and protocol version, the answer and whether the connection closes.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from iothub_services.quota.names import Quota


class Hit(Enum):
    """The exceeded limit; the value is the row's title in the documentation."""

    CONNECTIONS = "tenant connections"
    CONNECT_RATE = "tenant connects per second"
    OVERLOAD = "overload"
    USE_ANOTHER_SERVER = "draining"
    SERVER_MOVED = "moved"
    SESSIONS = "persistent sessions"
    INBOUND_RATE = "inbound rate or bandwidth"
    INBOUND_WINDOW = "hourly, daily, monthly messages or bytes"
    OUTBOUND_RATE = "outbound rate or bandwidth"
    SUBSCRIPTIONS = "subscriptions, groups, subscribe rate"
    RETAINED = "retained count or bytes"
    PACKET_BYTES = "packet too large"
    WILL_BYTES = "Will Payload too large"
    PACKET_PARTS = "User Properties or Topic Filters of one packet"
    TOPIC_NAME = "topic levels or length"
    TOPIC_FILTER = "filter levels or length, malformed filter"
    RECEIVE_MAXIMUM = "in-flight above Receive Maximum"
    TOPIC_ALIAS = "Topic Alias above the maximum"
    QUEUE = "queue full, slow consumer"
    FANOUT = "deliveries of one message"
    AGREED = "Keep Alive or Session Expiry Interval outside the bounds"
    API_RATE = "API requests"
    STREAMS = "streams of a tenant"
    DENIED_CONNECT = "denied CONNECT (also Will, Client Identifier)"
    DENIED_SUBSCRIBE = "denied SUBSCRIBE"
    DENIED_PUBLISH = "denied PUBLISH"


class Answer(Enum):
    """The packet with the answer."""

    NONE = ""
    CONNACK = "CONNACK"
    SUBACK = "SUBACK"
    PUBACK = "PUBACK/PUBREC"
    DISCONNECT = "DISCONNECT"
    HTTP = "HTTP"


class Effect(Enum):
    """What happens to the message or request, in words for the documentation."""

    REFUSED = "refused"
    PAUSED = "paused (TCP back-pressure) for a limited time, then"
    DROPPED = "dropped"
    LATER = "delivered later from the backlog, dropped by policy when it is full"
    BY_POLICY = "dropped by policy"
    NOT_RETAINED = "delivered live, not retained"
    NOT_CREATED = "not created"
    ADJUSTED = "adjusted"
    UNREAD = "not read until earlier ones are answered"


@dataclass(frozen=True, slots=True)
class Step:
    """One consequence. `qos`: of which PUBLISH ("" for all). `code`: Reason Code, CONNACK return code or HTTP status; 0: none."""

    effect: Effect
    answer: Answer = Answer.NONE
    code: int = 0
    is_closed: bool = False
    qos: str = ""


@dataclass(frozen=True, slots=True)
class Reaction:
    """What happens, in order or by QoS."""

    steps: tuple[Step, ...]

    def step(self, qos: int = 0) -> Step:
        """Return the consequence for a PUBLISH of this QoS after any pause; for everything else the only one."""
        return next(step for step in reversed(self.steps) if not step.qos or str(qos) in step.qos)


def _connack(code: int) -> Reaction:
    return Reaction((Step(Effect.REFUSED, Answer.CONNACK, code, is_closed=True),))


def _suback(code: int) -> Reaction:
    return Reaction((Step(Effect.REFUSED, Answer.SUBACK, code),))


def _disconnect(code: int) -> Reaction:
    return Reaction((Step(Effect.REFUSED, Answer.DISCONNECT, code, is_closed=True),))


def _quietly(effect: Effect) -> Reaction:
    return Reaction((Step(effect),))


_CLOSE = Reaction((Step(Effect.REFUSED, is_closed=True),))
_ACKNOWLEDGED_AND_DROPPED = Reaction((Step(Effect.DROPPED, qos="0"), Step(Effect.DROPPED, Answer.PUBACK, 0, qos="12")))

REACTIONS: dict[Hit, tuple[Reaction, Reaction]] = {
    Hit.CONNECTIONS: (_connack(3), _connack(0x97)),
    Hit.CONNECT_RATE: (_connack(3), _connack(0x9F)),
    Hit.OVERLOAD: (_connack(3), _connack(0x89)),
    Hit.USE_ANOTHER_SERVER: (_connack(3), _connack(0x9C)),
    Hit.SERVER_MOVED: (_connack(3), _connack(0x9D)),
    Hit.SESSIONS: (_connack(3), _connack(0x97)),
    Hit.INBOUND_RATE: (
        Reaction((Step(Effect.PAUSED), Step(Effect.REFUSED, is_closed=True))),
        Reaction(
            (
                Step(Effect.PAUSED),
                Step(Effect.REFUSED, Answer.DISCONNECT, 0x96, is_closed=True, qos="0"),
                Step(Effect.REFUSED, Answer.PUBACK, 0x97, qos="12"),
            )
        ),
    ),
    Hit.INBOUND_WINDOW: (
        Reaction((Step(Effect.DROPPED, qos="0"), Step(Effect.REFUSED, is_closed=True, qos="12"))),
        Reaction((Step(Effect.DROPPED, qos="0"), Step(Effect.REFUSED, Answer.PUBACK, 0x97, qos="12"))),
    ),
    Hit.OUTBOUND_RATE: (_quietly(Effect.LATER), _quietly(Effect.LATER)),
    Hit.SUBSCRIPTIONS: (_suback(0x80), _suback(0x97)),
    Hit.RETAINED: (
        _quietly(Effect.NOT_RETAINED),
        Reaction(
            (Step(Effect.NOT_RETAINED, qos="0"), Step(Effect.NOT_RETAINED, Answer.PUBACK, 0x97, qos="12")),
        ),
    ),
    Hit.PACKET_BYTES: (_CLOSE, _disconnect(0x95)),
    Hit.WILL_BYTES: (_CLOSE, _connack(0x95)),
    Hit.PACKET_PARTS: (_CLOSE, _disconnect(0x97)),
    Hit.TOPIC_NAME: (_CLOSE, _disconnect(0x90)),
    Hit.TOPIC_FILTER: (_suback(0x80), _suback(0x8F)),
    Hit.RECEIVE_MAXIMUM: (_quietly(Effect.UNREAD), _disconnect(0x93)),
    Hit.TOPIC_ALIAS: (_CLOSE, _disconnect(0x94)),
    Hit.QUEUE: (_quietly(Effect.BY_POLICY), _quietly(Effect.BY_POLICY)),
    Hit.FANOUT: (_quietly(Effect.DROPPED), _quietly(Effect.DROPPED)),
    Hit.AGREED: (_quietly(Effect.ADJUSTED), Reaction((Step(Effect.ADJUSTED, Answer.CONNACK),))),
    Hit.STREAMS: (_quietly(Effect.NOT_CREATED),) * 2,
    Hit.API_RATE: (Reaction((Step(Effect.REFUSED, Answer.HTTP, 429),)),) * 2,
    Hit.DENIED_CONNECT: (_connack(5), _connack(0x87)),
    Hit.DENIED_SUBSCRIBE: (_suback(0x80), _suback(0x87)),
    Hit.DENIED_PUBLISH: (
        _ACKNOWLEDGED_AND_DROPPED,
        Reaction((Step(Effect.DROPPED, qos="0"), Step(Effect.REFUSED, Answer.PUBACK, 0x87, qos="12"))),
    ),
}
"""(MQTT 3.1 and 3.1.1, MQTT 5.0). A denied PUBLISH closes a 3.x connection only if the tenant is configured so."""

HITS: dict[Quota, Hit] = {
    Quota.CONNECTIONS: Hit.CONNECTIONS,
    Quota.CONNECTS: Hit.CONNECT_RATE,
    Quota.SESSIONS: Hit.SESSIONS,
    Quota.SESSION_EXPIRY_S: Hit.AGREED,
    Quota.KEEP_ALIVE_MIN_S: Hit.AGREED,
    Quota.PUBLISH_MESSAGES: Hit.INBOUND_RATE,
    Quota.PUBLISH_BYTES: Hit.INBOUND_RATE,
    Quota.DEVICE_PUBLISH_MESSAGES: Hit.INBOUND_RATE,
    Quota.DEVICE_PUBLISH_BYTES: Hit.INBOUND_RATE,
    Quota.DELIVER_MESSAGES: Hit.OUTBOUND_RATE,
    Quota.DELIVER_BYTES: Hit.OUTBOUND_RATE,
    Quota.DEVICE_DELIVER_MESSAGES: Hit.OUTBOUND_RATE,
    Quota.DEVICE_DELIVER_BYTES: Hit.OUTBOUND_RATE,
    Quota.SUBSCRIPTIONS: Hit.SUBSCRIPTIONS,
    Quota.SESSION_SUBSCRIPTIONS: Hit.SUBSCRIPTIONS,
    Quota.SUBSCRIBES: Hit.SUBSCRIPTIONS,
    Quota.SHARED_GROUPS: Hit.SUBSCRIPTIONS,
    Quota.GROUP_MEMBERS: Hit.SUBSCRIPTIONS,
    Quota.FILTER_LEVELS: Hit.TOPIC_FILTER,
    Quota.TOPIC_LEVELS: Hit.TOPIC_NAME,
    Quota.TOPIC_BYTES: Hit.TOPIC_NAME,
    Quota.FANOUT: Hit.FANOUT,
    Quota.FANOUT_BYTES: Hit.FANOUT,
    Quota.PERSISTENT_FANOUT: Hit.INBOUND_RATE,
    Quota.STREAM_MESSAGES: Hit.INBOUND_RATE,
    Quota.STREAM_BYTES: Hit.INBOUND_RATE,
    Quota.STREAMS: Hit.STREAMS,
    Quota.QUEUED_MESSAGES: Hit.QUEUE,
    Quota.QUEUED_BYTES: Hit.QUEUE,
    Quota.SESSION_QUEUED_MESSAGES: Hit.QUEUE,
    Quota.SESSION_QUEUED_BYTES: Hit.QUEUE,
    Quota.RETAINED_MESSAGES: Hit.RETAINED,
    Quota.RETAINED_BYTES: Hit.RETAINED,
    Quota.PACKET_BYTES: Hit.PACKET_BYTES,
    Quota.RECEIVE_MAXIMUM: Hit.RECEIVE_MAXIMUM,
    Quota.TOPIC_ALIASES: Hit.TOPIC_ALIAS,
    Quota.WILL_BYTES: Hit.WILL_BYTES,
    Quota.USER_PROPERTIES: Hit.PACKET_PARTS,
    Quota.SUBSCRIBE_FILTERS: Hit.PACKET_PARTS,
    Quota.API_REQUESTS: Hit.API_RATE,
}
"""The row of each name. The windows of an hour and more of a publish rate are `Hit.INBOUND_WINDOW`."""


def reaction(hit: Hit | Quota, version: int) -> Reaction:
    """Return what happens to a client of this protocol version (3, 4 or 5)."""
    row = REACTIONS[HITS[hit] if isinstance(hit, Quota) else hit]
    return row[1] if version == 5 else row[0]


def describe(of: Reaction) -> str:
    """Write a reaction as a cell of the documentation's table."""
    return "; ".join(_describe(step) for step in of.steps).replace("then;", "then")


def markdown_table() -> str:
    """Write the whole table for the documentation."""
    lines = ["| exceeded | MQTT 3.1, 3.1.1 | MQTT 5.0 |", "|---|---|---|"]
    lines += [f"| {hit.value} | {describe(old)} | {describe(new)} |" for hit, (old, new) in REACTIONS.items()]
    return "\n".join(lines) + "\n"


def _describe(step: Step) -> str:
    who = {"0": "QoS 0 ", "12": "QoS 1/2 "}.get(step.qos, "")
    if step.effect is Effect.REFUSED:
        words = [_answer(step), "close" if step.is_closed else ""]
    else:
        words = [step.effect.value, _answer(step), "close" if step.is_closed else ""]
    return who + ", ".join(word for word in words if word)


def _answer(step: Step) -> str:
    if step.answer is Answer.NONE:
        return ""
    is_old_connack = step.answer is Answer.CONNACK and step.code < 0x80
    code = f"{step.code}" if is_old_connack or step.answer is Answer.HTTP else f"0x{step.code:02X}"
    return f"{step.answer.value} {code}" if step.code else step.answer.value
