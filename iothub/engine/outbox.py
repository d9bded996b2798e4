# cython: annotation_typing=False
"""What leaves the plane for the store: one message for persistent sessions and the retained set, and the acknowledgement that waits for it.

Knows no driver and no record format: `iothub_services.queues.writer` turns a StoredPublish into an append and answers on the Plane.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from iothub.engine.message import Message
from iothub.engine.state import AckSlot, Connection, Session, TenantPlane

RETAIN_FLAG = 1  # of a stored record: RETAIN as it must be delivered
SHARED_FLAG = 2  # it came by a shared subscription: another member gets it if this session ends


class QueueTarget:
    """One persistent session that gets a copy: QoS min(publish, subscription), RETAIN as it must be delivered, Subscription Identifiers."""

    def __init__(
        self, session: Session, qos: int, retain: bool, identifiers: tuple[int, ...], is_shared: bool = False
    ) -> None:
        self.session = session
        self.queue_id: int = session.queue_id
        self.qos = qos
        self.retain = retain
        self.identifiers = identifiers
        self.is_shared = is_shared

    def flags(self) -> int:
        """Return the flags of its record."""
        return (RETAIN_FLAG if self.retain else 0) | (SHARED_FLAG if self.is_shared else 0)


def target_of(session: Session, qos: int, retain: bool, identifiers: tuple[int, ...], is_shared: bool) -> QueueTarget:
    """Make a target. The same as the constructor, without Python's way of passing arguments: it runs once for each receiver."""
    target: QueueTarget = QueueTarget.__new__(QueueTarget)
    target.session = session
    target.queue_id = session.queue_id
    target.qos = qos
    target.retain = retain
    target.identifiers = identifiers
    target.is_shared = is_shared
    return target


class StoredPublish:
    """One message on its way to disk: the queues of `targets`, the retained set if `retain`, and the publisher's identifier if `inbound`.

    `retain` with an empty payload deletes the retained message. `inbound` is the persistent publisher whose `packet_id` (QoS 2) is recorded in
    the same transaction, at `inbound_epoch`, even when `targets` is empty.
    """

    def __init__(self, tenant: TenantPlane, message: Message, targets: list[QueueTarget], retain: bool) -> None:
        self.tenant = tenant
        self.message = message
        self.targets = targets
        self.retain = retain
        self.inbound: Session | None = None
        self.inbound_epoch = 0
        self.packet_id = 0
        self.is_repeat = False  # its identifier may be recorded already
        self.is_repeatable = False  # another hub may publish it under the same message id: a Will, a stream's record
        self.publisher: Session | None = None
        self.connection: Connection | None = None
        self.slot: AckSlot | None = None
        self.code = 0  # the answer if everything goes well
        self.has_direct = False  # a receiver got it without a queue
        self.on_done: Callable[[int], None] | None = None
        self.record: Any = None  # the writer's own place


def stored_publish(
    tenant: TenantPlane, message: Message, targets: list[QueueTarget], retain: bool, session: Session, packet_id: int
) -> StoredPublish:
    """Make the one of a client's PUBLISH. The same as the constructor, without Python's way of passing arguments: it runs once per message."""
    publish: StoredPublish = StoredPublish.__new__(StoredPublish)
    publish.tenant = tenant
    publish.message = message
    publish.targets = targets
    publish.retain = retain
    publish.inbound = None
    publish.inbound_epoch = 0
    publish.packet_id = packet_id
    publish.is_repeat = False
    publish.is_repeatable = False
    publish.publisher = session
    publish.connection = session.connection
    publish.slot = None
    publish.code = 0
    publish.has_direct = False
    publish.on_done = None
    publish.record = None
    return publish


class PublishStore:
    """A store whose `append` compiled code calls without Python's way of passing arguments."""

    def append(self, publish: StoredPublish) -> None:
        """See `iothub.engine.ports.Store`."""
        raise NotImplementedError


def without_sinks(store: Any) -> PublishStore | None:
    """Return what a store does with the messages of a tenant that has no sinks: they go straight to its `queues`; None: it has no such part."""
    queues = getattr(store, "queues", store)
    return queues if isinstance(queues, PublishStore) else None
