"""What time it is, for a hub among others: its own wall clock while that agrees with theirs, else the time that the hubs go by.

Knows no link and no alarm: it is given what the other hubs' clocks show.

Theory: deadlines are kept as wall time, and another hub than the one that has written them sends or removes what is due. A machine whose clock
is wrong would do that too early, and write deadlines that the others find too early or too late. So all parts of a hub ask this clock. A time is
kept as its difference to `boottime`, which no administrator and no NTP sets: a jump of the wall clock shows at the next question.

    the hub agrees with most hubs, itself included  ->  its own clock; a correction at all machines is followed within a second
    most hubs agree, and not with this one          ->  their time
    no majority (two hubs)                          ->  time goes on from when they agreed last: whose clock jumps does not matter
    the other hubs leave one whose clock is wrong   ->  time goes on, too, until that clock is right

Invariants: without another hub it is the machine's clock, unless that was wrong when the last one left. A jump of this hub's clock alone changes
nothing that others see.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median, median_low

from iothub.base.clock import Clock

LIMIT_S = 5.0  # NTP keeps machines within milliseconds of each other; below this, an expiry is only that much too early or late


class ClusterClock:
    """Fulfils `Clock`. `offset_s`: how far the machine's clock is ahead of the others'; `has_majority`: most hubs agree on a time."""

    def __init__(self, clock: Clock, boottime: Callable[[], float]) -> None:
        self.monotonic: Callable[[], float] = clock.monotonic
        self.machine_wall: Callable[[], float] = clock.wall
        self._boottime = boottime
        self._reference: float | None = None  # the time to go by, less `boottime`; None: the machine's
        self.offset_s = 0.0
        self.is_right = True
        self.has_majority = True

    def wall(self) -> float:
        """Return Unix time in seconds."""
        own, reference = self.machine_wall(), self._reference
        if reference is None:
            return own
        held = reference + self._boottime()
        return own if abs(own - held) <= LIMIT_S else held

    def judge(self, peers: Sequence[float]) -> None:
        """Compare this hub's clock with the others': each is a wall clock less this hub's `boottime`. Once a second."""
        own = self.machine_wall() - self._boottime()
        if not peers:
            self._judge_alone(own)
            return
        clocks = [own, *peers]
        middle = median_low(clocks)
        self.has_majority = 2 * sum(abs(each - middle) <= LIMIT_S for each in clocks) > len(clocks)
        self.offset_s = own - (middle if self.has_majority else median(peers))
        self.is_right = self.has_majority and abs(self.offset_s) <= LIMIT_S
        if self.is_right or (self._reference is None and not self.has_majority):
            self._reference = own
        elif self.has_majority:
            self._reference = middle

    def _judge_alone(self, own: float) -> None:
        """No other hub says what time it is: a clock that was wrong when the last one left is followed once it is right."""
        offset_s = 0.0 if self._reference is None else own - self._reference
        self.is_right = self.has_majority = abs(offset_s) <= LIMIT_S
        self.offset_s = 0.0 if self.is_right else offset_s
        if self.is_right:
            self._reference = None
