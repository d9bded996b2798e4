"""The callbacks of quota, and its exact counts: two Protocols.

Knows no driver. On one machine the counts of a tenant are kept in the process (`ledger`); where hubs share them (`shared`), a caller that can wait
awaits `room` first and reserves at once when it returns.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Protocol

from iothub_services.quota.names import Quota
from iothub_services.quota.resolve import EffectiveLimits


class QuotaObserver(Protocol):
    """Receives every single refusal, for metric, event and log. Called on the thread of the caller."""

    def refused(self, tenant_id: int, quota: Quota) -> None:
        """A limit refused something."""

    def would_refuse(self, tenant_id: int, quota: Quota) -> None:
        """A dry-run limit would have rejected something."""

    def unbalanced(self, tenant_id: int, quota: Quota) -> None:
        """More was given back than reserved: a defect of ours. The count stays at 0."""


class CountLedger(Protocol):
    """Exact counts of one tenant. Nothing is refused before `reserve` has returned False; what was reserved is released once, by its caller."""

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        """Wait until so much more of each fits here (True), or no hub can give it (False). `reserve` has the last word.

        Raises UnavailableError: it does not fit, and the ledger does not answer.
        """

    def fits(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> bool:
        """Say whether `reserve` would take so much, and take nothing."""

    def reserve(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> bool:
        """Take `count` units, or nothing and return False. `subject`: whose count it is, for names per group or session."""

    def release(self, quota: Quota, count: int = 1, *, subject: Hashable = None) -> None:
        """Give units back."""

    def restore(self, quota: Quota, count: int, *, subject: Hashable = None) -> None:
        """Count what exists already (stored sessions, retained messages), whatever the limit says."""

    def used(self, quota: Quota, *, subject: Hashable = None) -> int: ...

    def set_limits(self, limits: EffectiveLimits) -> None:
        """Apply other limits from now on. What is reserved stays reserved; nothing more is granted until it fits."""
