"""Damaged queues as operators hear of them: the log names each one, an alarm the first.

Knows no driver: a driver that cannot read a queue's own state says so here, and treats the queue as one that is not there.
"""

from __future__ import annotations

from collections.abc import Callable

from iothub.base import log as logging

log = logging.get(__name__)

ALARM = "queue_lost"


def no_alarm(_word: str, _text: str) -> None:
    """The log says it to whoever is there."""


class DamagedQueues:
    """Any thread may call it. Each queue is named once, and lost until it is dropped, whatever else can still be read of it.

    `lost`: the ids of those queues; only this class changes it.
    """

    def __init__(self, on_alarm: Callable[[str, str], None]) -> None:
        self._on_alarm = on_alarm
        self.lost: set[int] = set()

    def is_lost(self, queue_id: int) -> bool:
        return queue_id in self.lost

    def dropped(self, queue_id: int) -> None:
        self.lost.discard(queue_id)

    def found(self, queue_id: int, why: str) -> None:
        """The queue's own state is damaged."""
        if queue_id in self.lost:
            return
        self.lost.add(queue_id)
        log.error("queue is damaged and lost, ending its session", queue=queue_id, why=why)
        self._on_alarm(ALARM, f"queue {queue_id} is damaged and lost, its session ends (queue_lost): {why}")
