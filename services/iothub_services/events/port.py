"""The event-log port (storage page, section 2): what every driver must do.

Knows the topics and that events have a key; knows no meaning of an event.
All methods block; drivers run in a thread of their own.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple, Protocol

from iothub.records.events import Event, Topic


class LoggedEvent(NamedTuple):
    """An event with its place in the log. Offsets of one topic rise strictly, are never re-used, and may have gaps."""

    offset: int
    event: Event


class EventLog(Protocol):
    """One contract suite (`iothub.testing.event_contract`) holds every driver to this."""

    def group(self) -> AbstractContextManager[None]:
        """Everything done inside is one commit."""

    def append(self, events: list[Event]) -> list[int]:
        """Durable and ordered when it returns; each event goes to the topic of its type. Returns the offsets."""

    def read(self, after: int, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        """At most `count` events with an offset above `after`, ascending. An empty list: the end was reached.

        Raises CorruptRecordError for an event that is damaged or of a future version.
        """

    def begin(self, topic: Topic = Topic.SESSIONS) -> int:
        """The lowest offset from which nothing is missing: trimmed events are below it."""

    def end(self, topic: Topic = Topic.SESSIONS) -> int:
        """The last offset ever given, 0 in a new log; also after a full trim."""

    def trim(self, upto: int, topic: Topic = Topic.SESSIONS) -> int:
        """Remove events up to and including an offset; returns how many."""

    def skip_to(self, offset: int, topic: Topic = Topic.SESSIONS) -> None:
        """Give no offset up to here any more: the log was lost, its consumers were not."""

    def close(self) -> None: ...
