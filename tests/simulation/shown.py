"""Broken rules against schedules: each must show in one of them, in which the product breaks none.

Knows no rule and no suite. `SHOWN_BY` is a short cut: a schedule in which a rule was seen broken is tried before all others, so that a mutant
costs one or two schedules and not hundreds. A number that has no effect any more costs time alone: the search says which one to write down.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import chain
from typing import Any
from unittest import mock

from tests.simulation.suites import fault_of, plan_of

BY_DAY = range(60)
"""Schedules of a suite without a mutant. Each one that shows a broken rule is run with its mutant, too; by night there are 100,000 others."""

# Of a suite and a mutant; what shows in one of the first ten has none.
SHOWN_BY: dict[str, dict[str, int]] = {
    "directory": {
        "a first view without a word of others": 16,
        "applied twice": 97,
        "entries are sent to a former owner": 53,
        "granted by the owner's view alone": 161,
        "what a hub had that is gone is kept": 13,
        "what an earlier change moved is not sent": 80,
        "who goes while others are noted is kept": 60,
    },
    "groups": {
        "QoS 2 goes to a client before its hub is known to have it": 391,
        "QoS 2 that may have been sent is chosen anew": 101,
        "nothing is kept until its client has acknowledged it": 58,
        "what is returned is not chosen anew": 10,
    },
    "known": {
        "publishers are read again after any page": 13,
        "what a hub that is gone knew is not read": 11,
    },
    "membership": {
        "a link that looks up is evidence": 15,
        "a look counts from its end": 125,
        "a still counter is enough": 20,
        "acknowledged without a look at the clock": 115,
        "by an old picture": 55,
        "gone without a word": 20,
        "up without links": 10,
        "whoever has more links goes": 21,
    },
    "queued": {
        "a client moves in the middle of a change": 25,
        "durable before it is announced": 77,
        "former options until the change is durable here": 64,
        "no look at the tails when a hub goes": 39,
    },
    "retained": {
        "a hub that has just opened the tenant was told": 15,
        "a hub that is gone has told everything": 21,
        "who asks meanwhile gets the answer under way": 48,
    },
    "routes": {
        "announced before the messages of the turn": 10,
    },
    "wills": {
        "a first hub that was never linked is waited for": 182,
        "both hubs publish": 29,
        "the second copy dies with its hub": 16,
    },
}


def require_shown(suite: str, name: str, replaced: Mapping[str, Any], schedules: int) -> None:
    """Run schedules with the mutant's functions in place of the product's until one breaks a rule; then that one with the product's own.

    Raises:
        AssertionError: None of the first `schedules` does, or the product breaks a rule in it, too.
    """
    known = SHOWN_BY.get(suite, {}).get(name)
    seeds = chain([] if known is None else [known], range(schedules))
    with ExitStack() as stack:
        for target, replacement in replaced.items():
            stack.enter_context(mock.patch(target, replacement))
        seed = next((seed for seed in seeds if fault_of(plan_of(seed, suite), suite) is not None), None)

    assert seed is not None, f"no schedule of {schedules} of {suite} shows {name!r}"
    if known is not None and seed != known:
        print(
            f"{suite}, {name!r}: schedule {seed} shows it, and {known} does not; write that one into {__name__}.SHOWN_BY"
        )
    found = fault_of(plan_of(seed, suite), suite)
    assert found is None, f"{found}\nrepeat: .venv/bin/python -m tests.simulation {seed} --suite {suite}"
