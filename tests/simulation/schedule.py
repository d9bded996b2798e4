"""What goes wrong in a run, drawn from its seed.

Knows no link: each fault is a word, a time, who it hits and for how long.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

FAULTS_END_S = 5.0
KINDS = (
    "crash",  # the process is killed, its connections are reset; a new incarnation comes
    "power",  # the machine is gone, without an end of its connections; a new incarnation comes
    "flap",  # the connections of a pair are reset
    "black_hole",  # the connections of a pair carry nothing any more, and neither side notices
    "cut",  # nothing between two nodes
    "cut_one_way",
    "freeze",
    "freeze_in_turn",
    "twin",  # frozen, taken for dead, and back beside its next incarnation
    "expel",  # its row goes while it lives; a new incarnation comes
    "leave",  # it is killed, and its row goes
    "slow",  # long delays everywhere
    "stranger",  # somebody else connects
    "burst",  # both of a pair have more to send than a link takes
)
HARMLESS = frozenset(("stranger", "burst"))  # no link may break by these


@dataclass(frozen=True, slots=True)
class Fault:
    """`at_s` in the run; `lasts_s`: until it ends, or until the next incarnation comes."""

    at_s: float
    kind: str
    node: int
    other: int
    lasts_s: float


@dataclass(frozen=True, slots=True)
class Schedule:
    """One run: the same seed and faults give the same run."""

    seed: int
    hubs: int
    faults: tuple[Fault, ...]


def schedule(seed: int) -> Schedule:
    """Draw two to four hubs and one to seven faults; half of the runs crowd them into one second, a tenth has only harmless ones."""
    rng = random.Random(seed)
    hubs = rng.choice((2, 2, 3, 3, 4))
    earliest, latest = (0.0, FAULTS_END_S) if seed % 2 else (1.0, 2.0)
    kinds = tuple(sorted(HARMLESS)) if seed % 10 == 0 else KINDS
    faults = []
    for _ in range(rng.randint(1, 7)):
        node, other = rng.sample(range(1, hubs + 1), 2)
        lasts_s = rng.choice((rng.uniform(0.01, 0.3), rng.uniform(0.3, 2.0), rng.uniform(1.8, 4.0)))
        faults.append(Fault(round(rng.uniform(earliest, latest), 3), rng.choice(kinds), node, other, round(lasts_s, 3)))
    return Schedule(seed, hubs, tuple(sorted(faults, key=lambda fault: fault.at_s)))
