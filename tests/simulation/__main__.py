"""Run schedules by hand: one with its log, or many; `--mutant` breaks a rule, `--shrink` leaves out the faults that do not matter.

python -m tests.simulation 302             one schedule, each event a line
python -m tests.simulation 0 --count 2000  many, until one breaks a rule
"""

from __future__ import annotations

import argparse
import sys
from contextlib import nullcontext
from dataclasses import replace

from tests.simulation.mutants import MUTANTS, mutated
from tests.simulation.schedule import Schedule
from tests.simulation.suites import SUITES, fault_of, first_fault, plan_of


def shrunk(plan: Schedule, suite: str) -> Schedule:
    """Leave out one fault after the other while the run still breaks a rule."""
    for fault in plan.faults:
        smaller = replace(plan, faults=tuple(each for each in plan.faults if each is not fault))
        if fault_of(smaller, suite) is not None:
            plan = smaller
    return plan


def main() -> int:
    """Exit code 1: a rule is broken."""
    parser = argparse.ArgumentParser(description="Run schedules of the simulation.")
    parser.add_argument("seed", type=int)
    parser.add_argument("--count", type=int, default=1, help="schedules from this seed on")
    parser.add_argument("--suite", choices=sorted(SUITES), default="links")
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    parser.add_argument("--shrink", action="store_true")
    given = parser.parse_args()
    with mutated(given.mutant) if given.mutant else nullcontext():
        if given.count > 1:
            found = first_fault(range(given.seed, given.seed + given.count), given.suite)
            print(found or f"{given.count} schedules, no rule broken")
            return 1 if found else 0
        plan = plan_of(given.seed, given.suite)
        if given.shrink:
            plan = shrunk(plan, given.suite)
        for fault in plan.faults:
            print(fault)
        found = fault_of(plan, given.suite, print)
    print(found or "no rule broken")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
