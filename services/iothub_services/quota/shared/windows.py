"""Windows below an hour in which a number may pass and then nothing, over all hubs: each hub's part is granted as a count is.

Knows no messages. `connects` and `subscribes` are asked for as connections are, and refused after the ledger's no. What holds back
(`publish_messages=10000/1m`) cannot wait for an answer: for that some units are always granted in advance.

Theory. What was spent in a window is a count that falls by itself. A part is never less than what was spent, so in no window more than
the limit passes at all hubs together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from iothub.base.clock import Clock
from iothub.engine.buckets import Budget, Meter
from iothub_services.quota.names import Quota
from iothub_services.quota.rates import SlidingWindow, SlidingWindows
from iothub_services.quota.shared.grants import Grant
from iothub_services.quota.shared.keys import count_name
from iothub_services.quota.shared.ledger_client import LedgerClient

ASKED = (Quota.CONNECTS, Quota.SUBSCRIBES)
"""Those whose asker can wait. `api_requests` is counted where it arrives."""


class BudgetPart:
    """One budget of a meter: how much of it is spent, and another limit for it. What the engine keeps for itself is found out by asking."""

    def __init__(self, meter: Meter, place: int, clock: Clock) -> None:
        self._meter = meter
        self._place = place
        self._clock = clock
        self._whole: int = meter.budgets[place].limit

    def spent(self) -> int:
        """Return what still counts. More of it may be spent than is granted now, so the whole limit is asked for it."""
        budget: Budget = self._meter.budgets[self._place]
        if self._whole <= 0:
            return 0
        now, granted = self._clock.monotonic(), budget.limit
        probe = Meter((), now)
        probe.budgets.append(budget)
        probe.set_windows([(self._whole, budget.seconds)], now)
        spent = self._whole - _room(probe, self._whole, now)
        probe.set_windows([(granted, budget.seconds)], now)
        return spent

    def limit(self, granted: int) -> None:
        """Let this number pass in the window. The buckets beside it stay what they are."""
        meter = self._meter
        windows = [(budget.limit, budget.seconds) for budget in meter.budgets]
        windows[self._place] = (granted, windows[self._place][1])
        buckets = list(meter.buckets)
        meter.set_windows(windows, self._clock.monotonic())
        meter.buckets.extend(buckets)


def _room(probe: Meter, limit: int, now: float) -> int:
    """Return the largest number that still fits, found in some steps of halving; -1: nothing does."""
    low, high = -1, limit
    while low < high:
        middle = (low + high + 1) // 2
        if probe.wait(middle, now) == 0.0:
            low = middle
        else:
            high = middle - 1
    return low


class SharedRateWindows:
    """Those of one tenant."""

    def __init__(self, tenant_id: int, ledger_client: LedgerClient, clock: Clock) -> None:
        self._tenant_id = tenant_id
        self._ledger_client = ledger_client
        self._clock = clock
        self._grants: dict[str, Grant] = {}
        self._asked: dict[Quota, list[Grant]] = {}

    def apply_limits(self, sliding: Mapping[Quota, SlidingWindows], meters: Mapping[Quota, Meter]) -> None:
        """The limits were set, or set anew: what is given here has the whole limits."""
        before, self._grants = self._grants, {}
        self._asked = {
            quota: [self._sliding(quota, window, before) for window in sliding[quota].windows]
            for quota in ASKED
            if quota in sliding
        }
        for quota, meter in meters.items():
            for place in range(len(meter.budgets)):
                self._budget(quota, meter, place, before)
        for name, grant in before.items():
            if name not in self._grants:
                self._ledger_client.close(grant)

    def grants(self, quota: Quota) -> Sequence[Grant]:
        """Return the grants in which a unit must fit before it is taken."""
        return self._asked.get(quota, ())

    def spent(self, quota: Quota) -> None:
        """Units were taken: report them with the next turn."""
        for grant in self._asked.get(quota, ()):
            self._ledger_client.changed(grant)

    def close(self) -> None:
        for grant in self._grants.values():
            self._ledger_client.close(grant)
        self._grants, self._asked = {}, {}

    def _sliding(self, quota: Quota, window: SlidingWindow, before: Mapping[str, Grant]) -> Grant:
        name = count_name(self._tenant_id, quota, window.seconds)
        grant = Grant(name, window.limit, partial(self._spent, window), window.let_pass, is_fading=True)
        return self._open(grant, before)

    def _spent(self, window: SlidingWindow) -> int:
        return window.spent(self._clock.monotonic())

    def _budget(self, quota: Quota, meter: Meter, place: int, before: Mapping[str, Grant]) -> None:
        budget: Budget = meter.budgets[place]
        part = BudgetPart(meter, place, self._clock)
        name = count_name(self._tenant_id, quota, int(budget.seconds))
        self._open(Grant(name, budget.limit, part.spent, part.limit, is_fading=True, is_eager=True), before)

    def _open(self, grant: Grant, before: Mapping[str, Grant]) -> Grant:
        """A window that was there goes on with what it was granted; another one begins with nothing."""
        known = before.get(grant.name)
        self._grants[grant.name] = self._ledger_client.open(grant)
        if known is None:
            grant.granted = 0
        grant.apply_granted()
        return grant
