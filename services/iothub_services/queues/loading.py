# cython: annotation_typing=False
"""Records of a page as the plane sends them: decoded, an object for the message and one for its delivery.

Knows the record format; knows no thread and no store.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import CorruptRecordError
from iothub.engine.message import Delivery, loaded
from iothub.engine.outbox import RETAIN_FLAG, SHARED_FLAG
from iothub_services.queues.bodies import message_of
from iothub_services.queues.port import Damaged, QueuedRecord

_RETAIN, _SHARED = RETAIN_FLAG, SHARED_FLAG


def deliveries_of(records: Sequence[QueuedRecord], damaged: list[Damaged]) -> list[Delivery]:
    """Decode records. What is damaged is passed over, and added to `damaged`."""
    found: list[Delivery] = []
    for position, qos, flags, subscription_ids, _, body in records:
        try:
            message = message_of(body)
        except CorruptRecordError as error:
            damaged.append(Damaged(position, str(error)))
            continue
        found.append(loaded(message, qos, flags & _RETAIN != 0, subscription_ids, position, flags & _SHARED != 0))
    return found
