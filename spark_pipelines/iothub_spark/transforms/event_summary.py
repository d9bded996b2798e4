"""What an event does to a session, seen without decoding it, where its bytes are exactly those that a hub writes.

Knows the stored form of every session event, and no state. What does not match to the last byte is decoded.

Theory: a decoded event costs many times a regular expression, and most events of a log only say that a device came and went. A pattern here accepts
nothing that `read_event` would refuse: strings are printable ASCII without escapes, numbers have a canonical form, facts stand in the order in
which `iothub.records.events` writes them. A fact that these patterns do not know makes an event slow, never wrong.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, auto

from iothub.records.events import EventType, partition_of, read_event


class Does(IntEnum):
    """What kind of change an event makes. Numbers, since looking up other members of an enumeration is slow."""

    CREATE = auto()
    RESUME = auto()
    CONNECT = auto()
    LEAVE = auto()
    END = auto()
    SUBSCRIPTION = auto()
    WILL = auto()
    NOTHING = auto()


@dataclass(slots=True, eq=False)
class EventSummary:
    """One event as far as its order among others matters.

    `about`: which subscription. `has_device`, `has_hub`: it says what later events of its kind may be silent about.
    """

    offset: int
    value: bytes
    does: Does
    epoch: int
    about: object = None
    has_device: bool = False
    has_hub: bool = False
    has_expiry: bool = False


_DOES = {
    EventType.SESSION_CREATED: Does.CREATE,
    EventType.SESSION_RESUMED: Does.RESUME,
    EventType.SESSION_CONNECTED: Does.CONNECT,
    EventType.SESSION_DISCONNECTED: Does.LEAVE,
    EventType.SESSION_TAKEN_OVER: Does.LEAVE,
    EventType.SESSION_EXPIRED: Does.END,
    EventType.SESSION_DISCARDED: Does.END,
    EventType.SESSION_SUBSCRIBED: Does.SUBSCRIPTION,
    EventType.SESSION_UNSUBSCRIBED: Does.SUBSCRIPTION,
    EventType.WILL_SET: Does.WILL,
    EventType.WILL_CLEARED: Does.WILL,
}

_ID = r"(?:0|[1-9][0-9]{0,17})"
_N = r"(?:0|[1-9][0-9]{0,8})"
_SECONDS = r"(?:0|[1-9][0-9]{0,8}|4294967295)"
_MS = r"(?:0|[1-9][0-9]{0,13})"
_S = r'"[ !#-\[\]-~]*"'
_B = r"(?:true|false)"
_64 = r'"(?:[A-Za-z0-9+/]{4})*(?:[A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"'
_DEVICE = r'(?P<device>,"device_id":[1-9][0-9]{0,17})?'
_HUB = r'"hub":"[ !#-\[\]-~]+"'
_ONLY_HUB = rf"(?P<hub>{_HUB})?"
_AND_HUB = rf"(?P<hub>,{_HUB})?"
_ABOUT = rf'(?P<about>"filter":{_S},"group":(?:null|{_S}))'

_FACTS = {
    EventType.SESSION_CREATED: rf'"device":{_S},"queue_id":{_ID},"protocol_version":{_N},"session_expiry_s":{_SECONDS}{_DEVICE}{_AND_HUB}',
    EventType.SESSION_RESUMED: rf'"protocol_version":{_N},"session_expiry_s":{_SECONDS}{_DEVICE}{_AND_HUB}',
    EventType.SESSION_CONNECTED: rf'"device":{_S},"protocol_version":{_N},"session_expiry_s":{_SECONDS},"peer":{_S},"keep_alive_s":{_N}{_AND_HUB}',
    EventType.SESSION_DISCONNECTED: rf'"reason":{_S},"session_expiry_s":(?:null|(?P<expiry>{_SECONDS})){_AND_HUB}',
    EventType.SESSION_TAKEN_OVER: rf'"by":{_S}{_AND_HUB}',
    EventType.SESSION_EXPIRED: _ONLY_HUB,
    EventType.SESSION_DISCARDED: rf'"reason":{_S}{_AND_HUB}',
    EventType.SESSION_SUBSCRIBED: (
        rf'{_ABOUT},"qos":{_N},"no_local":{_B},"retain_as_published":{_B},"retain_handling":{_N},"identifier":{_N}{_AND_HUB}'
    ),
    EventType.SESSION_UNSUBSCRIBED: rf"{_ABOUT}{_AND_HUB}",
    EventType.WILL_SET: (
        rf'"topic":{_S},"payload":{_64},"qos":{_N},"retain":{_B},"properties":{_64},"delay_s":{_SECONDS}(?:,"expiry_s":{_SECONDS})?{_AND_HUB}'
    ),
    EventType.WILL_CLEARED: _ONLY_HUB,
}
_GROUPS = ("about", "device", "hub", "expiry")


def _pattern(facts: str) -> tuple[Callable[[bytes], re.Match[bytes] | None], tuple[int, ...]]:
    """Return what matches everything behind `"epoch":`, and the numbers of its groups (0: it has none)."""
    made = re.compile(rf'(0|[1-9][0-9]{{0,17}}),"at":{_MS},"facts":\{{{facts}\}}\}}'.encode())
    return made.fullmatch, tuple(made.groupindex.get(name, 0) for name in _GROUPS)


_PATTERNS = {f'{{"v":1,"type":"{kind.word}'.encode(): (_DOES[kind], *_pattern(facts)) for kind, facts in _FACTS.items()}
_PLAIN_KEY = re.compile(rb"(0|[1-9][0-9]{0,8})/([ !#-\[\]-~]*)")


class Session:
    """Reads the events of one key in a log with this number of partitions."""

    def __init__(self, key: bytes, partitions: int) -> None:
        self._key = key
        self._partitions = partitions
        self._home = partition_of(key.decode(errors="replace"), partitions)
        found = _PLAIN_KEY.fullmatch(key)
        self._middle = found and b'","tenant":%b,"client":"%b","epoch":' % (found[1], found[2])

    def summarise(self, partition: int, offset: int, value: bytes) -> EventSummary:
        """Raises as `read_event`."""
        if self._middle and partition == self._home:
            head, _, rest = value.partition(self._middle)
            known = _PATTERNS.get(head)
            if known is not None:
                does, fullmatch, (about, device, hub, expiry) = known
                found = fullmatch(rest)
                if found is not None:
                    return EventSummary(
                        offset,
                        value,
                        does,
                        int(found[1]),
                        found[about] if about else None,
                        device > 0 and found[device] is not None,
                        found[hub] is not None,
                        expiry > 0 and found[expiry] is not None,
                    )
        return self._decoded(partition, offset, value)

    def _decoded(self, partition: int, offset: int, value: bytes) -> EventSummary:
        event = read_event(value, self._key, partition, self._partitions)
        facts = event.facts
        return EventSummary(
            offset,
            value,
            _DOES.get(event.type, Does.NOTHING),
            event.epoch,
            (facts.get("group"), facts.get("filter")),
            "device_id" in facts,
            bool(facts.get("hub")),
            facts.get("session_expiry_s") is not None,
        )
