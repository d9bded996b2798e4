"""Tenant and device records from memory, from a cache that hubs share, or from the store of accounts: one question at a time, bounded.

Knows no credentials and no decisions. A record that was being read while the accounts changed is neither used nor kept: `changes`
shows a caller that it has to ask again.

Few questions are in the thread pool at once; the others wait in a fair queue, where tenants take turns, so that reading the accounts' changes does
not wait behind a storm of CONNECTs. A question about a connected device after a change is urgent: it does not wait for other questions. That a
device does not exist is remembered for CONNECTs, but not after an urgent question: a new device of that name may be created at once, and must be
let in then.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol, TypeVar

from iothub.base.clock import Clock
from iothub.base.errors import UnavailableError
from iothub_services.auth.change_watermark import ChangePosition, ChangeWatermark
from iothub_services.auth.fair_queue import FairQueue
from iothub_services.auth.lru import Lru, LruSettings, Missing
from iothub_services.auth.port import Accounts, DeviceRecord, Run, TenantRecord
from iothub_services.auth.single_flight import SingleFlight

T = TypeVar("T")
_Answer = tuple[T | None, float, int]
"""What was found, for how many seconds it may be remembered at most, and how often anything had changed when it was asked for."""

_Question = tuple[int, str, int, bool]
"""Tenant id (0: for a tenant by name), name, how often anything had changed, is it urgent."""


class StoreDownError(UnavailableError):
    """The accounts cannot be read now. `cause`: what the log calls it."""

    cause = "store"


class TooManyWaitError(StoreDownError):
    """Too many questions to the accounts are waiting already."""

    cause = "accounts_busy"


@dataclass(frozen=True, slots=True)
class DirectorySettings:
    """`loads`: questions to the store that wait at once; of them `tenant_loads` for devices of one tenant, `name_loads` for tenants by name.

    `asked`: in the thread pool. A fleet that meets a cold cache fits into `tenant_loads`; the same question asked twice takes one place. When large
    fleets use up `loads`, a tenant with fewer than `few_loads` is still admitted, and so are names; `few_loads` falls to a quarter (64, 16, 4, 1)
    with every quarter of `loads` that waits beyond them, so that never more than twice `loads` wait.
    """

    tenants: LruSettings = field(default_factory=lambda: LruSettings(entries=5_000))
    devices: LruSettings = field(default_factory=lambda: LruSettings(entries=50_000))
    loads: int = 10_000
    tenant_loads: int = 5_000
    name_loads: int = 512
    few_loads: int = 64
    asked: int = 4


class Shared(Protocol):
    """A cache that hubs share: `iothub_services.auth.shared.SharedRecords`. What it does not know, or cannot say now, is `MISSING`."""

    watermark: ChangeWatermark

    async def tenant(self, name: str) -> TenantRecord | Missing | None: ...

    async def device(self, tenant_id: int, name: str) -> DeviceRecord | Missing | None: ...

    def put_tenant(self, name: str, as_of: ChangePosition, tenant: TenantRecord | None) -> None: ...

    def put_device(self, tenant_id: int, name: str, as_of: ChangePosition, device: DeviceRecord | None) -> None: ...


class Directory:
    """The records of all tenants; must be used on the reactor thread."""

    def __init__(
        self,
        accounts: Accounts,
        run: Run,
        clock: Clock,
        on_failure: Callable[[str, Exception], None],
        settings: DirectorySettings,
        shared: Shared | None = None,
    ) -> None:
        """`shared`: the second level of the cache, if there is one."""
        self._accounts = accounts
        self._run = run
        self._on_failure = on_failure
        self._settings = settings
        self._tenants: Lru[str, TenantRecord] = Lru(settings.tenants, clock)
        self._absent: Lru[str, None] = Lru(settings.tenants, clock)  # names that no tenant has
        self._devices: Lru[tuple[int, int, str], DeviceRecord] = Lru(settings.devices, clock)
        self._shared = shared
        self._tenant_lookups: SingleFlight[_Question, _Answer[TenantRecord]] = SingleFlight()
        self._device_lookups: SingleFlight[_Question, _Answer[DeviceRecord]] = SingleFlight()
        self._unasked: dict[tuple[int, str], _Question] = {}  # lookups that wait for their turn, by tenant id and name
        self._fair_queue = FairQueue(settings.asked)
        self._loads = 0
        self._tenant_loads: Counter[int] = Counter()  # by tenant id; 0: tenants by name
        self._names: dict[int, str] = {}
        self._generations: dict[int, int] = {}  # by tenant id: part of a device's key, so one step drops all of them
        self._stamps: dict[int, int] = {}  # by tenant id: how often anything of it changed
        self._epoch = 0  # how often everything was forgotten
        self.changes = 0

    def apply(self, settings: DirectorySettings) -> None:
        """Hold other bounds from now on; what is remembered stays within them."""
        self._settings = settings
        self._tenants.apply(settings.tenants)
        self._absent.apply(settings.tenants)
        self._devices.apply(settings.devices)
        if self._shared is not None:
            self._shared.watermark.apply(settings.devices.ttl_s)

    @property
    def hits(self) -> int:
        """Answers from memory."""
        return self._tenants.hits + self._absent.hits + self._devices.hits

    @property
    def misses(self) -> int:
        """Answers that memory did not have."""
        return self._absent.misses + self._devices.misses

    def stamp(self, tenant_id: int) -> int:
        """Return a number that changes with everything of the tenant."""
        return self._stamps.get(tenant_id, 0) + self._epoch

    def remembered_tenant_id(self, name: str) -> int:
        """Return the id of the tenant of this name if memory has it, else 0: for log and counts, not for decisions."""
        tenant = self._tenants.peek(name)
        return 0 if tenant is None or isinstance(tenant, Missing) else tenant.id

    def recall(self, tenant: str, device: str) -> tuple[TenantRecord, DeviceRecord] | None:
        """Return a tenant and its device if memory has both; None: `tenant` and `device` find out."""
        owner = self._tenants.recall(tenant)
        if owner is None:
            return None
        found = self._devices.recall((owner.id, self._generations.get(owner.id, 0), device))
        if found is None:
            return None
        self._tenants.hits += 1
        self._devices.hits += 1
        return owner, found

    async def tenant(self, name: str, *, is_urgent: bool = False) -> TenantRecord | None:
        """Return the tenant of this name, or None.

        Raises:
            StoreDownError: it is not in memory and the store does not answer.
        """
        tenant = self._tenants.get(name)
        if not isinstance(tenant, Missing):
            return tenant
        if not isinstance(self._absent.get(name), Missing):
            return None
        question = self._question(0, name, self.changes, is_urgent)
        tenant, most_s, asked_at = await self._tenant_lookups.join(question, partial(self._find_tenant, question))
        if asked_at == self.changes:
            self._keep(name, tenant, most_s)
        return tenant

    async def device(self, tenant: TenantRecord, name: str) -> DeviceRecord | None:
        """Return the tenant's device of this name, or None.

        Raises:
            StoreDownError: it is not in memory and the store does not answer.
        """
        key = (tenant.id, self._generations.get(tenant.id, 0), name)
        device = self._devices.get(key)
        if not isinstance(device, Missing):
            return device
        question = self._question(tenant.id, name, self.stamp(tenant.id), is_urgent=False)
        device, most_s, asked_at = await self._device_lookups.join(question, partial(self._find_device, question))
        if asked_at == self.stamp(tenant.id):
            kept = name if device is None else device.name  # not another copy of the name
            self._devices.put((tenant.id, self._generations.get(tenant.id, 0), kept), device, most_s)
        return device

    async def devices(self, tenant: TenantRecord, names: Collection[str]) -> dict[str, DeviceRecord]:
        """Return by name those of the tenant's devices that exist; `names`: MOST_DEVICES at most. The question is urgent.

        What a change concerns, the second level does not have either: it is not asked, but gets the answer.

        Raises:
            StoreDownError: one is not in memory and the store does not answer.
        """
        generation = self._generations.get(tenant.id, 0)
        known = {name: self._devices.get((tenant.id, generation, name)) for name in names}
        found = {name: device for name, device in known.items() if isinstance(device, DeviceRecord)}
        unknown = [name for name, device in known.items() if isinstance(device, Missing)]
        return found | await self._load_devices(tenant.id, unknown) if unknown else found

    def invalidate(self, tenant_id: int, device: str | None) -> None:
        """Forget a device, or (None) all of a tenant and all names that had no tenant. O(1)."""
        self.changes += 1
        self._stamps[tenant_id] = self._stamps.get(tenant_id, 0) + 1
        generation = self._generations.get(tenant_id, 0)
        if tenant_id in self._names:
            self._tenants.forget(self._names.pop(tenant_id))
        if device is not None:
            self._devices.forget((tenant_id, generation, device))
        else:
            self._absent.clear()
            self._generations[tenant_id] = generation + 1

    def invalidate_all(self) -> None:
        """Forget everything: what has changed is not known. O(entries)."""
        self.changes += 1
        self._epoch += 1
        for known in (self._tenants, self._absent, self._devices, self._names):
            known.clear()

    def _question(self, tenant_id: int, name: str, changes: int, is_urgent: bool) -> _Question:
        """Return what to join: not what was asked before a change, as its answer may be the old one; what waits for its turn is asked behind it."""
        new = (tenant_id, name, changes, is_urgent)
        return new if is_urgent else self._unasked.get((tenant_id, name), new)

    def _keep(self, name: str, tenant: TenantRecord | None, most_s: float) -> None:
        if tenant is None:
            self._absent.put(name, None, most_s)
        else:
            self._tenants.put(name, tenant, most_s)
            self._names[tenant.id] = name

    async def _find_tenant(self, question: _Question) -> _Answer[TenantRecord]:
        """Ask the second level, then the store, whose answer the second level gets."""
        _, name, changes, _ = question
        shared = self._shared
        find = partial(self._accounts.find_tenant, name)
        ask = partial(self._ask, "accounts.tenant", find, lambda: self.changes)
        if shared is None:
            return await self._load(question, ask)
        found = await shared.tenant(name)
        if not isinstance(found, Missing):
            return found, shared.watermark.left_s(), changes
        as_of = shared.watermark.as_of()
        answer = await self._load(question, ask)
        shared.put_tenant(name, as_of, answer[0])
        return answer

    async def _find_device(self, question: _Question) -> _Answer[DeviceRecord]:
        tenant_id, name, stamp, _ = question
        shared = self._shared
        find = partial(self._accounts.find_device, tenant_id, name)
        ask = partial(self._ask, "accounts.device", find, lambda: self.stamp(tenant_id))
        if shared is None:
            return await self._load(question, ask)
        found = await shared.device(tenant_id, name)
        if not isinstance(found, Missing):
            return found, shared.watermark.left_s(), stamp
        as_of = shared.watermark.as_of()
        answer = await self._load(question, ask)
        shared.put_device(tenant_id, name, as_of, answer[0])
        return answer

    async def _load_devices(self, tenant_id: int, names: list[str]) -> dict[str, DeviceRecord]:
        shared = self._shared
        as_of = None if shared is None else shared.watermark.as_of()
        find = partial(self._accounts.find_devices, tenant_id, names)
        found, _, asked_at = await self._ask("accounts.devices", find, lambda: self.stamp(tenant_id))
        if asked_at == self.stamp(tenant_id):
            generation = self._generations.get(tenant_id, 0)
            for name, device in found.items():
                self._devices.put((tenant_id, generation, name), device)
        if shared is not None and as_of is not None:
            for name in names:
                shared.put_device(tenant_id, name, as_of, found.get(name))
        return found

    async def _load(self, question: _Question, ask: Callable[[], Awaitable[_Answer[T]]]) -> _Answer[T]:
        """Wait for a turn, then ask. Changes until then are in the answer, so callers with the same question may join until then."""
        tenant_id, name, _, is_urgent = question
        if is_urgent:
            return await ask()
        if self._tenant_loads[tenant_id] >= self._most_loads(tenant_id):
            raise TooManyWaitError("the accounts database answers too slowly; too many logins wait for it")
        self._loads += 1
        self._tenant_loads[tenant_id] += 1
        try:
            self._unasked[tenant_id, name] = question
            await self._fair_queue.acquire(tenant_id)
            self._unasked.pop((tenant_id, name), None)
            try:
                return await ask()
            finally:
                self._fair_queue.release()
        finally:
            self._loads -= 1
            self._tenant_loads[tenant_id] -= 1
            if not self._tenant_loads[tenant_id]:
                del self._tenant_loads[tenant_id]

    def _most_loads(self, tenant_id: int) -> int:
        """Return how many questions of a tenant may wait, considering all that wait now."""
        settings = self._settings
        most = settings.tenant_loads if tenant_id else settings.name_loads
        quarters = 4 * (self._loads - settings.loads) // settings.loads  # that wait beyond `loads`
        if quarters < 0:
            return most
        return min(most, settings.few_loads >> 2 * quarters) if quarters < 4 else 0

    async def _ask(self, call: str, find: Callable[[], T], changes: Callable[[], int]) -> tuple[T, float, int]:
        asked_at = changes()
        try:
            return await self._run(call, find), math.inf, asked_at
        except Exception as error:  # the edge of the thread pool: any error of a driver means that the store is down
            self._on_failure(call, error)
            raise StoreDownError(f"the accounts cannot be read: {type(error).__name__}") from error
