"""Queues whose every append comes as the writer hands it over: as an operation of a publish."""

from __future__ import annotations

from typing import Any

from iothub.engine.message import Message
from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG, QueueTarget, StoredPublish
from iothub.engine.state import Session, TenantPlane
from iothub_services.queues.journal.store import JournaledQueues
from iothub_services.queues.operations import AppendOperation
from iothub_services.queues.port import Append, Appended, Delivery, Move
from iothub_services.queues.writing import Answer

_TENANT = TenantPlane(1, "acme")


class OperatedQueues(JournaledQueues):
    """Fulfils `QueueStore`."""

    def append(self, batch: list[Append]) -> list[Appended]:
        return _appended(self.append_operations([operation_of(item) for item in batch]))


class Operated:
    """Fulfils `QueueStore` by a driver that writes moves and operations together. What comes again is the same operation."""

    def __init__(self, store: Any) -> None:
        self._store = store
        self._made: dict[int, tuple[Append, AppendOperation]] = {}

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def append(self, batch: list[Append]) -> list[Appended]:
        made = [self._made.setdefault(id(item), (item, operation_of(item)))[1] for item in batch]
        return _appended(self._store.write_operations([], made)[1])

    def apply(self, moves: list[Move]) -> list[bool]:
        done: list[bool] = self._store.write_operations(moves, [])[0]
        return done


def _appended(answers: list[Answer]) -> list[Appended]:
    return [answer if isinstance(answer, Appended) else Appended(answer) for answer in answers]


def operation_of(item: Append) -> AppendOperation:
    """Return what the writer makes of a publish that becomes this append."""
    expires_at = (item.expires_at_ms + 0.5) / 1000 if item.expires_at_ms else 0.0
    message = Message(b"t", b"", 2, expires_at=expires_at, message_id=item.message_id)
    publish = StoredPublish(_TENANT, message, [_target(each) for each in item.deliveries], False)
    publish.is_repeatable = bool(item.message_id)
    if item.inbound is not None:
        queue_id, publish.inbound_epoch, publish.packet_id = item.inbound
        publish.inbound = _session(queue_id)
    return AppendOperation(publish, item.body)


def _target(delivery: Delivery) -> QueueTarget:
    is_retained, is_shared = bool(delivery.flags & RETAIN_FLAG), bool(delivery.flags & SHARED_FLAG)
    return QueueTarget(
        _session(delivery.queue_id), delivery.qos, is_retained, tuple(delivery.subscription_ids), is_shared
    )


def _session(queue_id: int) -> Session:
    return Session(_TENANT, "c1", "d1", True, queue_id)
