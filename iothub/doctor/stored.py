"""What the next start will read first of log and states: can this program read it? A sample, for nobody waits for more.

Knows the ports; opening the stores is the caller's. That not everything was read is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from itertools import islice
from typing import NamedTuple

from iothub.base.errors import CorruptRecordError, FutureRecordError
from iothub.doctor.findings import Finding, Look, State, timed, unless_away
from iothub.records.state import decode_state
from iothub_services.events.port import DamagedEventError, EventLog, reached
from iothub_services.events.reading import read_between
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore, UnreadableState, record_in
from iothub_services.state.start import where_a_start_begins

NAME = "stored data"
EVENTS = 2_000
STATES = 200
_REST = "a sample, without retained messages and queues: iothub events verify and iothub state verify read log and states to the end"
_UPGRADE = (
    "the next start is refused: upgrade this hub; for an event that no newer iothub needs: the setting events.left_out"
)
_REFUSED = "the next start is refused: iothub state verify names all such rows; put them back, as from a backup"
_DAMAGED = "iothub events verify and iothub state verify name all of it"


class Stored(NamedTuple):
    """Open to be read."""

    log: EventLog
    states: StateStore
    checkpoints: CheckpointStore | None


def look(opened: Callable[[], AbstractContextManager[Stored | None]]) -> Look:
    """`opened` gives None where no hub has stored anything yet."""
    return unless_away(Look(NAME, lambda: _look(opened)))


def _look(opened: Callable[[], AbstractContextManager[Stored | None]]) -> Iterator[Finding]:
    with opened() as stored:
        if stored is None:
            yield Finding(NAME, State.OK, "there is none yet")
            return
        try:
            (told, damaged), seconds = timed(lambda: _sample(stored))
        except CorruptRecordError as error:
            advice = _UPGRADE if isinstance(error, FutureRecordError) else _REFUSED
            yield Finding(NAME, State.FAIL, str(error), advice)
            return
    if damaged:
        yield Finding(NAME, State.WARN, f"{damaged[0]} ({len(damaged)} in {told})", _DAMAGED, seconds)
    else:
        yield Finding(NAME, State.OK, f"{told} can be read", _REST, seconds)


def _sample(stored: Stored) -> tuple[str, list[str]]:
    """Read the beginning of what a start reads, and some states. Raises CorruptRecordError: the next start is refused."""
    damaged: list[str] = []

    def note(error: DamagedEventError) -> None:
        damaged.append(str(error))

    after, end = where_a_start_begins(*stored), stored.log.end()
    behind = sum(max(offset - reached(after, partition), 0) for partition, offset in enumerate(end))
    events = sum(1 for _ in islice(read_between(stored.log, after, end, note), EVENTS))
    states = 0
    for row in islice(stored.states.load(), STATES):
        states += 1
        try:
            decode_state(record_in(row))
        except CorruptRecordError as error:
            told = f"session {row.tenant_id}/{row.client_id}: {error}"
            is_in_the_way = isinstance(row, UnreadableState) or isinstance(error, FutureRecordError)
            if is_in_the_way and after == stored.states.applied_offsets():  # no checkpoint to begin with instead
                raise type(error)(told) from error
            damaged.append(told)
    return f"{events} of {behind} events behind the states, {states} states", damaged
