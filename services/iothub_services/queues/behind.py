"""What a queue has not got of one batch, for something that cannot be read: nothing goes into it behind that.

Knows deliveries; knows no queue. Whoever repeats what was refused may repeat what came behind it, in the same order (!). A delivery of QoS 0
is not repeated: behind it only those of QoS 0 are refused, so that many cost no more than one.
"""

from __future__ import annotations

from iothub.records.queued import Target
from iothub_services.queues.port import Delivery, Unreadable


class Behind:
    """What is in the way, by queue."""

    def __init__(self) -> None:
        self._repeated: dict[int, Unreadable] = {}
        self._lost: dict[int, Unreadable] = {}  # by deliveries of QoS 0

    def of(self, delivery: Delivery | Target) -> Unreadable | None:
        """Return why this delivery is refused, if it is."""
        found = self._repeated.get(delivery.queue_id)
        return self._lost.get(delivery.queue_id) if found is None and not delivery.qos else found

    def refused(self, delivery: Delivery | Target, found: Unreadable) -> None:
        """This delivery was."""
        (self._repeated if delivery.qos else self._lost)[delivery.queue_id] = found

    def stop(self, queue_id: int, found: Unreadable) -> None:
        """The queue itself cannot be read."""
        self._repeated[queue_id] = found

    def clear(self) -> None:
        self._repeated.clear()
        self._lost.clear()
