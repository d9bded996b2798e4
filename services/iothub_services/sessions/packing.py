"""Packs the persistent sessions of other hubs, and unpacks them: every hub knows every session, and has little to do with most of them.

Knows no log. A session is packed while another hub has it and nothing of it is under way here. Whatever refers to its Session keeps it from that:
a route that is cached, a message on its way to the store, an operation that waits. CPython counts those references; so nobody has to report anything.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from functools import partial
from itertools import islice
from sys import getrefcount
from typing import Any

from iothub.engine.router import Subscription
from iothub.engine.sessions import PackedSession
from iothub.engine.state import Place, Session, TenantPlane
from iothub_services.sessions.port import SessionControl


def _references_of_a_variable() -> int:
    """Return what `getrefcount` says of an object to which one variable refers; that depends on the Python."""
    probe = object()
    return getrefcount(probe)


_OWN = _references_of_a_variable() + 1  # to a Session that is in no use: the mapping has another one
_OWN_SUBSCRIPTION = _references_of_a_variable() + 3  # to its Subscription: the session, the router and a list here
_SMALL = 1 << 32
_FILTER = struct.Struct("<BIH")  # options, identifier, length


def pack(plane: TenantPlane, client_ids: Iterable[str]) -> None:
    """Pack these sessions, as far as they can be packed now."""
    for client_id in client_ids:
        _pack(plane, client_id)


def pack_woken(plane: TenantPlane, at_most: int) -> None:
    """Pack sessions that were woken and have not been needed since."""
    woken = plane.sessions.woken
    for client_id in list(islice(woken, at_most)):
        del woken[client_id]
        if not _pack(plane, client_id):
            woken[client_id] = None  # at the end: after all others


def _pack(plane: TenantPlane, client_id: str) -> bool:
    """False: it may be possible later, without an event of the log."""
    session = plane.sessions.awake.get(client_id)
    if session is None or not _is_idle(session):
        return True
    subscriptions = list(session.subscriptions.values())
    if getrefcount(session) > _OWN + len(subscriptions):
        return False
    if any(getrefcount(each) > _OWN_SUBSCRIPTION or not plane.router.is_only(each) for each in subscriptions):
        return True
    packed = _packed(session, session.control, subscriptions)
    if packed is not None:
        for each in subscriptions:
            plane.router.place(each.filter, session.client_id)
        session.forget_all()  # they and the session refer to each other
        plane.sessions.keep_packed(session.client_id, packed, session.control.will, partial(unpack, plane))
    return True


def _is_idle(session: Session) -> bool:
    """Whether another hub has it, and nothing is here that an event of the log or a message would not bring again."""
    control: SessionControl = session.control
    return (
        session.is_persistent
        and control.is_elsewhere
        and session.connection is None
        and not session.is_discarded
        and not control.has_ended
        and not (control.expires_at or control.will_at or control.queued_at)
        and not any((session.meters, session.window, session.backlog, session.shared, session.inbound))
        and not (session.is_reading or session.stale_pages or session.is_waiting or session.is_lagging)
    )


def _packed(session: Session, control: SessionControl, subscriptions: list[Subscription]) -> PackedSession | None:
    """None: it has something for which there is no room."""
    place = control.place
    if place is None or not isinstance(session.device, str):
        return None
    first_epoch = session.queue_id << 24
    epochs = session.epoch - first_epoch, place.logged_epoch - first_epoch
    claimed = place.claimed - first_epoch + 1 if place.claimed else 0
    if not all(0 <= number < _SMALL for number in (*epochs, claimed, control.device_id, control.expiry_s)):
        return None
    if any(not _fits(each) for each in subscriptions):
        return None
    only = subscriptions[0] if len(subscriptions) == 1 else None
    packed = PackedSession(session.device, session.queue_id, only.filter if only else _joined(subscriptions))
    if only is not None:
        packed.options, packed.identifier = _options(only), only.identifier
    packed.count = min(len(subscriptions), 2)
    packed.epoch, packed.logged_epoch = epochs
    packed.claimed = claimed
    packed.announced, packed.since_ms, packed.holder = session.announced, place.since_ms, place.holder
    packed.is_online, packed.is_counted = place.is_online, place.is_counted
    packed.device_id, packed.expiry_s, packed.version = control.device_id, control.expiry_s, control.version
    return packed


def unpack(plane: TenantPlane, client_id: str, packed: PackedSession, will: Any) -> Session:
    """Make the session of a packed one, with its Subscriptions in the router."""
    first_epoch = packed.queue_id << 24
    session = Session(plane, client_id, packed.device, True, packed.queue_id, first_epoch + packed.epoch)
    session.announced = packed.announced
    control = SessionControl(packed.version, packed.expiry_s, will, packed.device_id)
    place = Place(
        packed.holder, first_epoch + packed.logged_epoch, is_online=packed.is_online, since_ms=packed.since_ms
    )
    place.claimed = first_epoch + packed.claimed - 1 if packed.claimed else 0
    place.is_counted = packed.is_counted
    control.place = place
    session.control = control
    for subscription in subscriptions_of(packed, session):
        session.note(subscription)
        plane.router.place(subscription.filter, subscription)
    return session


def subscriptions_of(packed: PackedSession, session: Session | None = None) -> Iterator[Subscription]:
    """Yield the subscriptions of a packed session."""
    if packed.count == 1:
        yield _subscription(session, packed.filters, packed.options, packed.identifier)
        return
    at = 0
    while at < len(packed.filters):
        options, identifier, size = _FILTER.unpack_from(packed.filters, at)
        at += _FILTER.size + size
        yield _subscription(session, packed.filters[at - size : at], options, identifier)


def _fits(subscription: Subscription) -> bool:
    """Members of a group stand in it. No Local needs to know who a publisher is, and the hub looks for who subscribes to its own topics."""
    topic_filter = subscription.filter
    return subscription.group is None and not subscription.no_local and not topic_filter.startswith(b"$")


def _joined(subscriptions: list[Subscription]) -> bytes:
    return b"".join(
        _FILTER.pack(_options(each), each.identifier, len(each.filter)) + each.filter for each in subscriptions
    )


def _options(subscription: Subscription) -> int:
    return subscription.qos | subscription.retain_as_published << 2 | subscription.retain_handling << 3


def _subscription(session: Session | None, topic_filter: bytes, options: int, identifier: int) -> Subscription:
    is_as_published, handling = bool(options & 4), options >> 3
    return Subscription(session, topic_filter, None, options & 3, False, is_as_published, handling, identifier)
