"""Links keep their promises in every schedule: 60 here, 100,000 by night (`tests/nightly/test_simulation.py`)."""

from __future__ import annotations

from tests.simulation.schedule import schedule
from tests.simulation.shown import BY_DAY
from tests.simulation.simulation import Simulation
from tests.simulation.suites import first_fault, links_suite


def test_links_keep_their_promises() -> None:
    """Exactly once and in order, or reported as gone; nothing of an old incarnation; all up again; buffers within their bounds."""
    found = first_fault(BY_DAY)

    assert found is None, found


def test_a_seed_gives_the_same_run_each_time() -> None:
    """A failure can be repeated."""
    logs: list[list[str]] = [[], []]

    for log in logs:
        Simulation(schedule(17), links_suite(), log.append).run()

    assert logs[0] == logs[1]
    assert len(logs[0]) > 10
