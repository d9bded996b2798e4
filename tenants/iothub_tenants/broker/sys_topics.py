"""Publishes `$SYS/tenant/...`: a tenant's own figures for its own devices, at an interval and at once for a new subscriber.

So are the states of hubs, `$SYS/broker/...`, and each when it changes. The operator's tenant gets the figures of the whole hub there, too.

Knows no hub, no other tenant and no rule: the access rules decide who may subscribe (only a rule that names `$SYS` allows it), and no client
publishes under `$SYS`. Nothing is stored: figures are read when they are published. Each hub has its own, for its own clients, so no subscription of
another hub can be missing: they do not wait while publishers are held.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from iothub.base.reasons import Drop
from iothub.engine.filters import topic_matches
from iothub.engine.message import Message
from iothub.engine.plane import Plane
from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub_services.queues.port import TenantUsage
from iothub_services.quota.names import Quota, Scope
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.brokers import Brokers

ROOT = b"$SYS"
PREFIX = "$SYS/tenant/"
HUBS_PREFIX = "$SYS/broker/"
UNLIMITED = "unlimited"

Figure = tuple[str, int | str]
Queued = Callable[[int], TenantUsage]
HubStates = Callable[[], Mapping[str, str]]
BrokerFiguresOf = Callable[[TenantBroker], Mapping[str, str]]


def no_figures(_broker: TenantBroker) -> Mapping[str, str]:
    """No tenant is the operator's."""
    return {}


class SysTopics:
    """Publishes the figures of the tenants that have subscribers for them. On the reactor thread.

    Invariant: `_watched` holds every tenant with a subscription that matches one of its figures, and others for at most one interval.
    """

    def __init__(
        self,
        plane: Plane,
        brokers: Brokers,
        queued: Queued,
        hub_states: HubStates = dict,
        broker_figures: BrokerFiguresOf = no_figures,
    ) -> None:
        """`hub_states`, `broker_figures`: what is published below `$SYS/broker/`, by name: for all, and for the operator's tenant."""
        self._plane = plane
        self._brokers = brokers
        self._queued = queued
        self._hub_states = hub_states
        self._broker_figures = broker_figures
        self._watched: set[int] = set()

    def resume(self) -> None:
        """Sessions were loaded at start: find those that have subscribed."""
        for broker in self._brokers:
            sessions = broker.plane.sessions.awake.values()
            if any(_is_sys_filter(topic_filter) for session in sessions for _, topic_filter in session.subscriptions):
                self._watched.add(broker.tenant_id)

    def subscribed(
        self, broker: TenantBroker, session: Session, subscription: Subscription, *, is_replayed: bool
    ) -> None:
        """A subscription is active; one that asks for Retained Messages gets the present figures at once."""
        if not _is_sys_filter(subscription.filter):
            return
        self._watched.add(broker.tenant_id)
        if is_replayed and subscription.group is None:
            found = [message for message in self._messages(broker) if topic_matches(subscription.filter, message.topic)]
            self._plane.send_retained(session, subscription, found)

    def publish(self) -> None:
        """Publish every figure that an online session has subscribed to; a tenant without such sessions is forgotten."""
        for tenant_id in list(self._watched):
            broker = self._brokers.present(tenant_id)
            if broker is None or not self._publish(broker):
                self._watched.discard(tenant_id)

    def publish_hub_states(self, changed: Mapping[str, str]) -> None:
        """Publish what has changed, to the tenants with subscribers of some figure."""
        for broker in filter(None, map(self._brokers.present, list(self._watched))):
            self._publish_to(broker, _state_messages(changed))

    def _publish(self, broker: TenantBroker) -> bool:
        """Publish a tenant's figures; return whether any session, online or not, has subscribed."""
        return self._publish_to(broker, self._messages(broker))

    def _publish_to(self, broker: TenantBroker, messages: Iterable[Message]) -> bool:
        is_watched = False
        for message in messages:
            route = broker.plane.router.match(message.topic)
            if not route.targets and not route.groups:
                continue
            is_watched = True
            if route.groups or any(target.session.connection is not None for target in route.targets):
                self._plane.publish(broker.plane, message)
        return is_watched

    def _messages(self, broker: TenantBroker) -> Iterator[Message]:
        for name, value in figures(broker, self._queued(broker.tenant_id)):
            yield Message(f"{PREFIX}{name}".encode(), str(value).encode())
        yield from _state_messages(self._hub_states())
        yield from _state_messages(self._broker_figures(broker))


def figures(broker: TenantBroker, queued: TenantUsage) -> Iterator[Figure]:
    """Yield name and value of every figure of a tenant; the names are always the same."""
    plane, ledger = broker.plane, broker.allowance.ledger
    traffic = broker.traffic
    yield "connections", plane.connections
    yield "sessions", len(plane.sessions)
    yield "subscriptions", ledger.used(Quota.SUBSCRIPTIONS)
    yield "messages/received", sum(traffic.messages_received)
    yield "messages/sent", sum(traffic.messages_delivered)
    yield "messages/queued", queued.messages
    yield "messages/retained", ledger.used(Quota.RETAINED_MESSAGES)
    yield "bytes/received", traffic.bytes_received
    yield "bytes/sent", traffic.bytes_sent
    yield "bytes/queued", queued.bytes
    yield "bytes/retained", ledger.used(Quota.RETAINED_BYTES)
    for reason in Drop:
        yield f"dropped/{reason.value}", traffic.dropped.get(reason.value, 0)
    for quota, (used, limit) in usage_of(broker, queued).items():
        yield f"quota/{quota.value}/used", used
        yield f"quota/{quota.value}/limit", UNLIMITED if limit is None else limit


def usage_of(broker: TenantBroker, queued: TenantUsage) -> dict[Quota, tuple[int, int | None]]:
    """Return what is used of every limit that is counted for the tenant as a whole, and the limit; None: there is none."""
    found: dict[Quota, tuple[int, int | None]] = {}
    for quota, (used, limit) in broker.allowance.ledger.figures().items():
        if quota.scope is Scope.TENANT:
            found[quota] = (used, None if limit == 0 else max(limit, 0))
    for quota, used in ((Quota.QUEUED_MESSAGES, queued.messages), (Quota.QUEUED_BYTES, queued.bytes)):
        found[quota] = (used, found[quota][1])
    return found


def _state_messages(states: Mapping[str, str]) -> Iterator[Message]:
    for name, value in states.items():
        yield Message(f"{HUBS_PREFIX}{name}".encode(), value.encode())


def _is_sys_filter(topic_filter: bytes) -> bool:
    return topic_filter.partition(b"/")[0] == ROOT
