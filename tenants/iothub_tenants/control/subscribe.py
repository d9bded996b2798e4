"""Handles SUBSCRIBE and UNSUBSCRIBE: checks each Topic Filter, makes the change durable, applies it, answers, then replays retained messages.

Knows no trie and no queue. The refusal of one Topic Filter never affects another [MQTT-3.8.4-6].
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, UnavailableError
from iothub.engine.filters import check_topic_filter, join_share, split_share
from iothub.engine.router import Subscription
from iothub.engine.state import Connection, Session
from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import MalformedPacket
from iothub.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.events.port import NOWHERE, Offsets
from iothub_services.quota.names import Quota
from iothub_tenants.broker.broker import MANY_BYTES, MANY_LEVELS, TenantBroker
from iothub_tenants.broker.client_contexts import ClientContext
from iothub_tenants.broker.hub import Hub, Rights
from iothub_tenants.broker.peer_routes import OptionChange, until_routed

NOT_AUTHORIZED, FILTER_INVALID, QUOTA_EXCEEDED = 0x87, 0x8F, 0x97
UNSPECIFIED, NO_SUBSCRIPTION_EXISTED = 0x80, 0x11
FAILURE = 0x80  # this Reason Code and all above it refuse; 3.1.1 has no other
MOST_AWAITING_PEERS = 64  # packets of one client that wait for the other hubs at the same time
MOST_REPLAYS = 1_000  # that wait for one session, more than it has subscriptions; each costs about a kilobyte
SLICE = 256  # Topic Filters of one packet handled before the reactor runs other work

FilterKey = tuple[bytes | None, bytes]  # share group, Topic Filter


@dataclass(slots=True)
class RequestedFilter:
    """One Topic Filter of a SUBSCRIBE. `code`: its Reason Code in SUBACK.

    `is_new`: the subscription did not exist before. `is_reserved`: this request holds the quota for it.
    """

    subscription: Subscription
    code: int
    is_new: bool = False
    is_reserved: bool = False

    @property
    def is_granted(self) -> bool:
        return self.code < FAILURE


async def subscribe(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one SUBSCRIBE [MQTT-3.8.4-1]; parsing resumes once it has taken effect, so no later packet overtakes it."""
    context: ClientContext = connection.control
    session = context.session
    if session is None:
        return
    broker = cast("TenantBroker", context.broker)
    limits = broker.packet_limits(session.device)
    packet = cast("Subscribe", decode_packet(header, body, connection.version, limits=limits))
    _check_well_formed("SUBSCRIBE", (asked.topic_filter for asked in packet.subscriptions))
    requests: list[RequestedFilter] = []
    keys: set[FilterKey] = set()
    quota_code = await _borrow_quota(broker, session, packet, 0)
    for number in range(1, len(packet.subscriptions) + 1):
        requests.append(_check_filter(broker, session, packet, number, keys, quota_code))
        if number % SLICE == 0:
            await hub.breathe()
            quota_code = await _borrow_quota(broker, session, packet, number)
            if context.session is not session:  # nothing was granted yet: a resumed session must be as it was
                _release_reserved(broker, requests)
                return
    is_resumed = await _carry_out(hub, connection, session, requests)
    if context.session is not session:
        return
    codes = tuple(_code(connection.version, requested.code) for requested in requests)
    replayed = [
        requested.subscription
        for requested in requests
        if requested.is_granted
        and _key(requested.subscription)
        in session.subscriptions  # else a later UNSUBSCRIBE has ended it before this answer
        and broker.wants_replay(session, requested.subscription, is_new=requested.is_new)
    ]
    replays = broker.retained.begin_replays(session, replayed) if replayed else None  # before later packets are read
    hub.plane.send(connection, encode(Suback(packet.packet_id, codes), connection.version))
    if not is_resumed:
        hub.plane.resume(connection)
    if replays is not None:
        await broker.retained.send_replays(replays)


async def _carry_out(hub: Hub, connection: Connection, session: Session, requests: list[RequestedFilter]) -> bool:
    """Make durable what is granted, apply it, and wait until every hub knows it. Return as `_wait_for_peers`."""
    context: ClientContext = connection.control
    broker = cast("TenantBroker", context.broker)
    change = await _announce_change(hub, session, [each.subscription for each in requests if each.is_granted])
    try:
        if change is not None and context.session is not session:  # as with many Topic Filters: nothing was granted yet
            _release_reserved(broker, requests)
            return False
        place = await _make_durable(hub, broker, session, requests)
        await _activate(hub, context, session, requests)
        if change is not None and place:
            change.note_durable(place)
        granted = [requested.subscription for requested in requests if requested.is_granted]
        filters = [join_share(each.group, each.filter) for each in granted]
        return await _wait_for_peers(hub, connection, session, place, filters)
    finally:
        if change is not None:
            change.end()


async def _announce_change(hub: Hub, session: Session, subscriptions: Iterable[Subscription]) -> OptionChange | None:
    """Prepare the other hubs for other options of a persistent session, so that none of its messages is lost or comes twice meanwhile.

    [MQTT-3.8.4-4]. A shared group's member is chosen by the publishing hub, with the options that it knows.
    """
    if not session.is_persistent:
        return None
    former = session.subscriptions
    change = hub.routes.change_options(
        session, [(former.get((None, each.filter)), each) for each in subscriptions if each.group is None]
    )
    routed: Deferred[None] = Deferred()
    if change is not None and change.await_routed(lambda: routed.callback(None)):
        await routed
    return change


def _check_well_formed(packet: str, topic_filters: Iterable[str]) -> None:
    """Demand well-formed Topic Filters before anything of the packet takes effect; the tenant's limits are checked later, for each by itself.

    [MQTT-4.7.3-1] [MQTT-4.7.1-1] [MQTT-4.7.1-2] [MQTT-4.8.2-1] [MQTT-4.8.2-2] [MQTT3-4.7.3-1] [MQTT3-4.7.1-2] [MQTT3-4.7.1-3]
    """
    if any(check_topic_filter(topic_filter.encode(), MANY_LEVELS, MANY_BYTES) for topic_filter in topic_filters):
        raise MalformedPacket(f"{packet}: a Topic Filter is not well-formed")


async def _borrow_quota(broker: TenantBroker, session: Session, packet: Subscribe, start: int) -> int:
    """Get the quota for the next Topic Filters from the shared ledger; return the Reason Code of those that exceed it."""
    asked = packet.subscriptions[start : start + SLICE]
    new = {key for each in asked if (key := split_share(each.topic_filter.encode())) not in session.subscriptions}
    try:
        await broker.allowance.wait_for_room((Quota.SUBSCRIBES, len(asked)), (Quota.SUBSCRIPTIONS, len(new)))
    except UnavailableError:
        return UNSPECIFIED
    return QUOTA_EXCEEDED


def _check_filter(
    broker: TenantBroker,
    session: Session,
    packet: Subscribe,
    number: int,
    keys: set[FilterKey],
    quota_code: int,
) -> RequestedFilter:
    """Check the Topic Filter with this number and, if it is granted, reserve its quota. `keys`: what the packet has reserved so far."""
    asked = packet.subscriptions[number - 1]
    raw = asked.topic_filter.encode()
    group, topic_filter = split_share(raw)
    subscription = Subscription(
        session,
        topic_filter,
        group,
        asked.qos,
        asked.is_no_local,
        asked.is_retain_as_published,
        asked.retain_handling,
        next(iter(packet.properties.subscription_identifiers), 0),
    )
    code = _refusal(broker, session, raw, subscription, quota_code)
    key = (group, topic_filter)
    is_new = key not in session.subscriptions and key not in keys
    if code == 0 and not is_new and _is_behind(broker, session, number - len(keys)):
        code = QUOTA_EXCEEDED
    if code == 0 and is_new:
        if broker.allowance.reserve_subscription(session, subscription, len(keys)) is None:
            keys.add(key)
        else:
            code = quota_code
    return RequestedFilter(subscription, code or asked.qos, is_new, is_new and code == 0)


async def _wait_for_peers(
    hub: Hub, connection: Connection, session: Session, place: Offsets | None, filters: Sequence[bytes] = ()
) -> bool:
    """Wait until every hub routes by the log up to a place, and by `filters`. True: parsing was resumed meanwhile, as the effect is there.

    So several packets of one client wait at the same time, at most `MOST_AWAITING_PEERS`; each is answered after its own wait, and no answer
    overtakes that of an earlier packet: its place in the log is a lower one.
    """
    tenant = session.tenant
    routed = until_routed(hub.routes, tenant, filters) if filters else None
    settled = hub.cluster.settle(tenant.tenant_id, place) if session.is_persistent else None
    if routed is None and settled is None:
        return False
    context: ClientContext = connection.control
    may_resume = context.awaiting_peers < MOST_AWAITING_PEERS and context.session is session
    context.awaiting_peers += 1
    hub.count_awaiting_peers(1)
    if may_resume:
        hub.plane.resume(connection)
    try:
        if routed is not None:
            await routed
        if settled is not None:
            await settled
    finally:
        context.awaiting_peers -= 1
        hub.count_awaiting_peers(-1)
    return may_resume


def _key(subscription: Subscription) -> FilterKey:
    return subscription.group, subscription.filter


async def _activate(hub: Hub, context: ClientContext, session: Session, requests: list[RequestedFilter]) -> None:
    """Apply what was granted and is durable, even if the connection closed meanwhile: only the session's end undoes it."""
    broker = cast("TenantBroker", context.broker)
    for number, requested in enumerate(requests, 1):
        if number % SLICE == 0 and context.session is session:  # else the client may resume and unsubscribe meanwhile
            await hub.breathe()
        if not requested.is_granted:
            continue
        if not session.is_discarded:
            replaced = hub.plane.subscribe(session, requested.subscription)
            broker.allowance.settle_subscription(
                requested.subscription, is_reserved=requested.is_reserved, was_there=replaced is not None
            )
        elif requested.is_reserved:
            broker.allowance.release_subscription(requested.subscription)


def _refusal(broker: TenantBroker, session: Session, raw: bytes, subscription: Subscription, quota_code: int) -> int:
    """Return the Reason Code that refuses this Topic Filter, 0 if nothing does."""
    if broker.check_filter(session.device, raw):
        return FILTER_INVALID
    policy = cast("Rights", session.policy)
    if not policy.may_subscribe(subscription.filter):
        broker.denied("subscribe", session)
        return NOT_AUTHORIZED
    return 0 if broker.allowance.take_rate(Quota.SUBSCRIBES) else quota_code


def _is_behind(broker: TenantBroker, session: Session, known: int) -> bool:
    """Whether too many replays wait: the client subscribes again faster than it reads. `known`: Topic Filters of its packet that are not new."""
    if broker.retained.replays_waiting(session) + known <= len(session.subscriptions) + MOST_REPLAYS:
        return False
    broker.allowance.count_refusal(Quota.SUBSCRIBES)
    return True


async def _make_durable(
    hub: Hub, broker: TenantBroker, session: Session, requests: list[RequestedFilter]
) -> Offsets | None:
    """Log the subscriptions of a persistent session before they take effect; if the log cannot, nothing is granted. Return as `Journal.record`."""
    subject = _subject(hub, session)
    granted = [requested for requested in requests if requested.is_granted]
    made = [_subscribed(subject, requested.subscription) for requested in granted]
    if not made:
        return NOWHERE
    if not session.is_persistent:
        hub.journal.note(made)
        return NOWHERE
    try:
        return await hub.journal.record(made)
    except BackendError as error:
        if error.is_written:  # perhaps: what is refused must not come back with the next start
            hub.journal.note([_undoing_event(subject, session, requested.subscription) for requested in granted])
        _release_reserved(broker, granted)
        for requested in granted:
            requested.code = UNSPECIFIED
        return NOWHERE


def _release_reserved(broker: TenantBroker, requests: list[RequestedFilter]) -> None:
    for requested in requests:
        if requested.is_reserved:
            broker.allowance.release_subscription(requested.subscription)


def _undoing_event(subject: Subject, session: Session, refused: Subscription) -> Event:
    """Return the event that undoes a subscription: the one that was there before, or none."""
    before = session.subscriptions.get((refused.group, refused.filter))
    if before is not None:
        return _subscribed(subject, before)
    return events.session_unsubscribed(subject, topic_filter=refused.filter.decode(), group=_text(refused.group))


def _subscribed(subject: Subject, subscription: Subscription) -> Event:
    return events.session_subscribed(
        subject,
        topic_filter=subscription.filter.decode(),
        group=_text(subscription.group),
        qos=subscription.qos,
        no_local=subscription.no_local,
        retain_as_published=subscription.retain_as_published,
        retain_handling=subscription.retain_handling,
        identifier=subscription.identifier,
    )


async def unsubscribe(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one UNSUBSCRIBE: 5.0 names what did not exist [MQTT-3.11.3-2], and it is acknowledged too [MQTT-3.10.4-5]."""
    context: ClientContext = connection.control
    session = context.session
    if session is None:
        return
    broker = cast("TenantBroker", context.broker)
    limits = broker.packet_limits(session.device)
    packet = cast("Unsubscribe", decode_packet(header, body, connection.version, limits=limits))
    _check_well_formed("UNSUBSCRIBE", packet.topic_filters)
    former = dict(session.subscriptions)
    codes, keys = await _end_subscriptions(hub, context, session, packet)
    ended = [(former[key], None) for key in keys if key[0] is None and key in former]
    change = hub.routes.change_options(session, ended) if session.is_persistent else None
    subject = _subject(hub, session)  # after the wait: an event of an epoch that is over is ignored
    gone = [
        events.session_unsubscribed(subject, topic_filter=topic_filter.decode(), group=_text(group))
        for group, topic_filter in keys
    ]
    is_resumed = False
    if gone and session.is_persistent:
        try:
            place = await hub.journal.record(gone)
            if change is not None and place:
                change.note_durable(place)
            is_resumed = await _wait_for_peers(hub, connection, session, place)
        finally:
            if change is not None:
                change.end()
    elif gone:
        hub.journal.note(gone)
    if context.session is not session:
        return
    answer = Unsuback(packet.packet_id, tuple(codes) if connection.version == MQTT_5_0 else ())
    hub.plane.send(connection, encode(answer, connection.version))
    if not is_resumed:
        hub.plane.resume(connection)


async def _end_subscriptions(
    hub: Hub, context: ClientContext, session: Session, packet: Unsubscribe
) -> tuple[list[int], list[FilterKey]]:
    """End each subscription at once; return the Reason Code for each, and which of them existed."""
    broker = cast("TenantBroker", context.broker)
    codes: list[int] = []
    keys: list[FilterKey] = []
    for number, text in enumerate(packet.topic_filters, 1):
        if number % SLICE == 0:
            await hub.breathe()
            if context.session is not session:  # the client may resume and subscribe again: the rest stays
                break
        group, topic_filter = split_share(text.encode())
        if (group, topic_filter) in session.subscriptions:
            keys.append((group, topic_filter))
        subscription = hub.plane.unsubscribe(session, group, topic_filter)
        codes.append(0 if subscription is not None else NO_SUBSCRIPTION_EXISTED)
        if subscription is not None:
            broker.allowance.release_subscription(subscription)
    return codes, keys


def _code(version: int, code: int) -> int:
    return code if version == MQTT_5_0 else min(code, FAILURE)  # [MQTT3-3.9.3-2]


def _subject(hub: Hub, session: Session) -> Subject:
    return Subject(session.tenant.tenant_id, session.client_id, session.epoch, int(hub.clock.wall() * 1000))


def _text(group: bytes | None) -> str | None:
    return None if group is None else group.decode()
