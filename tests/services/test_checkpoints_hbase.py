"""Checkpoints on the real HBase: the contract of the port, jobs that race for the pointer, and kill -9 in the middle of one."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from iothub.testing.checkpoint_contract import CASES, Case, pointer_to, rows_of
from iothub_services.hbase.direct import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.state.checkpoints import verified
from iothub_services.state.checkpoints_hbase import HBaseCheckpoints
from ops.services.house import Services
from tests.support.hbase_tables import caller, until_done
from tests.support.night import by_day

STORE_TABLES = "checkpoints", len(CASES) + 2  # of the contract, and of the tests behind it
JOBS = 6
ROWS = by_day(8_000, 20_000)

pytestmark = pytest.mark.timeout(600)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_checkpoints_contract(case: Case, tables: Tables, tools: DirectCaller) -> None:
    """HBase does what every driver does."""
    case(HBaseCheckpoints(tools, tables))


def test_one_of_many_jobs_moves_the_pointer(tables: Tables, services: Services, tools: DirectCaller) -> None:
    """All began from the same one, round after round: exactly one wins each."""
    expected = None
    for round_ in range(10):
        wins: list[int] = []
        start = threading.Barrier(JOBS)

        def run(
            job: int, was: object = expected, begun: int = round_, won: list[int] = wins, at: threading.Barrier = start
        ) -> None:
            with caller(services) as own:
                at.wait()
                if HBaseCheckpoints(own, tables).move(was, pointer_to(begun * JOBS + job, ())):  # type: ignore[arg-type]
                    won.append(job)

        jobs = [threading.Thread(target=run, args=(job,)) for job in range(JOBS)]
        for job in jobs:
            job.start()
        for job in jobs:
            job.join()

        assert len(wins) == 1
        expected = HBaseCheckpoints(tools, tables).pointer()
        assert expected == pointer_to(round_ * JOBS + wins[0], ())


def test_killed_server_leaves_the_old_checkpoint_or_the_new_one(
    tables: Tables, services: Services, tools: DirectCaller
) -> None:
    """Never half of one: a job that is repeated ends with all of its rows, and the pointer at them."""
    store = HBaseCheckpoints(tools, tables)
    first, second = rows_of(50), rows_of(ROWS)
    store.write(1, first)
    assert store.move(None, pointer_to(1, first))
    is_writing = threading.Event()

    def noting() -> Iterator[object]:
        for number, row in enumerate(second):
            if number == ROWS // 4:
                is_writing.set()
            yield row

    def kill() -> None:
        is_writing.wait(60)
        services.kill("hbase")
        services.up()

    killer = threading.Thread(target=kill)
    killer.start()
    until_done(lambda: store.write(2, noting()))  # type: ignore[arg-type]
    killer.join()
    assert until_done(store.pointer) == pointer_to(1, first)
    assert list(verified(pointer_to(1, first), store.rows(1))) == first

    assert store.move(pointer_to(1, first), pointer_to(2, second))
    assert sum(1 for _ in verified(pointer_to(2, second), store.rows(2))) == ROWS
    assert store.drop(1) == 50
