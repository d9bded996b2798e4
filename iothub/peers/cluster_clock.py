"""What time it is, for a hub among others: its own wall clock while that agrees with theirs, else the time that the hubs go by.

Knows no link, no row and no alarm: it is given what the other hubs' clocks show, and who of them serves clients.

Theory: deadlines are kept as wall time, and another hub than the one that has written them sends or removes what is due. A machine whose clock
is wrong would do that too early, and write deadlines that the others find too early or too late. So all parts of a hub ask this clock. A time is
kept as its difference to `boottime`, which no administrator and no NTP sets: a jump of the wall clock shows at the next question.

    hubs that serve compare the clocks of their machines:
        the hub agrees with most of them, itself included  ->  its own clock; a correction at all machines is followed within a second
        most of them agree, and not with this one          ->  their time
        no majority (two hubs)                             ->  time goes on from when they agreed last: whose clock jumps does not matter
        nobody else serves any more                        ->  time goes on, too, until this hub's clock is right
    a hub that starts:
        hubs serve        ->  its clock is right if it is what they go by
        all have left     ->  if it is what they went by
        nobody ever did   ->  if it is that of most hubs that start
        and where that does not say which one is right     ->  if it is that of a third party, who is no hub

Invariants: without another hub it is the machine's clock, unless that was wrong when the last one left. A jump of this hub's clock alone changes
nothing that others see. A hub that does not serve changes nothing at one that does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median, median_low

from iothub.base.clock import Clock

LIMIT_S = 5.0  # NTP keeps machines within milliseconds of each other; below this, an expiry is only that much too early or late


@dataclass(frozen=True, slots=True)
class HubClock:
    """What time it is at a hub: by its machine, and what it goes by. A Unix time, or, at another hub, one less that hub's `boottime`."""

    machine: float
    goes_by: float


class ClusterClock:
    """Fulfils `WholeClock`. `offset_s`: how far the machine's clock is ahead of the others'; `has_majority`: they agree on a time.

    `needs_third`: this hub starts, and the hubs do not say whose clock is right.
    """

    def __init__(self, clock: Clock, boottime: Callable[[], float]) -> None:
        self.monotonic: Callable[[], float] = clock.monotonic
        self.machine_wall: Callable[[], float] = clock.wall
        self.boottime = boottime
        self._reference: float | None = None  # the time to go by, less `boottime`; None: the machine's
        self._third: float | None = None
        self.offset_s = 0.0
        self.is_right = True
        self.has_majority = True
        self.needs_third = False

    def wall(self) -> float:
        """Return Unix time in seconds."""
        own, reference = self.machine_wall(), self._reference
        if reference is None:
            return own
        held = reference + self.boottime()
        return own if abs(own - held) <= LIMIT_S else held

    def tell(self) -> HubClock:
        """Return what an echo says."""
        return HubClock(self.machine_wall(), self.wall())

    def note_third(self, at_boot: float) -> None:
        """Note the time of somebody who is no hub, less `boottime`."""
        self._third = at_boot

    def judge(self, serving: Sequence[HubClock], starting: Sequence[HubClock], *, serves: bool) -> None:
        """Compare this hub's clock with the other hubs', of those that serve clients and of those that start. Once a second."""
        own = self.machine_wall() - self.boottime()
        self.needs_third = False
        if serves and serving:
            self._judge_among(own, [each.machine for each in serving])
        elif serves:
            self._judge_alone(own)
        elif serving:
            self._reference = median_low(each.goes_by for each in serving)
            self._compare(own, self._reference)
        else:
            self._judge_start(own, [each.machine for each in starting])

    def _judge_among(self, own: float, others: Sequence[float]) -> None:
        middle = self._judge_majority(own, others)
        if self.is_right or (self._reference is None and not self.has_majority):
            self._reference = own
        elif self.has_majority:
            self._reference = middle

    def _judge_majority(self, own: float, others: Sequence[float]) -> float:
        """Return the time on which most agree, if they do."""
        clocks = [own, *others]
        middle = median_low(clocks)
        self.has_majority = 2 * sum(abs(each - middle) <= LIMIT_S for each in clocks) > len(clocks)
        self.offset_s = own - (middle if self.has_majority else median(others))
        self.is_right = self.has_majority and abs(self.offset_s) <= LIMIT_S
        return middle

    def _judge_alone(self, own: float) -> None:
        """No other hub says what time it is: a clock that was wrong when the last one left is followed once it is right."""
        self._compare(own, own if self._reference is None else self._reference)
        self.has_majority = self.is_right
        if self.is_right:
            self._reference, self.offset_s = None, 0.0

    def _judge_start(self, own: float, others: Sequence[float]) -> None:
        """Nobody serves. Invariant: until somebody does this hub goes by its machine's clock, or by that of those who did."""
        if self._reference is None and others:
            self._judge_majority(own, others)
        else:
            self._compare(own, own if self._reference is None else self._reference)
            self.has_majority = self.is_right
        self.needs_third = not self.has_majority
        if self.needs_third and self._third is not None and abs(own - self._third) <= LIMIT_S:
            self.is_right = True
            self._reference = own

    def _compare(self, own: float, reference: float) -> None:
        self.offset_s = own - reference
        self.has_majority = True
        self.is_right = abs(self.offset_s) <= LIMIT_S
