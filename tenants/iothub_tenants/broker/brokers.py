"""Keeps the tenants' brokers of this worker: made on first use, found by tenant id, dropped when they are idle.

Knows no quota and no protocol. A tenant is idle without connection, session or retained message, and when no rate is partly used that a new
broker would grant again: then its broker is dropped and costs nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator

from iothub_services.auth.port import TenantRecord
from iothub_services.auth.single_flight import SingleFlight
from iothub_tenants.broker.broker import TenantBroker

Make = Callable[[TenantRecord], Awaitable[TenantBroker]]


class Brokers:
    """Finds or makes brokers. Invariant: at most one broker per tenant id, and a broker is only ever replaced by none."""

    def __init__(self, make: Make, on_drop: Callable[[TenantBroker], None] | None = None) -> None:
        self._make = make
        self._on_drop = on_drop  # to keep what the broker has counted
        self._brokers: dict[int, TenantBroker] = {}
        self._making: SingleFlight[int, TenantBroker] = SingleFlight()

    def __iter__(self) -> Iterator[TenantBroker]:
        return iter(list(self._brokers.values()))

    def __len__(self) -> int:
        return len(self._brokers)

    def present(self, tenant_id: int) -> TenantBroker | None:
        return self._brokers.get(tenant_id)

    async def broker(self, record: TenantRecord) -> TenantBroker:
        """Return the tenant's broker; a newer record than the broker's is applied by `AccountChangeApplier`, not here."""
        found = self._brokers.get(record.id)
        if found is not None:
            return found
        return await self._making.join(record.id, lambda: self._make_broker(record))

    async def _make_broker(self, record: TenantRecord) -> TenantBroker:
        made = self._brokers[record.id] = await self._make(record)
        return made

    def drop(self, tenant_id: int) -> None:
        broker = self._brokers.pop(tenant_id, None)
        if broker is not None and self._on_drop is not None:
            self._on_drop(broker)

    def drop_idle(self) -> int:
        """Drop the idle brokers; returns how many."""
        idle = [tenant_id for tenant_id, broker in self._brokers.items() if broker.is_idle]
        for tenant_id in idle:
            self.drop(tenant_id)
        return len(idle)
