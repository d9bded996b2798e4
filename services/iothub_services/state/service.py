"""The session-state service: appends events, folds them, keeps the state store behind them, and loads it all at start.

Knows ports, not drivers. Runs in the thread of the event log (`journal_thread`); `load` runs before that thread is started.

Theory: the log is the truth, the store a checkpoint of its fold. An event is answered as soon as the log has it; folded records are written later, in
idle time or when many have gathered. What the store does not have yet is the tail of the log, which the next start folds again: every record
knows the offset that it includes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeAlias

from iothub.clock import Clock
from iothub.errors import BackendError, ConflictError, CorruptRecordError
from iothub.records.events import Event, Topic
from iothub.records.state import SessionState, decode_state, encode_state, fold
from iothub_services.events.port import EventLog, LoggedEvent
from iothub_services.sqlite.group import CallInReactor, GroupThread, Patience
from iothub_services.state.port import StateStore, StateWrite

Key = tuple[int, str]
Alarm = Callable[[str, str], None]

_PAGE = 1_000  # events per read
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

    Invariants: `_changed` holds every state that is newer than its row; states are folded in the order of the log; `folded` is the last
    offset that went through the fold; it is the log's last one unless `_is_behind`. What the log has is durable, whatever the fold needs.
    """

    def __init__(self, log: EventLog, store: StateStore, on_alarm: Alarm) -> None:
        self._log = log
        self._store = store
        self._on_alarm = on_alarm
        self._known: dict[Key, SessionState | None] = {}
        self._changed: dict[Key, SessionState] = {}
        self._is_failing = False
        self._is_behind = False  # the log has events that could not be folded: the store did not say what was before
        self.probe: Callable[[], None] | None = getattr(log, "probe", None)
        self.folded = store.applied_offset()

    def load(self) -> list[SessionState]:
        """Bring the store up to the end of the log and return every persistent session. Blocking.

        Raises ConflictError when events between store and log are missing: the sessions could not be told.
        """
        self._check_ends()
        for logged in self._events(self.folded):
            self._fold(logged.event, logged.offset)
        self._flush()
        states = [state for stored in self._store.load() if (state := self._decode(stored.record)) is not None]
        return [state for state in states if not state.is_ended]

    def _check_ends(self) -> None:
        first, last = self._log.begin(), self._log.end()
        if last < self.folded:
            self._on_alarm(
                "event_log_lost", f"the session log ends at {last}, the states at {self.folded}: it goes on there"
            )
            self._log.skip_to(self.folded)
        elif first > self.folded + 1 and self.folded == 0:
            self._on_alarm(
                "state_incomplete", f"the session log begins at {first}: sessions not changed since are lost"
            )
        elif first > self.folded + 1:
            raise ConflictError(
                f"the session log begins at offset {first}, the session states need it from {self.folded + 1}: "
                "restore events.db and state.db from one backup, or remove both to start without sessions"
            )

    def __call__(self, ops: list[StateOp]) -> list[object]:
        """Append the events of all operations in one commit, then fold them: the answers are the last offsets (of a `DropTenant`: its rows)."""
        answers: list[object] = []
        done: list[tuple[Event, int]] = []
        with self._log.group():
            for events in ops:
                if isinstance(events, DropTenant):
                    answers.append(events)
                    continue
                offsets = self._log.append(events)
                done += zip(events, offsets, strict=True)
                answers.append(offsets[-1] if offsets else 0)
        self._take_in(done)
        if len(self._changed) >= _GATHERED:
            self.idle()
        return [self._drop_tenant(answer.tenant_id) if isinstance(answer, DropTenant) else answer for answer in answers]

    def _take_in(self, done: list[tuple[Event, int]]) -> None:
        """Fold what was appended. A store that cannot be read is no reason to append it again, or to deny that it is durable."""
        if self._is_behind:
            return  # `_flush` folds it from the log, in its order
        try:
            for event, offset in done:
                if event.type.topic is Topic.SESSIONS:
                    self._fold(event, offset)
        except BackendError as error:
            self._is_behind = True
            self._failed(error)

    def _drop_tenant(self, tenant_id: int) -> object:
        """Remove the rows of a tenant whose sessions have ended. What is folded is written first: the log is not folded over this again."""
        try:
            self._flush()
            self._known = {key: state for key, state in self._known.items() if key[0] != tenant_id}
            return self._store.drop_tenant(tenant_id)
        except BackendError as error:
            return error

    def idle(self) -> bool:
        """Write what was folded; never more to do after it. A store that fails is asked again later, with an alarm."""
        try:
            self._flush()
        except BackendError as error:
            self._failed(error)
        else:
            if self._is_failing:
                self._is_failing = False
                self._on_alarm("state_failing", "")
        return False

    def _failed(self, error: BackendError) -> None:
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
        for logged in self._events(0):
            key = (logged.event.tenant_id, logged.event.client_id)
            rebuilt[key] = fold(rebuilt.get(key), logged.event, logged.offset)
        return self._compare({key: state for key, state in rebuilt.items() if state is not None})

    def trim(self, upto: int) -> int:
        """Trim the log as far as the store has it, and forget tombstones below. Returns how many events went."""
        self._flush()
        upto = min(upto, self._store.applied_offset())
        count = self._log.trim(upto)
        self._store.forget([(s.tenant_id, s.client_id) for s in self._store.load() if _is_tombstone(s.record, upto)])
        self._known.clear()
        return count

    def close(self) -> None:
        """Write what was folded and close log and store."""
        self.idle()
        self._log.close()
        self._store.close()

    def _compare(self, rebuilt: dict[Key, SessionState]) -> Verification:
        found = Verification()
        is_whole = self._log.begin() <= 1
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

    def _events(self, after: int) -> Iterator[LoggedEvent]:
        """Events of the session log; a damaged one is skipped, with an alarm."""
        count = _PAGE
        end = self._log.end()
        while after < end:
            try:
                page = self._log.read(after, count)
            except CorruptRecordError as error:
                if count == 1:
                    self._on_alarm("event_corrupt", f"{error}: skipped")
                    after += 1
                count = max(1, count // 2)
                continue
            if not page:
                return
            yield from page
            after = page[-1].offset
            count = min(_PAGE, count * 2)

    def _fold(self, event: Event, offset: int) -> None:
        if event.epoch:
            key = (event.tenant_id, event.client_id)
            before = self._get(key)
            after = fold(before, event, offset)
            if after is not None and after is not before:
                self._known[key] = self._changed[key] = after
        self.folded = offset

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
            for logged in self._events(self.folded):
                self._fold(logged.event, logged.offset)
            self._is_behind = False
        if self.folded <= self._store.applied_offset():
            return
        writes = [StateWrite(*key, encode_state(state)) for key, state in self._changed.items()]
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


def _is_tombstone(record: bytes, upto: int) -> bool:
    try:
        state = decode_state(record)
    except CorruptRecordError:
        return False
    return state.is_ended and state.offset <= upto
