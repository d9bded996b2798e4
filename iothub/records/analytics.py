"""The events for statistics: usage, samples, drops, refusals and failed logins, with the facts that each has.

Knows no log, no tenant and no clock: whoever counts says what and when. Nothing is folded from these events.

Theory: a worker closes a period at every full minute of UTC and says once for each tenant what was counted in it. `incarnation` names the
worker's life and `sequence` the event in it, so a reader that has both twice counts once, and a sequence that is missing is a record lost.
Events have no client: their key is the tenant's number, `0` for logins that name no tenant.
"""

from __future__ import annotations

from dataclasses import astuple, dataclass, fields
from typing import NamedTuple

from iothub.records.events import Event, EventType, Fact


@dataclass(frozen=True, slots=True)
class Metered:
    """What was counted of a tenant; whole numbers, so that sums are exact."""

    messages_in: int = 0  # PUBLISH packets accepted from clients
    messages_out: int = 0  # messages written to clients
    blocks_in: int = 0  # message equivalents: blocks of 4 KiB of Topic Name, payload and properties, every block begun
    blocks_out: int = 0
    bytes_in: int = 0  # on the wire, every packet of a client that was let in
    bytes_out: int = 0
    connection_ms: int = 0  # milliseconds for which places of `connections` were held
    fanout: int = 0  # receivers that messages were routed to, whether they were connected or not

    def __add__(self, other: Metered) -> Metered:
        return Metered(*map(int.__add__, astuple(self), astuple(other)))

    def __sub__(self, other: Metered) -> Metered:
        return Metered(*map(int.__sub__, astuple(self), astuple(other)))

    def __bool__(self) -> bool:
        return any(astuple(self))


@dataclass(frozen=True, slots=True)
class Sample:
    """What a tenant has at one moment."""

    sessions: int = 0
    connected: int = 0  # of them
    subscriptions: int = 0
    queued_messages: int = 0
    queued_bytes: int = 0
    retained_messages: int = 0
    retained_bytes: int = 0


USAGE_FACTS = tuple(field.name for field in fields(Metered))
SAMPLE_FACTS = tuple(field.name for field in fields(Sample))


class Period(NamedTuple):
    """What an event stands for: from when until when (the event's own time), by which life of which worker, and which of its records."""

    incarnation: str
    sequence: int
    from_ms: int  # Unix time
    to_ms: int

    def facts(self) -> dict[str, Fact]:
        return {"incarnation": self.incarnation, "sequence": self.sequence, "from_ms": self.from_ms}


def usage_counted(tenant_id: int, period: Period, metered: Metered) -> Event:
    """What a worker has counted of a tenant in a period."""
    return _event(EventType.USAGE_COUNTED, tenant_id, period, _facts(metered))


def tenant_sampled(tenant_id: int, period: Period, sample: Sample) -> Event:
    """What a tenant had at the end of a period; it stands for the whole of it."""
    return _event(EventType.TENANT_SAMPLED, tenant_id, period, _facts(sample))


def message_dropped(tenant_id: int, period: Period, *, reason: str, count: int, device: str = "") -> Event:
    """Deliveries that were dropped; `device`: who should have got them, or whose message nobody got. Empty: several, or nobody."""
    return _event(EventType.MESSAGE_DROPPED, tenant_id, period, {"reason": reason, "count": count, "device": device})


def quota_refused(tenant_id: int, period: Period, *, quota: str, count: int, device: str = "") -> Event:
    """Refusals by a limit."""
    return _event(EventType.QUOTA_REFUSED, tenant_id, period, {"quota": quota, "count": count, "device": device})


def auth_failed(tenant_id: int, period: Period, *, cause: str, count: int, device: str = "") -> Event:
    """Logins that were refused; the name of a device that no tenant has is not kept."""
    return _event(EventType.AUTH_FAILED, tenant_id, period, {"cause": cause, "count": count, "device": device})


def _facts(counted: Metered | Sample) -> dict[str, Fact]:
    return {field.name: getattr(counted, field.name) for field in fields(counted)}


def _event(event_type: EventType, tenant_id: int, period: Period, facts: dict[str, Fact]) -> Event:
    return Event(event_type, tenant_id, "", 0, period.to_ms, {**period.facts(), **facts})
