"""The event-log port: what every driver must do.

Knows the topics and that events have a key; knows no meaning of an event.
All methods block; drivers run in a thread of their own.

Theory: a topic has one partition or several. All events of a key are in one partition, and only there they have an order; a place in the
log is therefore a vector, one offset for each partition, and what is folded, kept or trimmed is said with such vectors.

Invariant: offsets never restart, neither after everything was trimmed nor after the log was lost: an event with a used offset would look
folded, and be lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from iothub.records.events import Event, Topic

Offsets = tuple[int, ...]
"""For each partition the offset up to which something holds; what is missing at the end counts as 0: nothing."""

NOWHERE: Offsets = ()


class LoggedEvent(NamedTuple):
    """An event with its place in the log. Offsets of a partition begin above 0, rise strictly, are never re-used, and may have gaps."""

    partition: int
    offset: int  # 0: the log has it, and could not say where
    event: Event


class DamagedEvent(NamedTuple):
    """A record of the log that is not a valid event (`iothub.records.events.read_event`): the reader counts it and goes on."""

    partition: int
    offset: int
    reason: str  # with the place, for a person


class EventLog(Protocol):
    """One contract suite (`iothub.testing.event_contract`) holds every driver to this."""

    @property
    def is_shared(self) -> bool:
        """Others may append to it too."""

    def append(self, events: list[Event]) -> list[LoggedEvent]:
        """Durable when it returns, in this order as far as a partition is concerned; each event goes to the topic of its type.

        Raises BackendError. What a call that failed has left open is not written twice when the same event objects are appended again.
        """

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> Sequence[LoggedEvent | DamagedEvent]:
        """At most `count` events above `after`, ascending in each partition, damaged ones among them. Empty: the end was reached."""

    def begin(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        """The lowest offsets from which nothing is missing: trimmed events are below."""

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        """The last offsets ever given, 0 in a new log; also after a full trim. As many as the topic has partitions."""

    def trim(self, upto: Offsets, topic: Topic = Topic.SESSIONS) -> int:
        """Remove events up to and including these offsets; returns how many."""

    def after_loss(self, seen: Offsets) -> Offsets:
        """Where the session log would go on, above everything that its readers have seen. Changes nothing."""

    def skip_to(self, offsets: Offsets) -> None:
        """Never issue an offset of the session log up to these: the log was lost, its readers' states were not. Removes the events below."""

    def close(self) -> None: ...


def reached(offsets: Offsets | list[int], partition: int) -> int:
    """Return the offset of one partition."""
    return offsets[partition] if partition < len(offsets) else 0


def raised(offsets: Offsets, partition: int, offset: int) -> Offsets:
    """Return the offsets with one of them raised."""
    whole = [*offsets, *[0] * (partition + 1 - len(offsets))]
    whole[partition] = max(whole[partition], offset)
    return tuple(whole)
