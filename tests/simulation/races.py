"""Clients of two hubs that subscribe, unsubscribe and publish all the time, while the link between them breaks and carries more than it takes.

Knows no check: what must be true is what `Routing` says. Acknowledgements overtake messages here, several at a time, and connections begin
among them.
"""

from __future__ import annotations

import random

from tests.simulation.routed import Clients
from tests.simulation.schedule import Fault, Schedule

BEGIN_S, LASTS_S = 1.0, 0.6  # when both hubs have opened the tenant
FAULTS = ("burst", "flap", "flap", "slow")


class RacingClients(Clients):
    """One subscriber of a Topic Filter at a time, or each would get what another one needs. Most of what is announced is of another topic."""

    topics = (b"a", b"a", b"b")
    filters = (b"a", b"b", b"b", b"b")

    @property
    def pace_s(self) -> float:  # type: ignore[override]
        return 0.005 if BEGIN_S <= self._hub.world.now < BEGIN_S + LASTS_S else 0.2

    def _do_something(self, chance: float) -> None:
        if not self._is_served:
            return super()._do_something(chance)
        if chance < 0.4:
            return self._publish_soon()
        chosen = self._hub.world.rng.choice(self.filters)
        former = [each for each in self._subscribers if each.topic_filter == chosen]
        return self._unsubscribe(former[0]) if former else self._subscribe(chosen)


def schedule_of_races(seed: int) -> Schedule:
    """Draw four to twelve faults of two hubs, close together."""
    rng = random.Random(seed)
    faults = [
        Fault(round(BEGIN_S + rng.random() * LASTS_S, 3), rng.choice(FAULTS), 1, 2, round(rng.uniform(0.01, 0.2), 3))
        for _ in range(rng.randint(4, 12))
    ]
    return Schedule(seed, 2, tuple(sorted(faults, key=lambda fault: fault.at_s)))
