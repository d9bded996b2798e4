"""Accounts in memory: a double of the store behind the auth service, for tests.

Knows no SQL. Records are put in as they are; `is_down` makes every question fail as a dead store does.
"""

from __future__ import annotations

from collections.abc import Collection

from iothub.base.errors import BackendError
from iothub_services.auth.port import DeviceRecord, TenantRecord


class MemoryAccounts:
    """Fulfils `iothub_services.auth.port.Accounts`."""

    def __init__(self) -> None:
        self.tenants: dict[str, TenantRecord] = {}
        self.devices: dict[tuple[int, str], DeviceRecord] = {}
        self.questions: list[str] = []
        self.is_down = False

    def add(self, tenant: TenantRecord, *devices: DeviceRecord) -> None:
        """Put in, or replace, a tenant and some of its devices."""
        self.tenants[tenant.name] = tenant
        self.devices.update({(tenant.id, device.name): device for device in devices})

    def find_tenant(self, name: str) -> TenantRecord | None:
        self._ask(name)
        return self.tenants.get(name)

    def find_device(self, tenant_id: int, name: str) -> DeviceRecord | None:
        self._ask(f"{tenant_id}/{name}")
        return self.devices.get((tenant_id, name))

    def find_devices(self, tenant_id: int, names: Collection[str]) -> dict[str, DeviceRecord]:
        self._ask(f"{tenant_id}/{','.join(sorted(names))}")
        return {name: self.devices[tenant_id, name] for name in names if (tenant_id, name) in self.devices}

    def _ask(self, question: str) -> None:
        if self.is_down:
            raise BackendError("the accounts are down", retryable=True)
        self.questions.append(question)
