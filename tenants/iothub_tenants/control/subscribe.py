"""The SUBSCRIBE and UNSUBSCRIBE walks: check each Topic Filter, make the change durable, make it, answer, then replay what is retained.

Knows no trie and no queue. One Topic Filter's refusal never touches another one's [MQTT-3.8.4-6].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

from twisted.internet.defer import Deferred

from iothub.base.errors import BackendError, UnavailableError
from iothub.engine.filters import split_share
from iothub.engine.router import Subscription
from iothub.engine.state import Connection, Session
from iothub.mqtt import packets
from iothub.mqtt.constants import MQTT_5_0
from iothub.mqtt.decode import decode_packet
from iothub.mqtt.encoder import encode
from iothub.mqtt.errors import ProtocolError
from iothub.mqtt.packets import Suback, Subscribe, Unsuback, Unsubscribe
from iothub.records import events
from iothub.records.events import Event, Subject
from iothub_services.quota.names import Quota
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.client_contexts import ClientContext
from iothub_tenants.broker.hub import Hub, Rights

NOT_AUTHORIZED, FILTER_INVALID, QUOTA_EXCEEDED = 0x87, 0x8F, 0x97
UNSPECIFIED, NO_SUBSCRIPTION_EXISTED = 0x80, 0x11
FAILURE_3X = 0x80
MOST_SETTLING = 64  # packets of one client that wait for the other hubs together
SLICE = 256  # Topic Filters of one packet before others get their turn

Place = tuple[bytes | None, bytes]  # share group, Topic Filter


@dataclass(slots=True)
class Wish:
    """One Topic Filter of a SUBSCRIBE. `code`: what SUBACK says; below 0x80 it is granted.

    `is_new`: it did not exist before. `is_reserved`: its places are taken, by this wish.
    """

    subscription: Subscription
    code: int
    is_new: bool = False
    is_reserved: bool = False


async def subscribe(hub: Hub, connection: Connection, header: int, body: bytes) -> None:
    """Answer one SUBSCRIBE [MQTT-3.8.4-1]; parsing goes on once it has taken effect, so nothing overtakes it."""
    context: ClientContext = connection.control
    session, broker = context.session, context.broker
    if session is None or broker is None:
        return
    limits = broker.packet_limits(session.device)
    packet = cast("Subscribe", decode_packet(header, body, connection.version, limits=limits))
    wishes: list[Wish] = []
    places: set[Place] = set()
    no_room = await _room(broker, session, packet, 0)
    for number, asked in enumerate(packet.subscriptions, 1):
        wishes.append(_wish(broker, session, packet, asked, places, no_room))
        if number % SLICE == 0:
            await hub.breathe()
            no_room = await _room(broker, session, packet, number)
            if context.session is not session:  # nothing was promised: who comes back finds the session as it was
                _give_back(broker, wishes)
                return
    await _make_durable(hub, broker, session, wishes)
    await _activate(hub, context, session, wishes)
    is_resumed = session.is_persistent and await _settle(hub, connection, session)
    if context.session is not session:
        return
    codes = tuple(_code(connection.version, wish.code) for wish in wishes)
    replayed = [
        wish.subscription
        for wish in wishes
        if wish.code < 0x80
        and _place(wish.subscription)
        in session.subscriptions  # else a later packet has ended it before it was answered
        and broker.wants_replay(session, wish.subscription, is_new=wish.is_new)
    ]
    hub.plane.send(connection, encode(Suback(packet.packet_id, codes), connection.version))
    if not is_resumed:
        hub.plane.resume(connection)
    for subscription in replayed:
        await broker.replay(session, subscription)


async def _room(broker: TenantBroker, session: Session, packet: Subscribe, start: int) -> int:
    """Ask other hubs for what the next Topic Filters may need; return the Reason Code of who gets none."""
    if not broker.allowance.is_shared:
        return QUOTA_EXCEEDED
    asked = packet.subscriptions[start : start + SLICE]
    new = {place for each in asked if (place := split_share(each.topic_filter.encode())) not in session.subscriptions}
    try:
        await broker.allowance.room((Quota.SUBSCRIBES, len(asked)), (Quota.SUBSCRIPTIONS, len(new)))
    except UnavailableError:
        return UNSPECIFIED
    return QUOTA_EXCEEDED


def _wish(
    broker: TenantBroker,
    session: Session,
    packet: Subscribe,
    asked: packets.Subscription,
    places: set[Place],
    no_room: int,
) -> Wish:
    """Check one Topic Filter and, if it is granted, reserve its place. `places`: those that the packet has reserved so far."""
    raw = asked.topic_filter.encode()
    group, topic_filter = split_share(raw)
    identifiers = packet.properties.subscription_identifiers
    subscription = Subscription(
        session,
        topic_filter,
        group,
        asked.qos,
        asked.is_no_local,
        asked.is_retain_as_published,
        asked.retain_handling,
        identifiers[0] if identifiers else 0,
    )
    if group is not None and asked.is_no_local:
        raise ProtocolError("SUBSCRIBE: No Local on a shared subscription")  # [MQTT-3.8.3-4]
    code = _refusal(broker, session, raw, subscription, no_room)
    place = (group, topic_filter)
    is_new = place not in session.subscriptions and place not in places
    if code == 0 and is_new:
        if broker.allowance.reserve_subscription(session, subscription, len(places)) is None:
            places.add(place)
        else:
            code = no_room
    return Wish(subscription, code or asked.qos, is_new, is_new and code == 0)


async def _settle(hub: Hub, connection: Connection, session: Session) -> bool:
    """Wait until every hub routes by what is durable now. True: parsing has gone on meanwhile, as its effect is there.

    So several packets of one client share a wait, `MOST_SETTLING` of them at most; each is answered after its own.
    """
    context: ClientContext = connection.control
    may_resume = not hub.company.is_alone and context.settling < MOST_SETTLING and context.session is session
    context.settling += 1
    settled = Deferred.fromCoroutine(hub.company.settle())  # begun before the next packet's: answers keep their order
    if may_resume:
        hub.plane.resume(connection)
    try:
        await settled
    finally:
        context.settling -= 1
    return may_resume


def _place(subscription: Subscription) -> Place:
    return subscription.group, subscription.filter


async def _activate(hub: Hub, context: ClientContext, session: Session, wishes: list[Wish]) -> None:
    """What was granted and is durable takes effect, even if its connection went meanwhile: only the session's end undoes it."""
    broker = cast("TenantBroker", context.broker)
    for number, wish in enumerate(wishes, 1):
        if number % SLICE == 0 and context.session is session:  # else somebody may come back and unsubscribe meanwhile
            await hub.breathe()
        if wish.code >= FAILURE_3X:
            continue
        if not session.is_discarded:
            replaced = hub.plane.subscribe(session, wish.subscription)
            broker.allowance.settle(wish.subscription, is_reserved=wish.is_reserved, was_there=replaced is not None)
        elif wish.is_reserved:
            broker.allowance.release_subscription(wish.subscription)


def _refusal(broker: TenantBroker, session: Session, raw: bytes, subscription: Subscription, no_room: int) -> int:
    """Return the Reason Code that refuses this filter, 0 if nothing does."""
    if broker.check_filter(session.device, raw):
        return FILTER_INVALID
    policy = cast("Rights", session.policy)
    if not policy.may_subscribe(subscription.filter):
        broker.denied("subscribe", session)
        return NOT_AUTHORIZED
    return 0 if broker.allowance.take(Quota.SUBSCRIBES) else no_room


async def _make_durable(hub: Hub, broker: TenantBroker, session: Session, wishes: list[Wish]) -> None:
    """A persistent session's subscription is an event first; if the log cannot take it, nothing is granted."""
    subject = _subject(hub, session)
    granted = [wish for wish in wishes if wish.code < 0x80]
    made = [_subscribed(subject, wish.subscription) for wish in granted]
    if not made:
        return
    if not session.is_persistent:
        hub.journal.note(made)
        return
    try:
        await hub.journal.record(made)
    except BackendError as error:
        if error.is_written:  # perhaps: then what is refused must not come back with the next start
            hub.journal.note([_as_it_was(subject, session, wish.subscription) for wish in granted])
        _give_back(broker, granted)
        for wish in granted:
            wish.code = UNSPECIFIED


def _give_back(broker: TenantBroker, wishes: list[Wish]) -> None:
    for wish in wishes:
        if wish.is_reserved:
            wish.is_reserved = False
            broker.allowance.release_subscription(wish.subscription)


def _as_it_was(subject: Subject, session: Session, refused: Subscription) -> Event:
    """Return the event that undoes a subscription: what was there before, or nothing."""
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
    """Answer one UNSUBSCRIBE: what did not exist is named in 5.0 [MQTT-3.11.3-2], and acknowledged all the same [MQTT-3.10.4-5]."""
    context: ClientContext = connection.control
    session, broker = context.session, context.broker
    if session is None or broker is None:
        return
    limits = broker.packet_limits(session.device)
    packet = cast("Unsubscribe", decode_packet(header, body, connection.version, limits=limits))
    codes, places = await _take_away(hub, context, session, packet)
    subject = _subject(hub, session)  # now: an event of an epoch that is over would count for nothing
    gone = [
        events.session_unsubscribed(subject, topic_filter=topic_filter.decode(), group=_text(group))
        for group, topic_filter in places
    ]
    is_resumed = False
    if gone and session.is_persistent:
        await hub.journal.record(gone)
        is_resumed = await _settle(hub, connection, session)
    elif gone:
        hub.journal.note(gone)
    if context.session is not session:
        return
    answer = Unsuback(packet.packet_id, tuple(codes) if connection.version == MQTT_5_0 else ())
    hub.plane.send(connection, encode(answer, connection.version))
    if not is_resumed:
        hub.plane.resume(connection)


async def _take_away(
    hub: Hub, context: ClientContext, session: Session, packet: Unsubscribe
) -> tuple[list[int], list[Place]]:
    """End each subscription here and now; return what to answer for each, and which there were."""
    broker = cast("TenantBroker", context.broker)
    codes: list[int] = []
    places: list[Place] = []
    for number, text in enumerate(packet.topic_filters, 1):
        if number % SLICE == 0:
            await hub.breathe()
            if context.session is not session:  # who comes back may subscribe again: what is left stays
                break
        group, topic_filter = split_share(text.encode())
        if (group, topic_filter) in session.subscriptions:
            places.append((group, topic_filter))
        subscription = hub.plane.unsubscribe(session, group, topic_filter)
        codes.append(0 if subscription is not None else NO_SUBSCRIPTION_EXISTED)
        if subscription is not None:
            broker.allowance.release_subscription(subscription)
    return codes, places


def _code(version: int, code: int) -> int:
    return code if version == MQTT_5_0 or code < 0x80 else FAILURE_3X  # [MQTT3-3.9.3-2]


def _subject(hub: Hub, session: Session) -> Subject:
    return Subject(session.tenant.tenant_id, session.client_id, session.epoch, int(hub.clock.wall() * 1000))


def _text(group: bytes | None) -> str | None:
    return None if group is None else group.decode()
