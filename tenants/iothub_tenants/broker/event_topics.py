"""Publishes `$events/...`: what becomes of a tenant's clients, sessions, messages and quotas, to those of its own devices that may subscribe.

Knows no hub and no rule: the access rules decide who may subscribe (only a rule that names `$events` allows it), and no client publishes there.
An event is made only for a tenant with a subscription for it, here or at another hub, or with a webhook. It is published a moment later, between
two turns of the message plane, by the hub where it happened.

Invariants: nothing here runs for a message. A tenant's events are published in their order. At most `mqtt.events_rate` of them are, and at most
`MOST_WAITING` wait, of all tenants together `MOST_OF_ALL`; what is left out is counted, and published as a count with the next summary.
Summaries are bounded by the number of reasons and quotas, so that an event about an event cannot multiply.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from twisted.internet.defer import Deferred
from twisted.python.failure import Failure

from iothub.base import log as logging
from iothub.base.clock import Clock
from iothub.base.errors import IotHubError
from iothub.base.reasons import Drop, EventLoss, Reason
from iothub.base.units import Rate
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.state import Session, TenantPlane
from iothub.engine.turn import PAUSES_PUBLISHERS
from iothub.records.events import Event, EventType
from iothub.records.tenant_events import PLATFORM_KINDS, EventKind, Fact, TenantEvent, encode_body
from iothub_services.connections.rejected import NO_TENANT, Client
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota
from iothub_services.webhooks.port import PLATFORM
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers
from iothub_tenants.broker.sys_topics import usage_of
from iothub_tenants.broker.tenant_events import EventSink, NoSink

SUMMARY_INTERVAL_S = 10.0
MOST_WAITING = 1_000  # events of one tenant: whose publishers are held, or whose broker is being made
MOST_OF_ALL = 20_000  # of all tenants together: some MB
HELD_S = 0.1  # between two looks whether they still are
MOST_OPENING = 16  # brokers that are made for events at a time: clients that connect ask the same threads
SLICE = 100  # events, or tenants of a summary, between two turns of the reactor
WARNING, CLEARED = 0.8, 0.75  # shares of a quota

log = logging.get(__name__)

Later = Callable[[float, Callable[[], None]], object]
Counts = Mapping[str, int]
OpenTenant = Callable[[int | str], Awaitable[TenantBroker | None]]
"""Makes the broker of a tenant (by id or name) without clients here, because other hubs have some of its clients."""

MakeEvent = Callable[[TenantBroker | None], TenantEvent | None]
"""Makes an event of a tenant's broker; None: without one here there is nothing to tell."""

_KINDS = {  # by word: an Enum hashes its members in Python
    EventType.SESSION_CONNECTED.word: EventKind.CLIENT_CONNECTED,
    EventType.SESSION_CREATED.word: EventKind.SESSION_CREATED,
    EventType.SESSION_RESUMED.word: EventKind.SESSION_RESUMED,
    EventType.SESSION_TAKEN_OVER.word: EventKind.SESSION_TAKEN_OVER,
    EventType.SESSION_EXPIRED.word: EventKind.SESSION_EXPIRED,
    EventType.SESSION_DISCARDED.word: EventKind.SESSION_DISCARDED,
    EventType.SESSION_SUBSCRIBED.word: EventKind.SUBSCRIPTION_ADDED,
    EventType.SESSION_UNSUBSCRIBED.word: EventKind.SUBSCRIPTION_REMOVED,
}
_SHOWN = ("reason", "session_expiry_s", "keep_alive_s", "filter", "group", "qos")
"""Facts of the log that are shown as they are."""


@dataclass(frozen=True, slots=True)
class EventSource:
    """What is counted of a tenant: refusals by quota since the hub started, and its queues now."""

    refusals: Callable[[int], Counts]
    queued: Callable[[int], TenantUsage]


@dataclass(frozen=True, slots=True)
class EventSettings:
    """`node`: of this hub. `rate`: of one tenant's events; None: no limit. `operator`: the tenant that gets the platform's events; "": none."""

    node: int
    rate: Rate | None
    operator: str


@dataclass(slots=True)
class _Seen:
    """What a tenant's last summary has covered. `near`: quotas of which it has been warned."""

    at_ms: int
    drops: Counts
    refusals: Counts
    near: set[Quota]


class EventTopics:
    """Fulfils `TenantEvents`. On the reactor thread."""

    def __init__(
        self,
        plane: Plane,
        brokers: Brokers,
        source: EventSource,
        clock: Clock,
        later: Later,
        settings: EventSettings,
        open_tenant: OpenTenant | None = None,
        sink: EventSink | None = None,
    ) -> None:
        """`open_tenant`: None where there are no other hubs. `sink`: gets events as well, for webhooks."""
        self._plane = plane
        self._brokers = brokers
        self._source = source
        self._clock = clock
        self._later = later
        self._node = settings.node
        self._rate = settings.rate
        self._operator = settings.operator
        self._open_tenant = open_tenant
        self._sink = sink or NoSink()
        self._number = 0
        self._waiting: dict[int, deque[TenantEvent]] = {}
        self._count_waiting = 0  # of all tenants, also what waits for a broker
        self._is_flush_due = False
        self._has_ended = False
        self._in_window: Counter[int] = Counter()
        self._window_ends = 0.0
        self._left_out: dict[tuple[int, str], Counter[EventLoss]] = {}  # by id and name of the tenant
        self._summarised_ms = self._now_ms()
        self._seen: dict[int, _Seen] = {}
        self._opening: dict[int | str, list[MakeEvent]] = {}  # what waits for a broker
        self._to_open: deque[int | str] = deque()  # whose broker is not yet being made
        self.published = 0
        self.lost: Counter[str] = Counter()

    def apply(self, rate: Rate | None) -> None:
        """Use another rate from the next event on."""
        self._rate = rate

    # --- what happens

    def on_event(self, event: Event) -> None:
        """An event of a session is on its way to the log."""
        kind = _KINDS.get(event.type.word)
        broker = None if kind is None else self._brokers.present(event.tenant_id)
        if kind is not None and broker is not None and self._is_watched(broker.plane):
            self._take(broker, _shown(kind, broker, event))

    def connect_refused(self, client: Client, reason: Reason, rule: str) -> None:
        """Fulfils `TenantEvents`."""
        if client.tenant_id == NO_TENANT:
            return
        at_ms = self._now_ms()
        self._take_or_open(
            self._brokers.present(client.tenant_id), client.tenant_id, lambda _: _refused(client, reason, rule, at_ms)
        )

    def on_account(self, event: TenantEvent) -> None:
        """An account has changed. All hubs read that: it is given to the one that publishes it."""
        if event.tenant_id == PLATFORM:
            self._take_platform(event)
        else:
            self._take_or_open(self._brokers.present(event.tenant_id), event.tenant_id, lambda _: event)

    def account_events_lost(self, count: int) -> None:
        """So many changes of accounts were to be published by a hub that is gone, and this one could not keep them."""
        self._leave_out(PLATFORM, "", EventLoss.HELD, count)

    def on_platform(self, kind: EventKind, subject: str, facts: Mapping[str, Fact]) -> None:
        """Something has happened to hubs or alarms: for the platform's webhooks, and for the operator's tenant, if there is one."""
        self._take_platform(TenantEvent(kind, PLATFORM, "", subject, self._now_ms(), facts))

    def _take_platform(self, event: TenantEvent) -> None:
        if self._sink.has(PLATFORM):
            self._take(None, event)
        if self._operator:
            broker = next((broker for broker in self._brokers if broker.record.name == self._operator), None)
            self._take_or_open(broker, self._operator, lambda found: None if found is None else _copy_for(found, event))

    def disconnected(self, session: Session, reason: Reason) -> None:
        """Fulfils `TenantEvents`. Not from the log, which has no end of a transient session."""
        tenant = session.tenant
        broker = self._brokers.present(tenant.tenant_id) if self._is_watched(tenant) else None
        if broker is not None:
            facts: dict[str, Fact] = {"client": session.client_id, "device": session.device}
            facts |= {"reason": reason.word, "code": reason.code}
            self._take(broker, self._event(EventKind.CLIENT_DISCONNECTED, broker, session.client_id, facts))

    def _take_or_open(self, broker: TenantBroker | None, tenant: int | str, make: MakeEvent) -> None:
        """Without a broker here only another hub can have subscribers: it is made, and the tenant's events wait for it."""
        if broker is not None or self._open_tenant is None:
            self._take_made(broker, make)
        elif len(self._opening.get(tenant, ())) >= MOST_WAITING or self._count_waiting >= MOST_OF_ALL:
            self._leave_out_made(tenant, make, EventLoss.HELD)
        else:
            self._count_waiting += 1
            if tenant in self._opening:
                self._opening[tenant].append(make)
            else:
                self._opening[tenant] = [make]
                self._to_open.append(tenant)
                self._open_next()

    def _open_next(self) -> None:
        while (
            self._to_open and len(self._opening) - len(self._to_open) < MOST_OPENING and self._open_tenant is not None
        ):
            opening = self._take_elsewhere(self._open_tenant, self._to_open.popleft())
            Deferred.fromCoroutine(opening).addErrback(_not_opened)

    async def _take_elsewhere(self, open_tenant: OpenTenant, tenant: int | str) -> None:
        broker = None
        try:
            broker = await open_tenant(tenant)
        finally:  # webhooks get the events all the same
            opened = self._opening.pop(tenant)
            self._count_waiting -= len(opened)
            for make in opened:
                self._take_made(broker, make)
            if self._to_open:
                self._later(0.0, self._open_next)

    def _take_made(self, broker: TenantBroker | None, make: MakeEvent) -> None:
        event = make(broker) if broker is None or self._is_watched(broker.plane) else None
        if event is not None:
            self._take(broker, event)

    def _leave_out_made(self, tenant: int | str, make: MakeEvent, loss: EventLoss) -> None:
        event = make(None)
        if event is not None:
            self._leave_out(event.tenant_id, event.tenant, loss)
        else:
            self._leave_out(PLATFORM, "", loss)

    # --- summaries

    async def summarise(self) -> None:
        """Publish what was counted since the last time: drops, refusals by quota, quotas nearly used up, events that were left out."""
        watched = {broker.tenant_id: broker for broker in self._brokers if self._is_watched(broker.plane)}
        for tenant_id in self._seen.keys() - watched.keys():
            del self._seen[tenant_id]
        left_out, self._left_out = self._left_out, {}
        from_ms, self._summarised_ms = self._summarised_ms, self._now_ms()
        for number, broker in enumerate(watched.values(), 1):
            self._summarise_tenant(broker, left_out.pop((broker.tenant_id, broker.record.name), Counter()))
            if number % SLICE == 0:
                await self._breathe()
        for (tenant_id, tenant), losses in left_out.items():  # without a broker here: webhooks alone can have them
            for loss, count in losses.items():
                facts: dict[str, Fact] = {"reason": loss.value, "count": count, "from": from_ms}
                event = TenantEvent(EventKind.EVENT_LEFT_OUT, tenant_id, tenant, loss.value, self._now_ms(), facts)
                if self._is_for_sink(event):
                    self._add(event)

    def _breathe(self) -> Deferred[None]:
        pause: Deferred[None] = Deferred()
        self._later(0.0, lambda: pause.callback(None))
        return pause

    def _is_watched(self, tenant: TenantPlane) -> bool:
        return tenant.router.hub_filters > 0 or self._sink.has(tenant.tenant_id)

    def _summarise_tenant(self, broker: TenantBroker, losses: Counter[EventLoss]) -> None:
        tenant_id, now_ms = broker.tenant_id, self._now_ms()
        drops = {word: count for word, count in broker.traffic.dropped.items() if word != Drop.NO_SUBSCRIBERS.value}
        refusals = dict(self._source.refusals(tenant_id))
        before = self._seen.get(tenant_id)
        if before is None:
            before = _Seen(now_ms, drops, refusals, set())
        self._seen[tenant_id] = _Seen(now_ms, drops, refusals, before.near)
        left_out = {loss.value: count for loss, count in losses.items()}
        found = (
            *self._counted(EventKind.MESSAGE_DROPPED, broker, "reason", _risen(before.drops, drops), before.at_ms),
            *self._counted(EventKind.QUOTA_EXCEEDED, broker, "quota", _risen(before.refusals, refusals), before.at_ms),
            *self._counted(EventKind.EVENT_LEFT_OUT, broker, "reason", left_out, before.at_ms),
            *self._near_limits(broker, before.near),
        )
        for event in found:
            self._add(event)

    def _counted(
        self, kind: EventKind, broker: TenantBroker, name: str, counts: Counts, from_ms: int
    ) -> Sequence[TenantEvent]:
        return [
            self._event(kind, broker, word, {name: word, "count": count, "from": from_ms})
            for word, count in counts.items()
        ]

    def _near_limits(self, broker: TenantBroker, near: set[Quota]) -> Iterable[TenantEvent]:
        """Report each quota that is nearly used up, and of each one that no longer is; `near` becomes what has been reported."""
        for quota, (used, limit) in usage_of(broker, self._source.queued(broker.tenant_id)).items():
            share = used / limit if limit else 0.0
            facts: dict[str, Fact] = {"quota": quota.value, "used": used, "limit": limit}
            if quota not in near and share >= WARNING:
                near.add(quota)
                yield self._event(EventKind.QUOTA_WARNING, broker, quota.value, facts)
            elif quota in near and share < CLEARED:
                near.discard(quota)
                yield self._event(EventKind.QUOTA_CLEARED, broker, quota.value, facts)

    # --- publishing

    def _take(self, broker: TenantBroker | None, event: TenantEvent) -> None:
        """Publish an event soon, unless the tenant has had too many of them."""
        if not (_has_receivers(broker, event) or self._is_for_sink(event)):
            return
        now, rate = self._clock.monotonic(), self._rate
        if rate is not None:
            if now >= self._window_ends:
                self._in_window.clear()
                self._window_ends = now + rate.seconds
            self._in_window[event.tenant_id] += 1
            if self._in_window[event.tenant_id] > rate.count:
                self._leave_out(event.tenant_id, event.tenant, EventLoss.RATE)
                return
        self._add(event)

    def _is_for_sink(self, event: TenantEvent) -> bool:
        """What the operator's tenant gets of the platform is the platform's."""
        is_copy = event.kind in PLATFORM_KINDS and event.tenant_id != PLATFORM
        return not is_copy and self._sink.wants(event.tenant_id, event.kind)

    def _add(self, event: TenantEvent) -> None:
        if self._has_ended:
            self._leave_out(event.tenant_id, event.tenant, EventLoss.STOPPED)
            return
        if len(self._waiting.get(event.tenant_id, ())) >= MOST_WAITING or self._count_waiting >= MOST_OF_ALL:
            self._leave_out(event.tenant_id, event.tenant, EventLoss.HELD)
            return
        self._waiting.setdefault(event.tenant_id, deque()).append(event)
        self._count_waiting += 1
        self._flush_in(0.0)

    def _leave_out(self, tenant_id: int, tenant: str, loss: EventLoss, count: int = 1) -> None:
        self.lost[loss.value] += count
        self._left_out.setdefault((tenant_id, tenant), Counter())[loss] += count

    def _flush_in(self, seconds: float) -> None:
        if not self._is_flush_due:
            self._is_flush_due = True
            self._later(seconds, self.flush)

    def flush(self) -> None:
        """Publish what waits, `SLICE` events at a time; those of a tenant whose publishers are held wait on."""
        self._is_flush_due = False
        left, is_any_held = self._publish_waiting(SLICE)
        if self._waiting:
            self._flush_in(HELD_S if is_any_held and left else 0.0)

    def finish(self) -> None:
        """The hub ends: publish what waits, and nothing that comes later."""
        self._publish_waiting(MOST_WAITING * (1 + len(self._waiting)))
        self._has_ended = True
        for waiting in self._waiting.values():
            for event in waiting:
                self._leave_out(event.tenant_id, event.tenant, EventLoss.STOPPED)
        self._waiting.clear()
        for tenant, opening in self._opening.items():
            for make in opening:
                self._leave_out_made(tenant, make, EventLoss.STOPPED)
            opening.clear()
        self._to_open.clear()
        self._count_waiting = 0

    def _publish_waiting(self, left: int) -> tuple[int, bool]:
        """Publish up to `left` events; return how many more might have followed, and whether any tenant is held."""
        turn, is_any_held = self._plane.turn, False
        turn.read_clock()
        for tenant_id in list(self._waiting):
            broker = self._brokers.present(tenant_id)
            if broker is not None and turn.is_held(broker.plane):
                is_any_held = True
                continue
            left = self._publish_some(broker, self._waiting[tenant_id], left)
            if not self._waiting[tenant_id]:
                del self._waiting[tenant_id]
        return left, is_any_held

    def _publish_some(self, broker: TenantBroker | None, waiting: deque[TenantEvent], left: int) -> int:
        """Publish up to `left` events; return how many more may follow."""
        while waiting and left:
            left -= 1
            self._count_waiting -= 1
            self._publish(broker, waiting.popleft())
        return left

    def _publish(self, broker: TenantBroker | None, event: TenantEvent) -> None:
        """A tenant without a broker, or whose last subscriber has gone, has no receivers any more."""
        number = self._next_number()
        body = encode_body(event.body(number, self._node))
        if self._is_for_sink(event):
            self._sink.take(event, event.id_of(number, self._node), body)
        if broker is None or not _has_receivers(broker, event):
            return
        if self._plane.overload_level() >= PAUSES_PUBLISHERS or self._plane.turn.is_store_full():
            self._leave_out(event.tenant_id, event.tenant, EventLoss.OVERLOAD)
            return
        self.published += 1
        self._plane.publish(broker.plane, Message(event.topic, body, 1))

    def _next_number(self) -> int:
        """Return the next number of this hub: microseconds, so that it rises over restarts and, as far as clocks agree, over hubs."""
        self._number = max(self._number + 1, int(self._clock.wall() * 1e6))
        return self._number

    def _event(
        self, kind: EventKind, broker: TenantBroker, subject: str, facts: Mapping[str, Fact], at_ms: int | None = None
    ) -> TenantEvent:
        when_ms = self._now_ms() if at_ms is None else at_ms
        return TenantEvent(kind, broker.tenant_id, broker.record.name, subject, when_ms, facts)

    def _now_ms(self) -> int:
        return int(self._clock.wall() * 1000)


def _copy_for(broker: TenantBroker, event: TenantEvent) -> TenantEvent:
    """Return an event of the platform as the operator's tenant gets it."""
    return replace(event, tenant_id=broker.tenant_id, tenant=broker.record.name)


def _refused(client: Client, reason: Reason, rule: str, at_ms: int) -> TenantEvent:
    facts: dict[str, Fact] = {"client": client.client_id, "device": client.device, "reason": reason.word}
    facts |= {"code": reason.code, "rule": rule, "ip": client.address}
    kind = EventKind.CLIENT_CONNECT_FAILED
    return TenantEvent(kind, client.tenant_id, client.tenant, client.client_id, at_ms, facts)


def _has_receivers(broker: TenantBroker | None, event: TenantEvent) -> bool:
    if broker is None or not broker.plane.router.hub_filters:
        return False
    route = broker.plane.router.match(event.topic)
    return bool(route.targets or route.groups)


def _shown(kind: EventKind, broker: TenantBroker, event: Event) -> TenantEvent:
    session = broker.plane.sessions.get(event.client_id)
    facts: dict[str, Fact] = {"client": event.client_id}
    facts["device"] = session.device if session is not None else event.facts.get("device", "")
    facts |= {name: event.facts[name] for name in _SHOWN if event.facts.get(name) is not None}
    if "peer" in event.facts:
        facts["ip"] = event.facts["peer"]
    return TenantEvent(kind, broker.tenant_id, broker.record.name, event.client_id, event.at_ms, facts)


def _risen(before: Counts, now: Counts) -> dict[str, int]:
    return {word: count - before.get(word, 0) for word, count in now.items() if count > before.get(word, 0)}


def _not_opened(failure: Failure) -> None:
    """The accounts do not answer, or no other hub does: nobody can be notified here."""
    if not isinstance(failure.value, IotHubError):
        failure.raiseException()
    log.warning("event not published to other hubs", error=str(failure.value))
