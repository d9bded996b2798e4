"""Checkpoints on the real HBase: the contract of the port, and jobs that race for the pointer. Killed: `test_stores_killed.py`."""

from __future__ import annotations

import threading

import pytest

from iothub.testing.checkpoint_contract import CASES, Case, pointer_to
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables
from iothub_services.state.hbase.checkpoints import HBaseCheckpoints
from ops.services.services import Services
from tests.support.hbase.hbase_tables import caller

STORE_TABLES = "checkpoints", len(CASES) + 1  # of the contract, and of the tests behind it
JOBS = 6


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
