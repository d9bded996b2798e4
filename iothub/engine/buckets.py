# cython: annotation_typing=False
"""Rates: how many units (messages or bytes) may pass now, and if none, how long to wait.

Knows no quota names, no tenants and no clock: the time is passed in, in monotonic seconds. Windows of an hour and more
count by the calendar and are durable; they are not here.

Theory. Two kinds of window, because two promises cannot be kept by one:

- Up to 10 s a limit is a *rate*, and what is measured is the rate: within 5 % over any 10 s, from the first message on. A
  bucket that holds b seconds' worth lets 10 + b seconds' worth pass in 10 s, so b must stay below 0.5. A `Bucket` begins
  with a fifth of a second's worth, never less than one unit (2 % over the first 10 s), and holds another fifth (4 %): a message
  that has to wait may come 0.2 s late, two ticks of the wheel, and nothing is lost. Traffic is smooth: no burst at the
  beginning of a second and silence for the rest.
- Above 10 s a limit is a *budget*: "10/1m" means ten at once, if you like, and then no more within that minute; and in
  "500/1s,10000/1m" the second limit only makes sense if it lets bursts pass. A `Budget` counts what was spent in the last
  window, in slots of a fiftieth of it: never more than the limit in any window, at least 98 % of it under constant demand.

What is bigger than a whole window allows passes when the window is empty, and what it takes too much is paid off before
anything else passes.
"""

from __future__ import annotations

from collections.abc import Collection

_BURST_SECONDS = 0.2
_LONGEST_RATE_SECONDS = 10.0
_SLOTS = 50
_TOLERANCE = 1e-6  # units; what rounding may take away


class Window:
    """At most `limit` units in `seconds`. A limit of 0 lets nothing pass."""

    def __init__(self, limit: int, seconds: float) -> None:
        self.limit = limit
        self.seconds = seconds


class Bucket(Window):
    """A token bucket: filled at limit/seconds up to `capacity`; `burst` tokens are enough for anything; below 0 is debt."""

    def __init__(self, limit: int, seconds: float, now: float, spent: float = 0.0) -> None:
        super().__init__(limit, seconds)
        self.rate = limit / seconds
        self.burst = max(min(1.0, limit), self.rate * _BURST_SECONDS)
        self.capacity = self.burst + self.rate * _BURST_SECONDS
        self.tokens = self.burst - spent
        self.filled_at = now

    def wait(self, units: int, now: float) -> float:
        if self.limit <= 0:
            return self.seconds
        if now > self.filled_at:
            self.tokens = min(self.capacity, self.tokens + (now - self.filled_at) * self.rate)
            self.filled_at = now
        missing = min(float(units), self.burst) - self.tokens
        if missing <= _TOLERANCE:
            return 0.0
        return missing / self.rate

    def spend(self, units: int) -> None:
        self.tokens -= units

    def spent(self) -> float:
        return max(self.burst - self.tokens, 0.0)


class Budget(Window):
    """What was spent in each slot of the last window: a ring of slots, the sum of them, and debt that no slot has room for.

    Invariant: `total` is the sum of `slots`; `debt` > 0 only while `total` >= the limit that it exceeded.
    """

    def __init__(self, limit: int, seconds: float, now: float) -> None:
        super().__init__(limit, seconds)
        self.slot_seconds = seconds / _SLOTS
        self.slot = int(now / self.slot_seconds)  # the current one
        self.slots = [0] * (_SLOTS + 1)  # one more than the window has: a slot counts until its last moment is too old
        self.total = 0
        self.debt = 0

    def wait(self, units: int, now: float) -> float:
        if self.limit <= 0:
            return self.seconds
        self._advance(int(now / self.slot_seconds))
        missing = self.total + min(units, self.limit) - self.limit
        if missing <= 0:
            return 0.0
        return max(self._gone_at(missing) - now, 0.001)

    def spend(self, units: int) -> None:
        room = max(self.limit - self.total, 0)
        taken = min(units, room)
        self.slots[self.slot % (_SLOTS + 1)] += taken
        self.total += taken
        self.debt += units - taken

    def _advance(self, slot: int) -> None:
        """Forget the slots that are too old; then debt takes the room that they leave."""
        steps = min(slot - self.slot, _SLOTS + 1)
        for step in range(1, steps + 1):
            place = (slot - steps + step) % (_SLOTS + 1)
            self.total -= self.slots[place]
            self.slots[place] = 0
        if steps > 0:
            self.slot = slot
            if self.debt > 0:
                debt = self.debt
                self.debt = 0
                self.spend(debt)

    def _gone_at(self, units: int) -> float:
        """Return when the oldest `units` will have left the window, as far as is known today."""
        age = _SLOTS
        units -= self.slots[(self.slot - age) % (_SLOTS + 1)]
        while units > 0 and age > 0:
            age -= 1
            units -= self.slots[(self.slot - age) % (_SLOTS + 1)]
        return (self.slot - age + _SLOTS + 1) * self.slot_seconds


class Meter:
    """Several windows on one name: a unit passes when all of them let it pass."""

    def __init__(self, windows: Collection[tuple[int, float]], now: float) -> None:
        self.buckets: list[Bucket] = []
        self.budgets: list[Budget] = []
        self.set_windows(windows, now)

    def take(self, units: int, now: float) -> float:
        """Take units from all windows and return 0.0; or take nothing and return the seconds until they could be had."""
        wait = self.wait(units, now)
        if wait == 0.0:
            self.spend(units)
        return wait

    def wait(self, units: int, now: float) -> float:
        """Return what `take` would, and take nothing: for callers that ask several meters before they take from any."""
        longest = 0.0
        for bucket in self.buckets:
            longest = max(longest, bucket.wait(units, now))
        for budget in self.budgets:
            longest = max(longest, budget.wait(units, now))
        return longest

    def spend(self, units: int) -> None:
        """Take units that `wait` allowed at the same time."""
        for bucket in self.buckets:
            bucket.spend(units)
        for budget in self.budgets:
            budget.spend(units)

    def set_windows(self, windows: Collection[tuple[int, float]], now: float) -> None:
        """Change the limits. What is spent stays spent: a changed quota is no new burst."""
        spent = 0.0
        for bucket in self.buckets:
            spent = max(spent, bucket.spent())
        budgets = {budget.seconds: budget for budget in self.budgets}
        self.buckets = [Bucket(limit, seconds, now, spent) for limit, seconds in windows if _is_rate(seconds)]
        self.budgets = [
            _budget(limit, seconds, now, budgets.get(seconds)) for limit, seconds in windows if not _is_rate(seconds)
        ]


def _is_rate(seconds: float) -> bool:
    return seconds <= _LONGEST_RATE_SECONDS


def _budget(limit: int, seconds: float, now: float, before: Budget | None) -> Budget:
    if before is None:
        return Budget(limit, seconds, now)
    before.limit = limit
    return before
