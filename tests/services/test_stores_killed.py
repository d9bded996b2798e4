"""One kill -9 of HBase under states, checkpoints and retained messages at once: what was answered is there, what was not is repeated.

The queues under the same fault: `test_queues_hbase_faults.py`.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest

from iothub.records import events
from iothub.records.events import Event, Subject
from iothub.testing.checkpoint_contract import pointer_to, rows_of
from iothub_services.events.memory import MemoryEvents
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.retained.hbase.store import HBaseRetained
from iothub_services.retained.port import RetainedWrite
from iothub_services.state.checkpoints import verified
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import StateService
from iothub_services.state.verification import verify
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller, fresh_sets, until_done
from tests.support.hbase.retained_writers import check, written_by_all
from tests.support.night import by_day

STATE_ROUNDS = 30  # before the kill
STATES = 40
CHECKPOINT_ROWS = by_day(8_000, 20_000)
FLIGHT_S = 0.5  # until the hubs that retain are in full flight
PATIENCE_S = 60.0


@pytest.fixture
def stores(services: Services) -> Iterator[list[Tables]]:
    """Two tables of each kind, empty."""
    with fresh_sets(services, ("state", "checkpoints", "retained"), 2) as made:
        yield made


class Worker(threading.Thread):
    """A thread whose failure is its joiner's."""

    failure: BaseException | None = None

    def run(self) -> None:
        try:
            super().run()
        except BaseException as error:  # shown by the test's own thread
            self.failure = error

    def finish(self) -> None:
        self.join()
        if self.failure is not None:
            raise self.failure


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def sessions_on(tools: DirectCaller, tables: Tables, log: MemoryEvents) -> StateService:
    """Events in the log, states on HBase."""
    return StateService(log, HBaseStates(tools, tables), lambda name, text: pytest.fail(f"{name} {text}"))


@contextmanager
def sessions_applied(tools: DirectCaller, tables: Tables) -> Iterator[None]:
    """The rows may be ahead of what is applied, never behind: a hub that starts afterwards finds its sessions again."""
    log = MemoryEvents(3)
    names = [f"client-{number}" for number in range(60)]
    first = sessions_on(tools, tables, log)
    first.load()
    first([[created(name)] for name in names])
    first.idle()
    first([[created(name, 2)] for name in names[:30]])

    yield

    second = sessions_on(tools, tables, log)
    states = until_done(second.load)
    assert {state.client_id: state.epoch for state in states} == {
        name: 2 if name in names[:30] else 1 for name in names
    }
    second.idle()
    assert verify(log, HBaseStates(tools, tables)).differences == []


@contextmanager
def states_written(services: Services, tables: Tables, is_over: threading.Event) -> Iterator[None]:
    """Round after round; what fails is repeated, as the thread of the log does."""
    is_in_flight = threading.Event()
    rounds = 0

    def write() -> None:
        nonlocal rounds
        with caller(services) as own:
            store = HBaseStates(own, tables)
            while not is_over.is_set():
                rounds += 1
                some = [StateWrite(1, f"client-{n}", rounds * STATES + n, b"%d" % rounds) for n in range(STATES)]
                until_done(lambda upto=(rounds + 1) * STATES, writes=some: store.apply((upto,), writes))  # type: ignore[misc]
                if rounds == STATE_ROUNDS:
                    is_in_flight.set()

    writer = Worker(target=write)
    writer.start()
    assert is_in_flight.wait(PATIENCE_S)

    yield

    writer.finish()
    with caller(services) as own:
        store = HBaseStates(own, tables)
        assert store.applied_offsets() == ((rounds + 1) * STATES,)
        assert sorted(store.load()) == sorted(
            StoredState(1, f"client-{number}", rounds * STATES + number, b"%d" % rounds) for number in range(STATES)
        )


@contextmanager
def retained_written(services: Services, tables: Tables, is_over: threading.Event) -> Iterator[None]:
    """Four writers; each ends with a round that all see, so the last answer counts for every topic."""
    hubs = written_by_all(services, tables, is_over)
    threading.Event().wait(FLIGHT_S)

    yield

    check(services, tables, hubs)
    assert sum(hub.repeats for hub in hubs) > 0


@contextmanager
def retained_with_an_expiry(tools: DirectCaller, tables: Tables) -> Iterator[None]:
    """They are found again: the index came before the message, and both survive."""
    expiring = HBaseRetained(tools, tables)
    expiring.put([RetainedWrite(1, b"t/%d" % number, b"x", 100 + number) for number in range(30)])

    yield

    assert until_done(lambda: expiring.expire(109, 100)) == [(1, b"t/%d" % number) for number in range(10)]
    assert expiring.expire(109, 100) == []
    assert expiring.usage(1).messages == 20


@contextmanager
def checkpoint_written(services: Services, tools: DirectCaller, tables: Tables) -> Iterator[None]:
    """The old checkpoint or the new one, never half of one: a job that is repeated ends with all of its rows, and the pointer at them."""
    store = HBaseCheckpoints(tools, tables)
    first, second = rows_of(50), rows_of(CHECKPOINT_ROWS)
    store.write(1, first)
    assert store.move(None, pointer_to(1, first))
    is_writing = threading.Event()

    def noting() -> Iterator[object]:
        for number, row in enumerate(second):
            if number == CHECKPOINT_ROWS // 4:
                is_writing.set()
            yield row

    def write() -> None:
        with caller(services) as own:
            until_done(lambda: HBaseCheckpoints(own, tables).write(2, noting()))  # type: ignore[arg-type]

    writer = Worker(target=write)
    writer.start()
    assert is_writing.wait(PATIENCE_S)

    yield

    writer.finish()
    assert until_done(store.pointer) == pointer_to(1, first)
    assert list(verified(pointer_to(1, first), store.rows(1))) == first
    assert store.move(pointer_to(1, first), pointer_to(2, second))
    assert sum(1 for _ in verified(pointer_to(2, second), store.rows(2))) == CHECKPOINT_ROWS
    assert store.drop(1) == 50


def test_kill_of_hbase_loses_nothing_that_a_store_has_answered(
    services: Services, stores: list[Tables], tools: DirectCaller
) -> None:
    """All of them are in the middle of writing; each is looked at by itself afterwards."""
    tables, others = stores
    is_over = threading.Event()
    with ExitStack() as written:
        written.enter_context(sessions_applied(tools, others))
        written.enter_context(retained_with_an_expiry(tools, others))
        try:
            written.enter_context(states_written(services, tables, is_over))
            written.enter_context(retained_written(services, tables, is_over))
            written.enter_context(checkpoint_written(services, tools, tables))
            services.kill("hbase")
            services.up()
        finally:
            is_over.set()
