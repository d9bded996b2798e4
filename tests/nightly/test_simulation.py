"""100,000 schedules of links and as many of routes, other ones each night, on all cores."""

from __future__ import annotations

import os
import random
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest

from tests.simulation.kept_wills import fault_of_kept_wills
from tests.simulation.suites import SUITES, first_fault

SCHEDULES = 100_000
OF_CONTROL_PLANES = 10_000  # 50 ms each
BLOCK = 500


@pytest.mark.timeout(3 * 3600)
@pytest.mark.parametrize("suite", sorted(SUITES))
def test_promises_are_kept_in_many_schedules(suite: str) -> None:
    """What fails names its seed; add that to the seeds of the day if it is worth it."""
    first = random.SystemRandom().randrange(1 << 40)
    blocks = [range(start, start + BLOCK) for start in range(first, first + SCHEDULES, BLOCK)]
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        found = [fault for fault in pool.map(partial(first_fault, suite=suite), blocks) if fault is not None]

    assert found == []


@pytest.mark.timeout(3600)
def test_wills_of_persistent_sessions_in_many_schedules(tmp_path: Path) -> None:
    """Over whole control planes."""
    first = random.SystemRandom().randrange(1 << 40)
    seeds = range(first, first + OF_CONTROL_PLANES)
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn")) as pool:
        found = [fault for fault in pool.map(partial(fault_of_kept_wills, path=tmp_path), seeds, chunksize=50) if fault]

    assert found == []
