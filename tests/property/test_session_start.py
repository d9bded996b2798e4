"""A start finds the sessions that the log says, wherever checkpoint, states and trimming stand."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.records.state import SessionState, encode_state, fold
from iothub.testing.checkpoint_contract import pointer_to
from iothub.testing.event_contract import refuse_damage
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import NOWHERE, LoggedEvent, Offsets
from iothub_services.events.reading import read_between
from iothub_services.state.memory.checkpoints import MemoryCheckpoints
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import StateService
from iothub_services.state.verification import verify
from tests.support.night import by_day

_CLIENTS = ("a", "b", "c", "d")

subjects = st.builds(Subject, st.just(7), st.sampled_from(_CLIENTS), st.integers(1, 5), st.just(9))
any_event = st.one_of(
    st.builds(
        lambda s: events.session_created(s, device="d", queue_id=1, protocol_version=5, session_expiry_s=60), subjects
    ),
    st.builds(lambda s: events.session_resumed(s, protocol_version=4, session_expiry_s=7), subjects),
    st.builds(events.session_expired, subjects),
    st.builds(events.will_cleared, subjects),
)


def folded(log: list[LoggedEvent], upto: Offsets) -> dict[str, SessionState]:
    states: dict[str, SessionState] = {}
    for partition, offset, event in log:
        if offset <= upto[partition] and (state := fold(states.get(event.client_id), event, offset)) is not None:
            states[event.client_id] = state
    return states


def places(end: Offsets) -> st.SearchStrategy[Offsets]:
    return st.tuples(*(st.integers(0, offset) for offset in end))


@settings(max_examples=by_day(75, 150), deadline=None)
@given(st.lists(any_event, min_size=1, max_size=40), st.integers(1, 3), st.data())
def test_start_finds_what_the_log_says(happened: list[Event], partitions: int, data: st.DataObject) -> None:
    """Checkpoint, states and trimming are each at a place of their own; nothing below the checkpoint is needed."""
    log, store, checkpoints = MemoryEvents(partitions), MemoryStates(), MemoryCheckpoints()
    log.append(happened)
    end = log.end()
    whole = list(read_between(log, NOWHERE, end, refuse_damage))
    base, applied = data.draw(places(end)), data.draw(places(end))
    rows = [StoredState(7, name, state.offset, encode_state(state)) for name, state in folded(whole, base).items()]
    checkpoints.write(1, rows)
    checkpoints.move(None, pointer_to(1, rows, base))
    states = folded(whole, applied)
    store.apply(applied, [StateWrite(7, name, s.offset, encode_state(s)) for name, s in states.items()])
    log.trim(tuple(map(min, base, data.draw(places(end)))))
    alarms: list[str] = []

    service = StateService(log, store, lambda name, _text: alarms.append(name), checkpoints)
    found = {state.client_id: state for state in service.load()}

    assert alarms == []
    assert found == {name: state for name, state in folded(whole, end).items() if not state.is_ended}
    if data.draw(st.booleans(), "written behind"):  # else the hub is killed before
        service.idle()
        assert verify(log, store, checkpoints).differences == []
    later = log.append([events.session_resumed(Subject(7, "a", 9, 9), protocol_version=5, session_expiry_s=1)])
    again = StateService(log, store, lambda name, _text: alarms.append(name), checkpoints).load()
    assert {state.client_id: state for state in again} == {
        name: state for name, state in folded(whole + later, log.end()).items() if not state.is_ended
    }
