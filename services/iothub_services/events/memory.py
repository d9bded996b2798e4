"""The event-log port in plain Python objects, for tests. Nothing survives.

Knows no file and no thread.
"""

from __future__ import annotations

from iothub.records.events import Event, Topic, partition_of
from iothub_services.events.port import LoggedEvent, Offsets, reached


class MemoryEvents:
    """Fulfils `EventLog`."""

    is_shared = False

    def __init__(self, partitions: int = 1) -> None:
        self._logs: dict[Topic, list[list[LoggedEvent]]] = {topic: [[] for _ in range(partitions)] for topic in Topic}
        self._ends = {topic: [0] * partitions for topic in Topic}

    def close(self) -> None:
        """Nothing is open."""

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        return [self._append(event) for event in events]

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        return [
            logged
            for partition, log in enumerate(self._logs[topic])
            for logged in log
            if logged.offset > reached(after, partition)
        ][:count]

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        ends = self._ends[topic]
        return tuple(log[0].offset if log else end + 1 for log, end in zip(self._logs[topic], ends, strict=True))

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        return tuple(self._ends[topic])

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        logs = self._logs[topic]
        before = sum(map(len, logs))
        self._logs[topic] = [
            [logged for logged in log if logged.offset > reached(upto, partition)] for partition, log in enumerate(logs)
        ]
        return before - sum(map(len, self._logs[topic]))

    def after_loss(self, seen: Offsets) -> Offsets:
        return (max(seen, default=0),) * len(self._ends[Topic.SESSIONS])

    def skip_to(self, offsets: Offsets) -> None:
        ends = self._ends[Topic.SESSIONS]
        for log, end, offset in zip(self._logs[Topic.SESSIONS], ends, offsets, strict=False):
            if end < offset:
                log.clear()
        ends[:] = [max(end, reached(offsets, partition)) for partition, end in enumerate(ends)]

    def _append(self, event: Event) -> LoggedEvent:
        ends = self._ends[event.type.topic]
        partition = partition_of(event.key, len(ends))
        ends[partition] += 1
        logged = LoggedEvent(partition, ends[partition], event)
        self._logs[event.type.topic][partition].append(logged)
        return logged
