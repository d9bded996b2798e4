"""The counts of one tenant where several hubs serve it: what this hub has is within what it was granted, and all grants within the limit.

Knows no Redis. Shared are `connections`, `sessions` and `subscriptions`; every other count is kept as on one machine: of one queue or
session, or of what every hub knows (docs/guide/quotas.md).

Theory. Hubs that share the sessions' stores know each other's sessions. Those are counted, as they are on one machine, but they are
`elsewhere`: the hub that has them holds their units in the ledger. When a session moves, both hubs report it, whatever the limits say.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import partial

from iothub_services.quota.ledger import LocalLedger
from iothub_services.quota.names import Quota
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.resolve import EffectiveLimits
from iothub_services.quota.shared.grants import Grant
from iothub_services.quota.shared.keys import count_name
from iothub_services.quota.shared.ledger_client import LedgerClient

SHARED = (Quota.CONNECTIONS, Quota.SESSIONS, Quota.SUBSCRIPTIONS)


class SharedLedger(LocalLedger):
    """Fulfils `CountLedger`; must be used on one thread.

    Invariants: a shared count that is limited has a grant, and none else has; `reserve` never lifts what is here above it.
    """

    def __init__(
        self, tenant_id: int, limits: EffectiveLimits, observer: QuotaObserver, ledger_client: LedgerClient
    ) -> None:
        self._ledger_client = ledger_client
        self._grants: dict[Quota, Grant] = {}
        self._elsewhere = dict.fromkeys(SHARED, 0)
        super().__init__(tenant_id, limits, observer)

    def fits(self, quota: Quota, count: int = 1, subject: Hashable = None) -> bool:
        grant = self._grants.get(quota)
        is_granted = grant is None or self._ledger_client.fits(grant, count)
        return is_granted and super().fits(quota, count, subject)

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        return await self._ledger_client.room(self.wanted(*wanted))

    def wanted(self, *wanted: tuple[Quota, int]) -> list[tuple[Grant, int]]:
        """Return the grants that are concerned."""
        return [(self._grants[quota], count) for quota, count in wanted if quota in self._grants and count > 0]

    def moved(self, quota: Quota, count: int) -> None:
        """So many more are another hub's now; less than 0: are this one's."""
        self._elsewhere[quota] = max(self._elsewhere[quota] + count, 0)
        self._on_change(quota)

    def part(self, quota: Quota) -> int:
        """Return how many of a shared count are this hub's."""
        return max(self.used(quota) - self._elsewhere[quota], 0)

    def held(self) -> dict[Quota, tuple[int, int]]:
        """Return what the ledger has granted to (this hub, others), by count; of the last answer."""
        return {quota: (grant.granted, grant.others) for quota, grant in self._grants.items()}

    def set_limits(self, limits: EffectiveLimits) -> None:
        super().set_limits(limits)
        for quota in SHARED:
            bound, grant = self._bounds.get(quota), self._grants.get(quota)
            if bound is None:
                if grant is not None:
                    self._ledger_client.close(self._grants.pop(quota))
            elif grant is None:
                self._grants[quota] = self._open(quota, bound)
            else:
                grant.limit = bound
                self._ledger_client.changed(grant)

    def close(self) -> None:
        """The tenant is not served here any more."""
        for grant in self._grants.values():
            self._ledger_client.close(grant)
        self._grants.clear()

    def _open(self, quota: Quota, bound: int) -> Grant:
        return self._ledger_client.open(Grant(count_name(self._tenant_id, quota), bound, partial(self.part, quota)))

    def _keep(self, quota: Quota, subject: Hashable, used: int) -> None:
        super()._keep(quota, subject, used)
        self._on_change(quota)

    def _on_change(self, quota: Quota) -> None:
        grant = self._grants.get(quota)
        if grant is not None:
            self._ledger_client.changed(grant)
