"""Connects plug-ins to the message plane: the hooks `publish` and `deliver`, with the engine's messages as a plug-in sees them.

Knows no plug-in. Without one the plane gets no hook, so that there is no cost.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.engine.message import Message
from iothub.engine.state import Session, TenantPlane
from iothub.hooks import Client, Filter, Hooks, Publication


def plug_in(hooks: Hooks, tenant: TenantPlane) -> None:
    """Put the plug-ins in front of a tenant's routing and deliveries."""
    if hooks.publish is not None:
        tenant.publish_hook = _publishing(hooks.publish)
    if hooks.deliver is not None:
        tenant.deliver_hook = _delivering(hooks.deliver)


def _publishing(passes: Filter) -> Callable[[Session, Message], Message | None]:
    def publish(session: Session, message: Message) -> Message | None:
        seen = _seen(message)
        answer = passes(_client(session), seen)
        if answer is None or answer.payload is seen.payload:
            return None if answer is None else message
        return _with_payload(message, answer.payload)

    return publish


def _delivering(passes: Filter) -> Callable[[Session, Message], bool]:
    def deliver(session: Session, message: Message) -> bool:
        return passes(_client(session), _seen(message)) is not None

    return deliver


def _client(session: Session) -> Client:
    connection = session.connection
    if connection is None:
        return Client(session.tenant.name, session.device, session.client_id)
    return Client(
        session.tenant.name,
        session.device,
        session.client_id,
        connection.peer,
        connection.listener.name,
        connection.version,
    )


def _seen(message: Message) -> Publication:
    return Publication(message.topic.decode(), message.payload, message.qos, message.retain)


def _with_payload(message: Message, payload: bytes) -> Message:
    return Message(
        message.topic,
        payload,
        message.qos,
        message.retain,
        message.properties,
        message.expires_at,
        message.message_id,
        message.publisher,
        message.publisher_client_id,
    )
