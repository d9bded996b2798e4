"""What one tenant may use where several hubs serve it: its counts, its rates and its windows, each by its own way of sharing.

Knows no message: the tenant's broker applies limits, waits for `room`, and closes.
"""

from __future__ import annotations

from iothub.base.clock import Clock
from iothub_services.quota.names import Quota
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.rates import Rates
from iothub_services.quota.resolve import EffectiveLimits
from iothub_services.quota.shared.ledger import SharedLedger
from iothub_services.quota.shared.service import SharedQuota
from iothub_services.quota.shared.windows import SharedRateWindows


class SharedTenant:
    """On the reactor thread."""

    def __init__(
        self, tenant_id: int, limits: EffectiveLimits, observer: QuotaObserver, shared: SharedQuota, clock: Clock
    ) -> None:
        self._tenant_id = tenant_id
        self._shared = shared
        self.ledger = SharedLedger(tenant_id, limits, observer, shared.ledger_client)
        self._windows = SharedRateWindows(tenant_id, shared.ledger_client, clock)

    def apply_limits(self, rates: Rates) -> None:
        """The tenant's rates were given limits: lease this hub's part of them. The ledger is given its limits by who has it."""
        rates.watch(self._shared.rates.apply_limits(self._tenant_id, rates.meters))
        self._windows.apply_limits(rates.sliding, rates.meters)

    async def room(self, *wanted: tuple[Quota, int]) -> bool:
        """Wait until all fit, or the ledger says no. Raises UnavailableError: something is short and the ledger does not answer."""
        found = [(grant, count) for quota, count in wanted if count > 0 for grant in self._windows.grants(quota)]
        return await self._shared.ledger_client.room([*found, *self.ledger.wanted(*wanted)])

    def spent(self, quota: Quota) -> None:
        """Units of a rate were taken."""
        self._windows.spent(quota)

    def close(self) -> None:
        """The tenant is not served here any more."""
        self.ledger.close()
        self._windows.close()
        self._shared.rates.close(self._tenant_id)
