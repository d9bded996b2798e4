"""An event of a newer program is taken out of the log: nothing that can be read is lost, and a crash in between leaves what can be done again."""

from __future__ import annotations

import pytest

from iothub.errors import BackendError, ConflictError, FutureRecordError
from iothub.records.events import Topic, partition_of
from iothub.testing.checkpoint_contract import pointer_to
from iothub_services.events.memory import MemoryEvents
from iothub_services.events.port import FutureEventError, LoggedEvent, Offsets, reached
from iothub_services.state import omission
from iothub_services.state.checkpoints_memory import MemoryCheckpoints
from iothub_services.state.memory import MemoryStates
from iothub_services.state.omission import in_the_way, leave_out
from iothub_services.state.service import StateService
from tests.unit.state.conftest import created, resumed

PARTITIONS = 2
HERE = next(name for name in "abcdef" if partition_of(f"7/{name}", PARTITIONS) == 0)
THERE = next(name for name in "abcdef" if partition_of(f"7/{name}", PARTITIONS) == 1)


class Log(MemoryEvents):
    """Reads as Kafka does: what is before an event of a newer program, in any partition, comes first."""

    is_shared = True

    def __init__(self) -> None:
        super().__init__(PARTITIONS)
        self.newer: set[tuple[int, int]] = set()

    def append_newer(self, client_id: str) -> None:
        [logged] = self.append([resumed(client_id, 9)])
        self.newer.add((logged.partition, logged.offset))

    def read(self, after: Offsets, count: int, topic: Topic = Topic.SESSIONS) -> list[LoggedEvent]:
        page: list[LoggedEvent] = []
        stopped: dict[int, int] = {}
        for logged in super().read(after, count, topic):
            partition, offset, _ = logged
            if (partition, offset) in self.newer:
                stopped.setdefault(partition, offset)
            elif partition not in stopped:
                page.append(logged)
        if stopped and not page:
            partition, offset = next(iter(stopped.items()))
            raise FutureEventError(f"{partition}:{offset}", partition=partition, offset=offset)
        return page


def begun() -> Log:
    log = Log()
    log.append([created(HERE), created(THERE)])
    return log


def gone_on(log: Log) -> Log:
    """A stray event in each partition, each with something before and behind it."""
    log.append_newer(HERE)
    log.append_newer(THERE)
    log.append([resumed(HERE, 2), resumed(THERE, 2)])
    return log


@pytest.fixture
def log() -> Log:
    return gone_on(begun())


def report(word: str, text: str) -> None:
    assert word == "checkpoint_unused", text


def epochs(log: Log, states: MemoryStates, checkpoints: MemoryCheckpoints | None = None) -> dict[str, int]:
    """What a start finds."""
    return {state.client_id: state.epoch for state in StateService(log, states, report, checkpoints).load()}


def skip(log: Log, states: MemoryStates, checkpoints: MemoryCheckpoints | None, partition: int) -> int:
    found = in_the_way(log, states, checkpoints)
    return leave_out(log, states, checkpoints, found, next(error for error in found if error.partition == partition))


def test_every_partition_names_its_first(log: Log) -> None:
    """However many there are behind it."""
    log.append_newer(HERE)

    found = in_the_way(log, MemoryStates(), None)

    assert [(error.partition, error.offset) for error in found] == [(0, 2), (1, 2)]


@pytest.mark.parametrize("has_checkpoint", [False, True])
def test_start_goes_on_with_all_that_can_be_read(*, has_checkpoint: bool) -> None:
    """What is before each of them, and what is behind it; a checkpoint from before it is not used."""
    log, states, checkpoints = begun(), MemoryStates(), MemoryCheckpoints()
    if has_checkpoint:
        epochs(log, states)
        rows = list(states.load())
        checkpoints.write(1, rows)
        checkpoints.move(None, pointer_to(1, rows, (1, 1)))
        log.trim((1, 1))
    gone_on(log)
    with pytest.raises(FutureRecordError):
        epochs(log, states, checkpoints)

    assert skip(log, states, checkpoints, 0) == 2 - has_checkpoint
    assert [error.partition for error in in_the_way(log, states, checkpoints)] == [1]
    assert skip(log, states, checkpoints, 1) == 2 - has_checkpoint

    assert in_the_way(log, states, checkpoints) == []
    assert epochs(log, states, checkpoints) == {HERE: 2, THERE: 2}


def test_crash_before_the_trim_is_made_good_by_the_next_call(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """The states have it by then: they are not folded again. Who starts from the checkpoint still meets it."""
    states, checkpoints = MemoryStates(), MemoryCheckpoints()
    checkpoints.move(None, pointer_to(1, [], (0, 0)))
    with monkeypatch.context() as patch:
        patch.setattr(log, "trim", failing)
        with pytest.raises(BackendError):
            skip(log, states, checkpoints, 0)
    assert states.applied_offsets()[0] == 2

    assert [error.partition for error in in_the_way(log, states, checkpoints)] == [0, 1]
    assert [skip(log, states, checkpoints, partition) for partition in (0, 1)] == [2, 2]

    assert epochs(log, states) == {HERE: 2, THERE: 2}


def failing(*_what: object) -> int:
    raise BackendError("no right", retryable=False)


def test_states_that_cannot_be_written_are_not_said_to_have_it(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is trimmed (!)."""
    states = MemoryStates()
    monkeypatch.setattr(states, "apply", failing)

    with pytest.raises(BackendError, match="no right"):
        skip(log, states, None, 0)

    assert (states.applied_offsets(), log.begin()) == ((), (1, 1))


def test_log_that_lost_its_end_is_left_alone(log: Log) -> None:
    """A start sees to that; here it would begin another log (!)."""
    states = MemoryStates()
    states.apply((1, 99), [])

    with pytest.raises(ConflictError, match="the states have seen the log up to"):
        skip(log, states, None, 0)

    assert reached(states.applied_offsets(), 0) == 1
    assert omission.in_the_way(log, states, None) != []
