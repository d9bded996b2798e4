"""The event-log port in plain Python objects, for tests. Nothing survives.

Knows no file and no thread.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from iothub.records.events import Event, Topic
from iothub_services.events.port import LoggedEvent


class MemoryEvents:
    """Fulfils `EventLog`."""

    def __init__(self) -> None:
        self._logs: dict[Topic, list[LoggedEvent]] = {topic: [] for topic in Topic}
        self._ends = dict.fromkeys(Topic, 0)

    def close(self) -> None:
        """Nothing is open."""

    @contextmanager
    def group(self) -> Iterator[None]:
        yield

    def append(self, events: list[Event]) -> list[int]:
        return [self._append(event) for event in events]

    def read(self, after: int, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        return [logged for logged in self._logs[topic] if logged.offset > after][:count]

    def begin(self, topic: Topic = Topic.SESSIONS) -> int:
        log = self._logs[topic]
        return log[0].offset if log else self._ends[topic] + 1

    def end(self, topic: Topic = Topic.SESSIONS) -> int:
        return self._ends[topic]

    def trim(self, upto: int, topic: Topic = Topic.SESSIONS) -> int:
        log = self._logs[topic]
        self._logs[topic] = [logged for logged in log if logged.offset > upto]
        return len(log) - len(self._logs[topic])

    def skip_to(self, offset: int, topic: Topic = Topic.SESSIONS) -> None:
        self._ends[topic] = max(offset, self._ends[topic])

    def _append(self, event: Event) -> int:
        topic = event.type.topic
        self._ends[topic] += 1
        self._logs[topic].append(LoggedEvent(self._ends[topic], event))
        return self._ends[topic]
