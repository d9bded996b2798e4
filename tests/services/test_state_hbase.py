"""Session states on the real HBase: the contract of the port, hubs that share a table, and kill -9 in the middle of writing."""

from __future__ import annotations

import threading

import pytest

from iothub.records import events, keys
from iothub.records.events import Event, Subject
from iothub.records.layout import STATE_COLUMN, encode_state_cell
from iothub.testing.state_contract import CASES, Case
from iothub_services.events.memory import MemoryEvents
from iothub_services.hbase import calls
from iothub_services.hbase.calls import Mutation
from iothub_services.hbase.direct import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase import HBaseStates
from iothub_services.state.port import StateWrite, StoredState
from iothub_services.state.service import StateService
from ops.services.house import Services
from tests.support.hbase_tables import caller, until_done
from tests.support.own_tables import flush_regions

STORE_TABLES = "state", len(CASES) + 4  # of the contract, and of the tests behind it
ROUNDS = 120
ROWS = 40
HUBS = 4

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_states_contract(case: Case, tables: Tables, tools: DirectCaller) -> None:
    """HBase does what every driver does, over the bounds of regions."""
    case(HBaseStates(tools, tables))


def test_older_write_never_resurrects_what_is_gone(tables: Tables, tools: DirectCaller, services: Services) -> None:
    """Also after a flush: the record that says so is a row like another one (!)."""
    store = HBaseStates(tools, tables)
    store.apply((7,), [StateWrite(1, "a", 5, b"r"), StateWrite(1, "a", 7, None)])
    flush_regions(services, tables.state)

    late = Mutation(keys.state_key(1, "a"), {STATE_COLUMN: encode_state_cell(6, b"late")})
    tools.call(calls.mutate_rows(tables.state, [late], 6))  # of a hub that looked before the others were done
    store.apply((9,), [StateWrite(1, "b", 9, b"r")])

    assert store.get(1, "a") is None
    assert [row.client_id for row in store.load()] == ["b"]


def test_hubs_that_share_the_table_leave_the_newest(tables: Tables, services: Services) -> None:
    """Four at once, each ahead of the others somewhere: no row goes back, and no one's progress is lost."""
    failures: list[BaseException] = []

    def write(hub: int) -> None:
        try:
            with caller(services) as own:
                store = HBaseStates(own, tables)
                for round_ in range(1, 21):
                    offset = round_ * HUBS + hub
                    some = [StateWrite(1, f"client-{number}", offset, b"%d" % offset) for number in range(10)]
                    vector = tuple(offset if partition == hub else 1 for partition in range(HUBS))
                    store.apply(vector, some)
        except BaseException as error:  # shown by the test's own thread
            failures.append(error)

    threads = [threading.Thread(target=write, args=(hub,)) for hub in range(HUBS)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    newest = 20 * HUBS + HUBS - 1
    with caller(services) as own:
        store = HBaseStates(own, tables)
        assert failures == []
        assert {(row.offset, row.record) for row in store.load()} == {(newest, b"%d" % newest)}
        assert store.applied_offsets() == tuple(20 * HUBS + hub for hub in range(HUBS))


def created(client_id: str, epoch: int = 1) -> Event:
    subject = Subject(7, client_id, epoch, 100)
    return events.session_created(subject, device="d", queue_id=9, protocol_version=5, session_expiry_s=60)


def sessions_on(tools: DirectCaller, tables: Tables, log: MemoryEvents) -> StateService:
    """Events in the log, states on HBase."""
    return StateService(log, HBaseStates(tools, tables), lambda name, text: pytest.fail(f"{name} {text}"))


def test_killed_server_loses_nothing_that_was_applied(
    tables: Tables, other_tables: Tables, services: Services, tools: DirectCaller
) -> None:
    """Kill -9 in the middle; what fails is repeated, as the thread of the log does. The rows are ahead of what is applied, never behind.

    A hub that starts afterwards finds its sessions again.
    """
    log = MemoryEvents(3)
    names = [f"client-{number}" for number in range(60)]
    first = sessions_on(tools, other_tables, log)
    first.load()
    first([[created(name)] for name in names])
    first.idle()
    first([[created(name, 2)] for name in names[:30]])
    done = threading.Event()
    killed = threading.Event()

    def kill() -> None:
        killed.wait(60)
        services.kill("hbase")
        services.up()
        done.set()

    killer = threading.Thread(target=kill)
    killer.start()
    with caller(services) as own:
        store = HBaseStates(own, tables)
        round_ = 0
        while round_ < ROUNDS or not done.is_set():
            round_ += 1
            some = [StateWrite(1, f"client-{n}", round_ * ROWS + n, b"%d" % round_) for n in range(ROWS)]
            until_done(lambda upto=(round_ + 1) * ROWS, writes=some: store.apply((upto,), writes))  # type: ignore[misc]
            if round_ == ROUNDS // 4:
                killed.set()
        killer.join()

        assert store.applied_offsets() == ((round_ + 1) * ROWS,)
        assert sorted(store.load()) == sorted(
            StoredState(1, f"client-{number}", round_ * ROWS + number, b"%d" % round_) for number in range(ROWS)
        )

    second = sessions_on(tools, other_tables, log)
    states = until_done(second.load)
    assert {state.client_id: state.epoch for state in states} == {
        name: 2 if name in names[:30] else 1 for name in names
    }
    assert second.verify().differences == []
