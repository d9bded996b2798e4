"""What quota tells others, and what its exact counts promise: two Protocols.

Knows no driver. On one machine the counts of a tenant are kept in the process (`ledger`); where hubs share them (`shared`), who may wait asks
for `room` first and reserves at once when it returns.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import EffectiveLimits


class QuotaObserver(Protocol):
    """Who is told, for metric, event and log. Called on the thread of the caller, for every single refusal."""

    def refused(self, tenant_id: int, quota: Quota) -> None:
        """A limit said no."""

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        """A limit on trial (`dry-run:`) would have said no."""

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        """More was given back than reserved: a defect of ours. The count stays at 0."""


class CountLedger(Protocol):
    """Exact counts of one tenant. A refusal is given only after this has said no; whoever reserved gives back, once."""

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        """Wait until so much more of each fits here (True), or nobody can give it (False). `reserve` has the last word.

        Raises UnavailableError: nobody can be asked, and it does not fit.
        """

    def reserve(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> bool:
        """Take `count` units, or nothing and return False. `subject`: whose count it is, for names per group or session."""

    def release(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> None:
        """Give units back."""

    def restore(self, quota: Quota, count: int, *, subject: Hashable = None) -> None:
        """Count what exists already (stored sessions, retained messages), whatever the limit says."""

    def used(self, quota: Quota, *, subject: Hashable = None) -> int: ...

    def excess(self, quota: Quota, *, subject: Hashable = None) -> int:
        """Return how far the count is above its limit: after the limit was lowered."""

    def set_limits(self, limits: EffectiveLimits) -> None:
        """Obey other limits from now on. What is reserved stays so; nothing more is granted until it fits."""
