"""A persistent session from its folded state: its place in the router, its terms and its Will, without a connection.

Knows no log and no deadline: who has the session, and since when it is offline, is the caller's.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TypeVar

from iothub.engine.router import Subscription
from iothub.engine.state import Session
from iothub.records.state import SessionState, SubscriptionKey, SubscriptionState
from iothub_services.sessions.port import SessionControl, Will
from iothub_tenants.broker.broker import TenantBroker
from iothub_tenants.broker.hub import Hub

T = TypeVar("T", int, str)


@lru_cache(maxsize=4096)
def shared(value: T) -> T:
    """Return an equal value that others have, too: every hub knows every session, and many have the same device or the same expiry."""
    return value


def restore(hub: Hub, broker: TenantBroker, state: SessionState) -> SessionControl:
    """Make the session known, with its subscriptions, and count it; return its control record."""
    session = hub.plane.create_session(
        broker.plane,
        state.client_id,
        state.client_id if state.device == state.client_id else shared(state.device),
        is_persistent=True,
        queue_id=state.queue_id,
        epoch=state.epoch,
    )
    for place, options in state.subscriptions.items():
        hub.plane.subscribe(session, subscription_of(session, place, options))
    control = SessionControl(state.protocol_version, shared(state.session_expiry_s), will_of(state), state.device_id)
    session.control = control
    broker.allowance.restore_session(session)
    return control


def subscription_of(session: Session, place: SubscriptionKey, options: SubscriptionState) -> Subscription:
    group, topic_filter = place
    return Subscription(
        session,
        topic_filter.encode(),
        None if group is None else group.encode(),
        options.qos,
        options.no_local,
        options.retain_as_published,
        options.retain_handling,
        options.identifier,
    )


def will_of(state: SessionState) -> Will | None:
    will = state.will
    if will is None:
        return None
    return Will(
        will.topic.encode(),
        will.payload,
        will.qos,
        will.retain,
        will.properties,
        will.delay_s,
        will.expiry_s,
        state.epoch,
    )
