"""Session states on the real HBase: the contract of the port, and hubs that share a table. Killed: `test_stores_killed.py`."""

from __future__ import annotations

import threading

import pytest

from iothub.records import keys
from iothub.records.layout import STATE_COLUMN, encode_state_cell
from iothub.testing.state_contract import CASES, Case
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.calls import Mutation
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.store import HBaseStates
from iothub_services.state.port import StateWrite
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller, until_done
from tests.support.hbase.own_tables import flush_regions

STORE_TABLES = "state", len(CASES) + 2  # of the contract, and of the tests behind it
HUBS = 4


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_states_contract(case: Case, tables: Tables, tools: DirectCaller) -> None:
    """HBase does what every driver does, over the bounds of regions."""
    case(HBaseStates(tools, tables))


def test_older_write_never_resurrects_what_is_gone(tables: Tables, tools: DirectCaller, services: Services) -> None:
    """Also after a flush: the tombstone is a row like any other, so HBase does not forget it."""
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
                    until_done(lambda upto=vector, writes=some: store.apply(upto, writes))  # type: ignore[misc]
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
