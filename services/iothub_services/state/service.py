"""The session-state service: appends events, folds them, keeps the state store behind them, and loads it all at start.

Knows ports, not drivers. Runs in the thread of the event log (`journal_thread`); `load` runs before that thread is started.

Theory: the log is the truth, the store a checkpoint of its fold. An event is answered as soon as the log has it; folded records are written later, in
idle time or when many have gathered. What the store does not have yet is the tail of the log, which the next start folds again: every record
knows the offset that it includes. Where others append to the same log, what is between our own events is read from the log before they are folded.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import TypeAlias

from iothub.base.clock import Clock
from iothub.base.errors import BackendError, ConflictError, CorruptRecordError
from iothub.base.gc_tuning import uncollected
from iothub.records.events import Event, Topic, partition_of
from iothub.records.state import SessionState, decode_state, encode_state, fold
from iothub_services.damaged import OnDamage, uncounted
from iothub_services.events.port import NOWHERE, EventLog, LoggedEvent, Offsets, raised, reached
from iothub_services.events.reading import PAGE, counted_by, read_between
from iothub_services.events.retention import TrimStatistics, trim_statistics
from iothub_services.group_thread import CallInReactor, GroupThread, RetryPolicy
from iothub_services.state.checkpoints import CheckpointStore
from iothub_services.state.port import StateStore, StateWrite, StoredState
from iothub_services.state.start import Checkpoint, find_checkpoint, includes

Key = tuple[int, str]
Alarm = Callable[[str, str], None]

_GATHERED = 2_000  # changed records that are written without waiting for idle time
_REMEMBERED = 20_000  # folded states in memory, changed or not

RETRIES = RetryPolicy(0.25, 30.0)

STORE = "state"  # by which damaged rows are counted
_FAILING = "state_failing"  # the alarm


@dataclass(frozen=True, slots=True)
class DropTenant:
    """An operation of the log's thread: forget the states of a deleted tenant. Its events go when the log is trimmed."""

    tenant_id: int


@dataclass(frozen=True, slots=True)
class StatesOf:
    """An operation of the log's thread: return the states of these sessions, without those that have none, or have ended."""

    keys: Sequence[Key]


StateOp: TypeAlias = list[Event] | DropTenant | TrimStatistics | StatesOf


class StateService:
    """Events in, state out. `on_alarm` and `on_damage` are called in the thread of the log (in the caller's by `load`).

    Invariants: `_changed` holds every state that is newer than its row; `_records` has those of them whole that are as a checkpoint has them.
    States are folded in the order of each partition; `folded` is the last place that went through the fold; it is the log's end unless
    `_is_behind`. What the log has is durable, whatever the fold needs.
    """

    def __init__(
        self,
        log: EventLog,
        store: StateStore,
        on_alarm: Alarm,
        checkpoints: CheckpointStore | None = None,
        on_damage: OnDamage = uncounted,
    ) -> None:
        self._log = log
        self._store = store
        self._on_alarm = on_alarm
        self._on_damage = on_damage
        self._on_damaged_event = counted_by(on_damage)
        self._damaged: dict[Key, str] | None = (
            None  # while the rows are loaded: those that may be rebuilt from the log, and why
        )
        self._checkpoints = checkpoints  # None: no job makes any
        self._known: dict[Key, SessionState | None] = {}
        self._changed: dict[Key, SessionState] = {}
        self._records: dict[Key, bytes] = {}
        self._is_log_enough = True  # to fold again what is not written; False: the log was trimmed up to a checkpoint, which alone has the rest
        self._is_begun = False  # something was loaded or appended: nothing is written before
        self._is_failing = False  # the store did not answer when it was asked last
        self._is_behind = (
            False  # the log has events that are not folded: others', or the store did not say what was before
        )
        self._untried = 0  # events since the store was last written, or tried
        self._written: Offsets = NOWHERE  # the store has it up to here, or further by others
        self.probe: Callable[[], None] | None = getattr(log, "probe", None)

    @cached_property
    def _folded(self) -> list[int]:
        """As the store has it at first; asked when it is first needed: a store on a server answers only while a hub turns."""
        self._written = self._store.applied_offsets()
        return list(self._written)

    @property
    def is_shared(self) -> bool:
        """Other hubs may write the log, too."""
        return self._log.is_shared

    @property
    def folded(self) -> Offsets:
        return tuple(self._folded)

    def load(self) -> list[SessionState]:
        """Bring the store up to the end of the log and return every persistent session. Blocking.

        The sessions are those of the current checkpoint, with what the log has behind it. Without one, or when it cannot be used
        (an alarm says why), they are those of the store, with what the log has behind that. When a server fails in the middle, it may be
        called again: nothing of the attempt before is left.

        Raises ConflictError: Events between store and log are missing, so the sessions are not known.
        """
        self._is_begun = True
        self._ask_store_anew()
        with uncollected():
            checkpoint = find_checkpoint(self._checkpoints, self._log, self.folded, self._on_unusable_checkpoint)
            return self._load_stored() if checkpoint is None else self._load_from(checkpoint)

    def _ask_store_anew(self) -> None:
        """Forget what was folded and is not written, and ask the store what it has.

        Invariant: every attempt to load begins here. Otherwise the next attempt would take folded states for written ones, and never write them.
        """
        self._known.clear()
        self._changed.clear()
        self._records.clear()
        self._is_log_enough = True
        self._written = self._store.applied_offsets()
        self._folded = list(self._written)

    def _load_from(self, checkpoint: Checkpoint) -> list[SessionState]:
        """Fold the tail over a checkpoint. What the store lacks is written behind, like what is folded later."""
        applied, states, pointer = self.folded, checkpoint.states, checkpoint.pointer
        records = checkpoint.lacking
        end = self._log.end()
        folded = list(map(max, end, pointer.offsets))
        for partition, offset, event in read_between(self._log, pointer.offsets, end, self._on_damaged_event):
            state = fold(states.get((event.tenant_id, event.client_id)), event, offset)
            if state is not None:
                states[state.key] = state
                records.pop(state.key, None)
            folded[partition] = max(offset, folded[partition])
        self._changed = {
            key: state for key, state in states.items() if state.offset > reached(applied, _partition(state, len(end)))
        }
        self._records = records
        self._is_log_enough = includes(applied, pointer)
        self._folded = folded
        return [state for state in states.values() if not state.is_ended]

    def _on_unusable_checkpoint(self, why: str) -> None:
        self._on_alarm("checkpoint_unused", f"{why}; the start continues from the session states")

    def _load_stored(self) -> list[SessionState]:
        damaged = self._damaged = {}
        self._check_begin()
        self._catch_up()
        self._flush()
        self._check_end()
        states = {(row.tenant_id, row.client_id): self._decode(row) for row in self._store.load()}
        rebuilt = self._rebuild(key for key, state in states.items() if state is None)
        states |= rebuilt
        self._damaged = None
        for key, reason in damaged.items():
            self._report(key, reason, is_rebuilt=states.get(key) is not None)
        return [state for state in states.values() if state is not None and not state.is_ended]

    def _rebuild(self, keys: Iterable[Key]) -> dict[Key, SessionState]:
        """Fold the sessions of damaged rows from the log, as far as it reaches back to their beginning; their next events write the rows anew."""
        damaged, states = set(keys), dict[Key, SessionState]()
        for _, offset, event in read_between(self._log, NOWHERE, self.folded, lambda _: None) if damaged else ():
            key = (event.tenant_id, event.client_id)
            if key in damaged:
                state = fold(states.get(key), event, offset)
                if state is not None:
                    states[key] = state
        self._known.update(states)
        return states

    def _check_begin(self) -> None:
        """Compare where the log begins with how far the store is."""
        first, last = self._log.begin(), self._log.end()
        if not any(self._folded):
            if any(begin > 1 for begin in first):
                self._require_own_log(first)
                text = f"the session log begins at {_shown(first)}: sessions not changed since are lost"
                self._on_alarm("state_incomplete", text)
        elif len(self._folded) != len(last):
            if any(begin <= end for begin, end in zip(first, last, strict=True)):
                raise ConflictError(
                    f"the session states belong to a log with {len(self._folded)} partitions, this one has {len(last)}: "
                    "choose the log that they belong to, or remove them to start from this log"
                )
        elif any(begin > offset + 1 for begin, offset in zip(first, self._folded, strict=True)):
            needed = tuple(offset + 1 for offset in self._folded)
            raise ConflictError(
                f"the session log begins at offset {_shown(first)}, the session states need it from {_shown(needed)}: "
                "restore both from one backup, or remove both to start without sessions"
            )

    def _require_own_log(self, first: Offsets) -> None:
        """Raises ConflictError for a shared log: what was trimmed is stored elsewhere, and a start without it would lose sessions."""
        if self._log.is_shared:
            raise ConflictError(
                f"the session log begins at offset {_shown(first)}, and neither checkpoint nor session states have the events before it: "
                "choose the state.driver and hbase.namespace that have them, or another kafka.topic_prefix to start without sessions"
            )

    def _check_end(self) -> None:
        """When the log has lost its end, continue above everything that the store has seen.

        Invariant: what is appended gets a higher offset than any that the states or a checkpoint name. Else it would look folded, and be lost.
        """
        last = self._log.end()
        seen = self._seen(last)
        if not any(seen) or (len(last) == len(seen) and all(map(operator.ge, last, seen))):
            return
        text = (
            f"the session log ends at {_shown(last)}, states or checkpoint at {_shown(seen)}: it continues above that"
        )
        self._on_alarm("event_log_lost", text)
        above = self._log.after_loss(seen)
        self._store.apply(above, [])  # first: a crash between the two looks like another loss, not like a gap
        self._folded, self._written = list(above), above
        self._log.skip_to(above)

    def _seen(self, end: Offsets) -> Offsets:
        """Return up to where the states have seen a log.

        Invariant: one above the checkpoint, if the log has lost what the checkpoint names, so that it can never match this log again.
        """
        pointer = None
        if self._checkpoints is not None:
            with suppress(CorruptRecordError):
                pointer = self._checkpoints.pointer()
        if pointer is None or len(pointer.offsets) != len(end) or len(self._folded) not in (0, len(end)):
            return self.folded
        if all(map(operator.le, pointer.offsets, end)):
            return self.folded
        return tuple(max(reached(self._folded, at), offset + 1) for at, offset in enumerate(pointer.offsets))

    def __call__(self, ops: list[StateOp]) -> list[object]:
        """Append the events of all operations in one commit, then fold them: the answers are places of the log (of others: what they ask for)."""
        self._is_begun = True
        done = self._log.append([event for events in ops if isinstance(events, list) for event in events])
        self._take_in(done)
        self._untried += len(done)
        if self._is_due():
            self._write()
        rest = iter(done)
        return [_place(list(islice(rest, len(op)))) if isinstance(op, list) else self._other(op) for op in ops]

    def _other(self, op: DropTenant | TrimStatistics | StatesOf) -> object:
        """Do an operation that appends no events; its caller repeats it when it fails."""
        if isinstance(op, DropTenant):
            return self._drop_tenant(op.tenant_id)
        try:
            return trim_statistics(self._log, op) if isinstance(op, TrimStatistics) else self.states_of(op.keys)
        except (BackendError, CorruptRecordError) as error:
            return error

    def _take_in(self, done: list[LoggedEvent]) -> None:
        """Fold what was appended. A store, or a row, that cannot be read is no reason to append it again, or to deny that it is durable."""
        try:
            if not self._is_behind:
                self._remember(done)
            folded = self._folded
            for logged in done:
                partition, offset, event = logged
                if event.type.topic is not Topic.SESSIONS:
                    continue
                if offset != reached(folded, partition) + 1:
                    self._is_behind = True
                if self._is_behind:
                    return  # `_flush` folds it and what follows from the log, in its order
                self._fold(logged)
        except (BackendError, CorruptRecordError) as error:
            self._is_behind = True
            self._failed(error)

    def _is_due(self) -> bool:
        """Say whether to write without waiting for idle time. A store that fails is not called for a while: each attempt takes a time-out."""
        are_many = self._untried >= _GATHERED
        if self._is_failing:
            return are_many
        return len(self._changed) >= _GATHERED or (self._is_behind and are_many)

    def _drop_tenant(self, tenant_id: int) -> object:
        """Remove the rows of a tenant whose sessions have ended. What is folded is written first: the log is not folded over this again."""
        try:
            self._flush()
            self._known = {key: state for key, state in self._known.items() if key[0] != tenant_id}
            return self._store.drop_tenant(tenant_id)
        except (BackendError, CorruptRecordError) as error:
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
        self._untried = 0
        try:
            self._flush()
        except (BackendError, CorruptRecordError) as error:
            self._failed(error)
            if len(self._known) > _REMEMBERED:
                self._forget()
        else:
            if self._is_failing:
                self._on_alarm(_FAILING, "")
            self._is_failing = False

    def _forget(self) -> None:
        """Forget folded states that cannot be written, to bound memory: the log can give them again. States that it cannot give stay."""
        self._known.clear()
        if not self._is_log_enough:
            return
        self._changed.clear()
        self._folded = list(self._written)
        self._is_behind = True

    def _failed(self, error: BackendError | CorruptRecordError) -> None:
        self._is_failing = True
        self._on_alarm(_FAILING, f"{error}; the session log has it, the next start may take longer")

    def states_of(self, keys: Sequence[Key]) -> list[SessionState]:
        """Return those of these sessions that have not ended by the log's end now. Blocking; in the log's thread, or before it works.

        What is read for this is not remembered: one call may name every session of a large tenant.
        """
        self._catch_up()
        unknown = [key for key in keys if key not in self._known and key not in self._changed]
        stored = {(row.tenant_id, row.client_id): self._decode(row) for row in self._store.get_many(unknown)}
        found = [stored[key] if key in stored else self._known.get(key) or self._changed.get(key) for key in keys]
        return [state for state in found if state is not None and not state.is_ended]

    def close(self) -> None:
        """Write what was folded and close log and stores."""
        if self._is_begun:
            self._write()
        self._log.close()
        self._store.close()
        if self._checkpoints is not None:
            self._checkpoints.close()

    def _catch_up(self) -> None:
        """Fold what the log has beyond `folded`, up to where it ends now."""
        end = self._log.end()
        coming = read_between(self._log, self.folded, end, self._on_damaged_event)
        while some := list(islice(coming, PAGE)):
            self._remember(some)
            for logged in some:
                self._fold(logged)
        self._folded = [max(offset, reached(self._folded, partition)) for partition, offset in enumerate(end)]
        self._is_behind = False

    def _fold(self, logged: LoggedEvent) -> None:
        partition, offset, event = logged
        if event.epoch:
            key = (event.tenant_id, event.client_id)
            before = self._get(key)
            after = fold(before, event, offset)
            if after is not None and after is not before:
                self._known[key] = self._changed[key] = after
                self._records.pop(key, None)
        folded = self._folded
        if partition >= len(folded):
            folded += [0] * (partition + 1 - len(folded))
        folded[partition] = offset

    def _remember(self, some: list[LoggedEvent]) -> None:
        """Ask the store for the states that are about to be folded, all at once: it may be on a server."""
        keys = {(event.tenant_id, event.client_id) for _, _, event in some if event.epoch}
        unknown = keys - self._known.keys() - self._changed.keys()
        if unknown:
            stored = {(row.tenant_id, row.client_id): row for row in self._store.get_many(unknown)}
            for key in unknown:
                self._known[key] = self._decode(stored[key]) if key in stored else None

    def _get(self, key: Key) -> SessionState | None:
        if key in self._known:
            return self._known[key]
        if key in self._changed:
            return self._changed[key]
        stored = self._store.get(*key)
        state = self._known[key] = None if stored is None else self._decode(stored)
        return state

    def _decode(self, row: StoredState) -> SessionState | None:
        """Return what a row says; None: it is damaged."""
        try:
            return decode_state(row.record)
        except CorruptRecordError as error:
            key = (row.tenant_id, row.client_id)
            if self._damaged is None:
                self._report(key, str(error))
            else:
                self._damaged[key] = str(error)
            return None

    def _report(self, key: Key, reason: str, *, is_rebuilt: bool = False) -> None:
        tenant_id, client_id = key
        self._on_damage(STORE, f"tenant id {tenant_id}, client {client_id!r}", reason, is_rebuilt=is_rebuilt)

    def _flush(self) -> None:
        """Write what was folded."""
        if self._is_behind:
            self._catch_up()
        if self.folded != self._store.applied_offsets():  # else others have written it all
            writes = [
                StateWrite(*key, state.offset, self._records.get(key) or encode_state(state))
                for key, state in self._changed.items()
            ]
            self._store.apply(self.folded, writes)
        self._written = self.folded
        self._changed.clear()
        self._records = {}  # it was as large as a checkpoint
        self._is_log_enough = True
        if len(self._known) > _REMEMBERED:
            self._known.clear()


def journal_thread(
    service: StateService,
    call_in_reactor: CallInReactor,
    clock: Clock,
    on_alarm: Alarm,
    retry_policy: RetryPolicy = RETRIES,
    on_commit: Callable[[str, float], None] | None = None,
) -> GroupThread[StateOp, object]:
    """Return the thread of the session-event log: submit lists of events, each is durable when it is answered."""
    return GroupThread(
        "events",
        service,
        call_in_reactor,
        clock,
        retry_policy=retry_policy,
        idle=service.idle,
        probe=service.probe,
        on_alarm=on_alarm,
        on_commit=on_commit,
    )


def _partition(state: SessionState, partitions: int) -> int:
    """Return where the events of a session are."""
    return partition_of(f"{state.tenant_id}/{state.client_id}", partitions) if partitions > 1 else 0


def _place(done: list[LoggedEvent]) -> Offsets | None:
    """Return the place that whoever follows the session log has reached when it has these events; None: the log could not say."""
    highest: dict[int, int] = {}
    for partition, offset, event in done:
        if event.type.topic is Topic.SESSIONS:
            if not offset:
                return None
            if offset > highest.get(partition, 0):
                highest[partition] = offset
    place = NOWHERE
    for partition, offset in highest.items():
        place = raised(place, partition, offset)
    return place


def _shown(offsets: Offsets) -> str:
    return " ".join(map(str, offsets))
