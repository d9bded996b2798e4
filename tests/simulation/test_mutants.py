"""The checks find every rule that is broken, so a run that finds nothing means something."""

from __future__ import annotations

import pytest

from tests.simulation.mutants import MUTANTS
from tests.simulation.shown import require_shown

SCHEDULES = 250  # the hardest to find needs about 60


@pytest.mark.parametrize("name", sorted(MUTANTS))
def test_broken_rule_is_found(name: str) -> None:
    """In the very schedules in which the product breaks none."""
    require_shown("links", name, MUTANTS[name], SCHEDULES)
