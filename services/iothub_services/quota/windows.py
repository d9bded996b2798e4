"""Allowances of an hour and more: checks whether units fit into the calendar windows of one name.

Knows no store: the cells of `usage` count and survive. What is refused counts nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from iothub.base.clock import Clock
from iothub_services.quota.grammar import Window
from iothub_services.quota.names import Quota
from iothub_services.quota.usage import Cell, Usage, UsageKey, usage_key

REFUSED = -1.0  # until the window ends


class _Allowance:
    """One window length: what may be used, what would be refused on trial, and the present cell."""

    __slots__ = ("cell", "key", "limit", "trial")

    def __init__(self, key: UsageKey, cell: Cell) -> None:
        self.key = key
        self.cell = cell
        self.limit: int | None = None
        self.trial: int | None = None


class DayCounter:
    """The calendar windows of one quota name of one tenant or device; must be used on one thread.

    Two counters of the same name share their cells: nothing is counted apart, nothing twice as long as one of them is in use.
    """

    def __init__(
        self,
        usage: Usage,
        clock: Clock,
        owner: tuple[int, str],
        quota: Quota,
        windows: Iterable[Window],
        on_trial: Callable[[], None],
    ) -> None:
        """`owner`: tenant id and device name, "" for the tenant. `on_trial` is called when a dry-run limit would have rejected something."""
        self._usage = usage
        self._clock = clock
        self._owner = owner
        self._quota = quota
        self._on_trial = on_trial
        self._allowances: list[_Allowance] = []
        self.set_windows(windows)

    def set_windows(self, windows: Iterable[Window]) -> None:
        """Apply other limits. What is used stays used; windows below an hour are ignored."""
        allowances: dict[int, _Allowance] = {}
        for window in windows:
            if not window.is_durable:
                continue
            allowance = allowances.get(window.seconds)
            if allowance is None:
                key = usage_key(*self._owner, self._quota, window.seconds)
                allowance = allowances[window.seconds] = _Allowance(key, self._usage.cell(key))
            if window.is_dry_run:
                allowance.trial = window.limit
            else:
                allowance.limit = window.limit
        self._allowances = list(allowances.values())

    def take(self, units: int, now: float = 0.0) -> float:
        """Use `units` of every window and return 0.0; or use nothing and return `REFUSED`.

        `now` is not looked at: the engine's meters live in monotonic time, the calendar does not.
        """
        wall = self._clock.wall()
        for allowance in self._allowances:
            cell = allowance.cell
            if not cell.opens_at <= wall < cell.end:
                cell = allowance.cell = self._usage.cell(allowance.key)
            if allowance.limit is not None and cell.used + cell.elsewhere + units > allowance.limit:
                return REFUSED
        is_above_trial = False
        for allowance in self._allowances:
            allowance.cell.add(units)
            if allowance.trial is not None and allowance.cell.used + allowance.cell.elsewhere > allowance.trial:
                is_above_trial = True
        if is_above_trial:
            self._on_trial()
        return 0.0

    def left(self) -> int | None:
        """Return how many units fit into all windows now; None: there is no limit."""
        cells = [(allowance.limit, self._usage.cell(allowance.key)) for allowance in self._allowances]
        room = [limit - cell.used - cell.elsewhere for limit, cell in cells if limit is not None]
        return max(min(room), 0) if room else None
