"""A log, states and checkpoints in memory, and events to put into them."""

from __future__ import annotations

from iothub.records import events
from iothub.records.checkpoint import Pointer
from iothub.records.events import Event, Subject
from iothub.records.state import SessionState, encode_state, fold
from iothub.testing.checkpoint_contract import pointer_to
from iothub.testing.event_contract import refuse_damage
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import NOWHERE, Offsets
from iothub_services.events.reading import read_between
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import StateService


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def resumed(client_id: str, epoch: int) -> Event:
    return events.session_resumed(Subject(7, client_id, epoch, 100), protocol_version=5, session_expiry_s=60)


class Harness:
    """A log, the states behind it, and checkpoints that a job would have made."""

    def __init__(self) -> None:
        self.log = MemoryEvents()
        self.store = MemoryStates()
        self.checkpoints = MemoryCheckpoints()
        self.alarms: list[tuple[str, str]] = []

    def start(self) -> dict[str, int]:
        """Return the sessions' epochs after a start; what the store lacked is written."""
        service = StateService(self.log, self.store, lambda *alarm: self.alarms.append(alarm), self.checkpoints)
        epochs = {state.client_id: state.epoch for state in service.load()}
        service.idle()
        return epochs

    def folded(self, upto: Offsets) -> list[StoredState]:
        states: dict[str, SessionState] = {}
        for _, offset, event in read_between(self.log, NOWHERE, upto, refuse_damage):
            if offset <= upto[0] and (state := fold(states.get(event.client_id), event, offset)) is not None:
                states[event.client_id] = state
        return [
            StoredState(state.tenant_id, state.client_id, state.offset, encode_state(state))
            for state in states.values()
        ]

    def apply(self, upto: Offsets) -> None:
        """Let the states include the log up to a place."""
        self.store.apply(upto, [StateWrite(*row) for row in self.folded(upto)])

    def make_checkpoint(self, upto: Offsets | None = None, version: int = 1) -> Pointer:
        """Do what the job does: rows, then the pointer."""
        rows = self.folded(upto or self.log.end())
        pointer = pointer_to(version, rows, upto or self.log.end())
        self.checkpoints.write(version, rows)
        assert self.checkpoints.move(self.checkpoints.pointer(), pointer)
        return pointer
