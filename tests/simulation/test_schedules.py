"""Links keep their promises in every schedule: 130 here, 100,000 by night (`tests/nightly/test_simulation.py`)."""

from __future__ import annotations

import pytest

from tests.simulation.schedule import schedule
from tests.simulation.simulation import Simulation
from tests.simulation.suites import first_fault, links_suite

BLOCK = 65
BY_DAY = 130  # schedules: what breaks a known rule shows in the first 125


@pytest.mark.parametrize("first", range(0, BY_DAY, BLOCK))
def test_links_keep_their_promises(first: int) -> None:
    """Exactly once and in order, or reported as gone; nothing of an old incarnation; all up again; buffers within their bounds."""
    found = first_fault(range(first, first + BLOCK))

    assert found is None, found


def test_a_seed_gives_the_same_run_each_time() -> None:
    """A failure can be repeated."""
    logs: list[list[str]] = [[], []]

    for log in logs:
        Simulation(schedule(17), links_suite(), log.append).run()

    assert logs[0] == logs[1]
    assert len(logs[0]) > 10
