"""How much of the log of account changes a hub has seen, and whether a record from a shared cache is at least as new as that.

Knows no record, no cache and no SQL.

Theory. The ids of the change log become visible in the order of commits. A record that was read from SQL when its hub had seen everything up to a
change has that change and all before it, perhaps later ones too. A hub that has seen everything up to `seen` may use it if no change behind that
one concerned it: then it is what SQL held at the moment of the hub's last look, and no older than what the hub itself would remember.
So nothing need be deleted from the cache, and nothing that is put there late, out of order or twice can bring an old answer back: what counts is
the change that is named inside.

    changes         floor                                     seen
    ------------------|-------c(acme/dev1)------c(bmce)---------|----------> log
    as of here:   no  |  dev1: no, else yes      bmce: no, else yes   | no

Every line above `floor` is known here. A record as of an earlier line is not used: its later changes are not known any more. A record as of a line
beyond `seen` is from a hub that is ahead, or from accounts before they were restored from a backup; the time of the line separates the two.
While the log cannot be read, changes are unknown: `left_s` says how much longer the records of the last look may be used.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from iothub.base.clock import Clock

MOST = 100_000  # lines of the log that are remembered
EVERYBODY = 0
NOBODY = -1  # in place of a tenant id: no record has changed

_Subject = tuple[int, str]
_EVERY_DEVICE = ""


class ChangePosition(NamedTuple):
    """A line of the log: its id, and its time in Unix milliseconds."""

    change: int
    at_ms: int


NOTHING_SEEN = ChangePosition(0, 0)


@dataclass(frozen=True, slots=True)
class Line:
    """One line of the log, and whose records it may have changed.

    `tenant_id` `EVERYBODY`: all tenants'. `device` None: the whole tenant. `tenant_name`: it may have been created or deleted.
    """

    as_of: ChangePosition
    tenant_id: int
    device: str | None = None
    tenant_name: str = ""


class ChangeWatermark:
    """Must be used on the reactor thread.

    Invariants: `seen` only rises until it begins anew; `_times` has every line in (`floor`, `seen`], no more than `most`; `_last` has the last
    of them for each subject that they concern; both are in ascending order of changes.
    """

    def __init__(self, clock: Clock, remembered_s: float, most: int = MOST) -> None:
        """`remembered_s`: how long an answer may be used after it was true."""
        self._clock = clock
        self._remembered_s = remembered_s
        self._most = most
        self._times: OrderedDict[int, int] = OrderedDict()  # a dict looks for its first key past all that have gone
        self._last: OrderedDict[_Subject, int] = OrderedDict()
        self._looked_at: float | None = None
        self._floor = 0
        self._seen = NOTHING_SEEN

    def apply(self, remembered_s: float) -> None:
        """Let an answer be used for another time from now on."""
        self._remembered_s = remembered_s

    def now(self) -> float:
        """Return what `saw` wants to know of the moment before a look."""
        return self._clock.monotonic()

    def begin(self, lines: Iterable[Line], looked_at: float) -> None:
        """Begin with the end of the log, without a gap, ascending; or begin anew, when the log is not the one that was seen."""
        lines = list(lines)
        self._times.clear()
        self._last.clear()
        self._seen = NOTHING_SEEN
        self._floor = lines[0].as_of.change - 1 if lines else 0
        self._looked_at = looked_at
        self.saw(lines, looked_at)

    def saw(self, lines: Iterable[Line], looked_at: float) -> None:
        """Take all lines since the last look, ascending. `looked_at`: `now()` before it was asked."""
        if self._looked_at is None:
            return
        for line in lines:
            self._note(line)
        self._looked_at = looked_at

    def as_of(self) -> ChangePosition:
        """Return what a question to SQL that is asked now will have in its answer; `NOTHING_SEEN`: no line is known."""
        return self._seen

    def left_s(self) -> float:
        """Return how long what was true at the last look may still be used."""
        if self._looked_at is None:
            return 0.0
        return self._looked_at + self._remembered_s - self._clock.monotonic()

    def has_tenant(self, name: str, tenant_id: int, as_of: ChangePosition) -> bool:
        """Say whether the tenant of this name (0: there was none) is still as it was."""
        return self._has(as_of, (EVERYBODY, name)) and self._has(as_of, (tenant_id, _EVERY_DEVICE))

    def has_device(self, tenant_id: int, name: str, as_of: ChangePosition) -> bool:
        """Say whether the device, or that there is none, is still as it was."""
        return self._has(as_of, (tenant_id, name)) and self._has(as_of, (tenant_id, _EVERY_DEVICE))

    def _has(self, as_of: ChangePosition, subject: _Subject) -> bool:
        is_known = self._times.get(as_of.change) == as_of.at_ms
        return is_known and self._last.get(subject, 0) <= as_of.change

    def _note(self, line: Line) -> None:
        change = line.as_of.change
        self._times[change] = line.as_of.at_ms
        self._seen = line.as_of
        if line.tenant_id == EVERYBODY:
            self._raise_floor(change - 1)
        elif line.tenant_id != NOBODY:
            self._concern((line.tenant_id, _EVERY_DEVICE if line.device is None else line.device), change)
        if line.tenant_name:
            self._concern((EVERYBODY, line.tenant_name), change)
        if len(self._times) > self._most:
            self._raise_floor(next(iter(self._times)))

    def _concern(self, subject: _Subject, change: int) -> None:
        self._last[subject] = change
        self._last.move_to_end(subject)

    def _raise_floor(self, floor: int) -> None:
        """What was true as of `floor` or before is used no more."""
        self._floor = max(self._floor, floor)
        while self._times and (change := next(iter(self._times))) <= self._floor:
            del self._times[change]
        while self._last and self._last[subject := next(iter(self._last))] <= self._floor:
            del self._last[subject]
