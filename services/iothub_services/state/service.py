"""The session-state service: appends events, folds them, keeps the state store behind them, and loads it all at start.

Knows ports, not drivers. Runs in the thread of the event log (`journal_thread`); `load` runs before that thread is started.

Theory: the log is the truth, the store a checkpoint of its fold. An event is answered as soon as the log has it; folded records are written later, in
idle time or when many have gathered. What the store does not have yet is the tail of the log, which the next start folds again: every record
knows the offset that it includes. Where others append to the same log, what is between our own events is read from the log before they are folded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from iothub.clock import Clock
from iothub.errors import BackendError, ConflictError, CorruptRecordError, FutureRecordError, IotHubError
from iothub.records.events import Event, Topic, partition_of
from iothub.records.state import SessionState, decode_state, encode_state, fold
from iothub_services.events.port import (
    NOWHERE,
    DamagedEventError,
    EventLog,
    LoggedEvent,
    Offsets,
    reached,
)
from iothub_services.events.reading import read_between
from iothub_services.sqlite.group import CallInReactor, GroupThread, Patience
from iothub_services.state.port import StateStore, StateWrite

Key = tuple[int, str]
Alarm = Callable[[str, str], None]

_GATHERED = 2_000  # changed records that are written without waiting for idle time
_REMEMBERED = 20_000  # folded states in memory, changed or not

PATIENCE = Patience(0.25, 30.0)


@dataclass(frozen=True, slots=True)
class DropTenant:
    """An operation of the log's thread: forget the states of a deleted tenant. Its events go when the log is trimmed."""

    tenant_id: int


StateOp: TypeAlias = list[Event] | DropTenant


@dataclass(slots=True)
class Verification:
    """What a rebuild from the log found. `unreachable`: sessions that were created before the log begins; they were not compared."""

    compared: int = 0
    unreachable: int = 0
    differences: list[str] = field(default_factory=list)


class StateService:
    """Events in, state out. `on_alarm` is called in the thread of the log (in the caller's by `load`).

    Invariants: `_changed` holds every state that is newer than its row; states are folded in the order of each partition; `folded` is the last
    place that went through the fold; it is the log's end unless `_is_behind`. What the log has is durable, whatever the fold needs.
    """

    def __init__(self, log: EventLog, store: StateStore, on_alarm: Alarm) -> None:
        self._log = log
        self._store = store
        self._on_alarm = on_alarm
        self._known: dict[Key, SessionState | None] = {}
        self._changed: dict[Key, SessionState] = {}
        self._is_failing = False
        self._is_behind = (
            False  # the log has events that are not folded: others', or the store did not say what was before
        )
        self._unfolded = 0  # events that were appended meanwhile
        self.probe: Callable[[], None] | None = getattr(log, "probe", None)

    @cached_property
    def _folded(self) -> list[int]:
        """As the store has it at first; asked when it is first needed: a store on a server answers only while a hub turns."""
        return list(self._store.applied_offsets())

    @property
    def folded(self) -> Offsets:
        return tuple(self._folded)

    def load(self) -> list[SessionState]:
        """Bring the store up to the end of the log and return every persistent session. Blocking.

        Raises:
            ConflictError: Events between store and log are missing, so the sessions could not be told.
            FutureRecordError: The log or a record is of a newer program.
        """
        self._check_begin()
        self._catch_up()
        self._flush()
        self._check_end()
        states = [state for stored in self._store.load() if (state := self._decode(stored.record)) is not None]
        return [state for state in states if not state.is_ended]

    def _check_begin(self) -> None:
        """Compare where the log begins with how far the store is."""
        first, last = self._log.begin(), self._log.end()
        if not any(self._folded):
            if any(begin > 1 for begin in first):
                text = f"the session log begins at {_shown(first)}: sessions not changed since are lost"
                self._on_alarm("state_incomplete", text)
        elif len(self._folded) != len(last):
            if any(begin <= end for begin, end in zip(first, last, strict=True)):
                raise ConflictError(
                    f"the session states are of a log with {len(self._folded)} partitions, this one has {len(last)}: "
                    "choose the log that they are of, or remove them to start from this log alone"
                )
        elif any(begin > offset + 1 for begin, offset in zip(first, self._folded, strict=True)):
            needed = tuple(offset + 1 for offset in self._folded)
            raise ConflictError(
                f"the session log begins at offset {_shown(first)}, the session states need it from {_shown(needed)}: "
                "restore both from one backup, or remove both to start without sessions"
            )

    def _check_end(self) -> None:
        """Go on above everything that the store has seen when the log has lost its end: what is appended must not look folded (!)."""
        last = self._log.end()
        if not any(self._folded) or (len(last) == len(self._folded) and all(map(operator.ge, last, self._folded))):
            return
        text = f"the session log ends at {_shown(last)}, the states at {_shown(self.folded)}: it goes on above"
        self._on_alarm("event_log_lost", text)
        above = self._log.after_loss(self.folded)
        self._store.apply(above, [])  # first: a crash between the two looks like another loss, not like a gap
        self._folded = list(above)
        self._log.skip_to(above)

    def __call__(self, ops: list[StateOp]) -> list[object]:
        """Append the events of all operations in one commit, then fold them: the answers are the last offsets (of a `DropTenant`: its rows)."""
        done = self._log.append([event for events in ops if not isinstance(events, DropTenant) for event in events])
        self._take_in(done)
        if len(self._changed) >= _GATHERED or self._unfolded >= _GATHERED:
            self._write()
        rest = iter(done)
        return [
            self._drop_tenant(op.tenant_id) if isinstance(op, DropTenant) else _last(islice(rest, len(op)))
            for op in ops
        ]

    def _take_in(self, done: list[LoggedEvent]) -> None:
        """Fold what was appended. A store that cannot be read is no reason to append it again, or to deny that it is durable."""
        try:
            for logged in done:
                if logged.event.type.topic is not Topic.SESSIONS:
                    continue
                self._is_behind |= logged.offset != reached(self._folded, logged.partition) + 1
                if self._is_behind:  # `_flush` folds it from the log, in its order
                    self._unfolded += 1
                else:
                    self._fold(logged)
        except (BackendError, FutureRecordError) as error:
            self._is_behind = True
            self._failed(error)

    def _drop_tenant(self, tenant_id: int) -> object:
        """Remove the rows of a tenant whose sessions have ended. What is folded is written first: the log is not folded over this again."""
        try:
            self._flush()
            self._known = {key: state for key, state in self._known.items() if key[0] != tenant_id}
            return self._store.drop_tenant(tenant_id)
        except (BackendError, FutureRecordError) as error:
            return error

    def idle(self) -> bool:
        """Fold what others have appended, write what was folded; never more to do after it.

        Raises BackendError when the log does not answer. A store that fails is asked again later, with an alarm.
        """
        if self._log.is_shared and not self._is_behind:
            self._is_behind = self._log.end() != self.folded
        self._write()
        return False

    def _write(self) -> None:
        try:
            self._flush()
        except (BackendError, FutureRecordError) as error:
            self._failed(error)
        else:
            if self._is_failing:
                self._is_failing = False
                self._on_alarm("state_failing", "")

    def _failed(self, error: IotHubError) -> None:
        self._is_failing = True
        self._on_alarm("state_failing", f"{error}; the session log has it, the next start may take longer")

    def state_of(self, tenant_id: int, client_id: str) -> SessionState | None:
        """Return the state as folded; None for unknown and ended sessions."""
        state = self._get((tenant_id, client_id))
        return None if state is None or state.is_ended else state

    def verify(self) -> Verification:
        """Rebuild every session from the log alone and compare with the store (after writing what is folded). Blocking."""
        self._flush()
        rebuilt: dict[Key, SessionState | None] = {}
        for logged in read_between(self._log, NOWHERE, self._log.end(), self._skip):
            key = (logged.event.tenant_id, logged.event.client_id)
            rebuilt[key] = fold(rebuilt.get(key), logged.event, logged.offset)
        return self._compare({key: state for key, state in rebuilt.items() if state is not None})

    def trim(self, upto: Offsets) -> int:
        """Trim the log as far as the store has it, and forget tombstones below. Returns how many events went."""
        self._flush()
        upto = tuple(map(min, upto, self._store.applied_offsets()))
        count = self._log.trim(upto)
        self._store.forget([(s.tenant_id, s.client_id) for s in self._store.load() if _is_tombstone(s.record, upto)])
        self._known.clear()
        return count

    def close(self) -> None:
        """Write what was folded and close log and store."""
        self._write()
        self._log.close()
        self._store.close()

    def _compare(self, rebuilt: dict[Key, SessionState]) -> Verification:
        found = Verification()
        is_whole = all(begin <= 1 for begin in self._log.begin())
        for stored in self._store.load():
            key = (stored.tenant_id, stored.client_id)
            expected = rebuilt.pop(key, None)
            if expected is None and not is_whole:
                found.unreachable += 1
                continue
            found.compared += 1
            if expected is None:
                found.differences.append(f"{key[0]}/{key[1]}: stored, but not in the log")
            elif encode_state(expected) != stored.record:
                found.differences.append(f"{key[0]}/{key[1]}: stored otherwise than the log says")
        living = [
            key for key, state in rebuilt.items() if not state.is_ended
        ]  # the rows of others go with their tenant
        found.compared += len(living)
        found.differences += [f"{key[0]}/{key[1]}: in the log, but not stored" for key in living]
        return found

    def _catch_up(self) -> None:
        """Fold what the log has beyond `folded`, up to where it ends now; a damaged event is skipped, with an alarm."""
        end = self._log.end()
        for logged in read_between(self._log, self.folded, end, self._skip):
            self._fold(logged)
        self._folded = [max(offset, reached(self._folded, partition)) for partition, offset in enumerate(end)]
        self._is_behind = False
        self._unfolded = 0

    def _skip(self, error: DamagedEventError) -> None:
        self._on_alarm("event_corrupt", f"{error}: skipped")

    def _fold(self, logged: LoggedEvent) -> None:
        partition, offset, event = logged
        if event.epoch:
            key = (event.tenant_id, event.client_id)
            before = self._get(key)
            after = fold(before, event, offset)
            if after is not None and after is not before:
                self._known[key] = self._changed[key] = after
        self._folded += [0] * (partition + 1 - len(self._folded))
        self._folded[partition] = offset

    def _get(self, key: Key) -> SessionState | None:
        if key in self._known:
            return self._known[key]
        stored = self._store.get(*key)
        state = self._known[key] = None if stored is None else self._decode(stored.record)
        return state

    def _decode(self, record: bytes) -> SessionState | None:
        try:
            return decode_state(record)
        except CorruptRecordError as error:
            self._on_alarm("state_corrupt", f"{error}: the session is not restored")
            return None

    def _flush(self) -> None:
        if self._is_behind:
            self._catch_up()
        if self.folded == self._store.applied_offsets():
            return
        writes = [StateWrite(*key, state.offset, encode_state(state)) for key, state in self._changed.items()]
        self._store.apply(self.folded, writes)
        self._changed.clear()
        if len(self._known) > _REMEMBERED:
            self._known.clear()


def journal_thread(
    service: StateService,
    call_in_reactor: CallInReactor,
    clock: Clock,
    on_alarm: Alarm,
    patience: Patience = PATIENCE,
    on_commit: Callable[[str, float], None] | None = None,
) -> GroupThread[StateOp, object]:
    """Return the thread of the session-event log: submit lists of events, each is durable when it is answered."""
    return GroupThread(
        "events",
        service,
        call_in_reactor,
        clock,
        patience=patience,
        idle=service.idle,
        probe=service.probe,
        on_alarm=on_alarm,
        on_commit=on_commit,
    )


def _is_tombstone(record: bytes, upto: Offsets) -> bool:
    try:
        state = decode_state(record)
    except CorruptRecordError:
        return False
    partition = partition_of(f"{state.tenant_id}/{state.client_id}", len(upto)) if upto else 0
    return state.is_ended and state.offset <= reached(upto, partition)


def _last(done: Iterable[LoggedEvent]) -> int:
    return max((logged.offset for logged in done), default=0)


def _shown(offsets: Offsets) -> str:
    return " ".join(map(str, offsets))
