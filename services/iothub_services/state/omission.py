"""Leaving out events that nobody here can read: found, and taken out of the log for good, with everything before them in the states.

Knows the ports of log, states and checkpoints. Must not run beside a hub on the same data directory; a hub elsewhere that follows the log hears that
its place is gone, and takes nothing until it is begun again.

Theory: the states are folded up to the event and written; then they are said to have it, and only then the partition is trimmed up to it. A crash
in between leaves a log that the next call trims. In the other order it would leave states that lack something: no start would go on from them (!).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from iothub.errors import BackendError, ConflictError
from iothub.records.events import Topic
from iothub_services.events.port import (
    NOWHERE,
    EventLog,
    FutureEventError,
    LoggedEvent,
    Offsets,
    raised,
    reached,
)
from iothub_services.events.reading import read_between
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore
from iothub_services.state.service import StateService
from iothub_services.state.start import obstacle


def where_a_start_begins(log: EventLog, states: StateStore, checkpoints: CheckpointStore | None) -> Offsets:
    """Return up to where a start reads nothing of the log: the checkpoint, if it can be used, or the states have that."""
    pointer, applied = None if checkpoints is None else checkpoints.pointer(), states.applied_offsets()
    if pointer is None or obstacle(pointer, log.begin(), log.end(), applied):
        return applied
    return pointer.offsets


def in_the_way(log: EventLog, states: StateStore, checkpoints: CheckpointStore | None) -> list[FutureEventError]:
    """Return, for each partition, the first event of a newer program that a start would read; ascending by partition."""
    after, end = where_a_start_begins(log, states, checkpoints), log.end()
    found: list[FutureEventError] = []
    while True:
        try:
            for partition, offset, _ in read_between(log, after, end, lambda _: None):
                after = raised(after, partition, offset)
        except FutureEventError as error:
            found.append(error)
            after = raised(after, error.partition, reached(end, error.partition))
        else:
            return sorted(found, key=lambda error: error.partition)


def leave_out(
    log: EventLog,
    states: StateStore,
    checkpoints: CheckpointStore | None,
    found: list[FutureEventError],
    which: FutureEventError,
) -> int:
    """Take one of those `in_the_way` out of the log, with what its partition has before it. Returns how many events went.

    Raises:
        BackendError: A store did not answer, or could not be written; call it again.
        ConflictError: The log is not one that a start could go on from.
    """
    partition, offset = which.partition, which.offset
    if reached(states.applied_offsets(), partition) < offset:
        _fold_up_to(found, log, states, checkpoints)
        applied = states.applied_offsets()
        if reached(applied, partition) != offset - 1:
            raise ConflictError(
                f"the states have partition {partition} up to {reached(applied, partition)}, not up to {offset - 1}"
            )
        states.apply(raised(applied, partition, offset), [])
    return log.trim(raised(NOWHERE, partition, offset))


def _fold_up_to(
    found: list[FutureEventError], log: EventLog, states: StateStore, checkpoints: CheckpointStore | None
) -> None:
    """Do what a start does, with a log that ends before what cannot be read."""
    troubles: list[str] = []
    applied = states.applied_offsets()
    unread = [error for error in found if error.offset > reached(applied, error.partition)]
    service = StateService(cast("EventLog", _Short(log, unread)), states, _noting(troubles), checkpoints)
    service.load()
    service.idle()
    if troubles:
        raise BackendError(troubles[0], retryable=True)


def _noting(troubles: list[str]) -> Callable[[str, str], None]:
    """What a damaged event or an old checkpoint is told by is no trouble here: a start tells it again."""

    def note(word: str, text: str) -> None:
        if text and word.endswith("_failing"):
            troubles.append(text)

    return note


class _Short:
    """A log that ends, in some partitions, before an event that cannot be read."""

    def __init__(self, log: EventLog, found: list[FutureEventError]) -> None:
        self._log = log
        self._ends = {error.partition: error.offset - 1 for error in found}

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def after_loss(self, seen: Offsets) -> Offsets:
        """A log that lost its end is begun anew by a start alone: this one only looks shorter than it is (!)."""
        raise ConflictError(f"the states have seen the log up to {' '.join(map(str, seen))}, which it does not have")

    def end(self, topic: Topic = Topic.SESSIONS) -> Offsets:
        return tuple(self._ends.get(partition, offset) for partition, offset in enumerate(self._log.end(topic)))

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        """Nothing is asked of a partition that was read up to there: what cannot be read would keep the others from being read."""
        for partition, (short, end) in enumerate(zip(self.end(topic), self._log.end(topic), strict=True)):
            if reached(after, partition) >= short:
                after = raised(after, partition, end)
        return self._log.read(after, count, topic)
