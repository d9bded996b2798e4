# cython: annotation_typing=False
"""The exact counts of one tenant, kept in this process: one worker, so its memory is the truth.

Knows no rates, no store and no meaning of a name. Persistent counts (sessions, retained messages, queues) are restored by
the code that loads the counted things.
"""

from __future__ import annotations

from collections.abc import Hashable

from iothub_services.quota.grammar import Window
from iothub_services.quota.names import Kind, Quota
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.resolve import NOTHING, UNLIMITED, EffectiveLimits


class LocalLedger:
    """Fulfils `CountLedger`; must be used on one thread.

    Invariants: a count is never negative; `reserve` never lifts one above its limit; counts of 0 are not kept.
    """

    def __init__(self, tenant_id: int, limits: EffectiveLimits, observer: QuotaObserver) -> None:
        self._tenant_id = tenant_id
        self._observer = observer
        self.set_limits(limits)
        self._used: dict[tuple[Quota, Hashable], int] = {}

    def reserve(self, quota: Quota, count: int = 1, subject: Hashable = None) -> bool:
        wanted = self._used.get((quota, subject), 0) + count
        if not self.fits(quota, count, subject):
            self._observer.refused(self._tenant_id, quota)
            return False
        on_trial = self._limits.dry_run.get(quota)
        if on_trial is not None and _is_above(wanted, on_trial):
            self._observer.would_refuse(self._tenant_id, quota)
        self._keep(quota, subject, wanted)
        return True

    def fits(self, quota: Quota, count: int = 1, subject: Hashable = None) -> bool:
        limit = self._bounds.get(quota)
        return limit is None or self._used.get((quota, subject), 0) + count <= limit

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        """Say at once whether it fits: no other hub can give units back."""
        del wanted
        return True

    def release(self, quota: Quota, count: int = 1, subject: Hashable = None) -> None:
        left = self._used.get((quota, subject), 0) - count
        if left < 0:
            self._observer.unbalanced(self._tenant_id, quota)
        self._keep(quota, subject, max(left, 0))

    def restore(self, quota: Quota, count: int, subject: Hashable = None) -> None:
        self._keep(quota, subject, self._used.get((quota, subject), 0) + count)

    def used(self, quota: Quota, subject: Hashable = None) -> int:
        return self._used.get((quota, subject), 0)

    def part(self, quota: Quota) -> int:
        """Return how many of a count are this hub's."""
        return self.used(quota)

    def set_limits(self, limits: EffectiveLimits) -> None:
        self._limits = limits
        counts = {quota: limits.figure(quota) for quota in Quota if quota.kind is Kind.COUNT}
        self._bounds = {
            quota: 0 if figure == NOTHING else figure for quota, figure in counts.items() if figure != UNLIMITED
        }

    def figures(self) -> dict[Quota, tuple[int, int]]:
        """Return (used, limit) of every count of the tenant, for metrics and `quota explain`; a limit of 0 is unlimited."""
        return {
            quota: (self._used.get((quota, None), 0), self._limits.figure(quota))
            for quota in Quota
            if quota.kind is Kind.COUNT
        }

    def _keep(self, quota: Quota, subject: Hashable, used: int) -> None:
        if used:
            self._used[quota, subject] = used
        else:
            self._used.pop((quota, subject), None)


def _is_above(used: int, windows: tuple[Window, ...]) -> bool:
    return any(window.limit is not None and used > window.limit for window in windows)
