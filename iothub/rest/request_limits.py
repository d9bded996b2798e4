"""How many requests a tenant may make, by its limit `api_requests`, and a key or user of the platform, by a fixed one.

Knows no path. Counts in the memory of this process: with its restart everybody begins at zero.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from threading import Lock

from iothub.rest.caller import Principal
from iothub.rest.problems import Code, ProblemError
from iothub_services.quota.grammar import parse_limits
from iothub_services.quota.names import Quota
from iothub_services.quota.rates import SlidingWindows
from iothub_tenants.accounts import quotas
from iothub_tenants.accounts.store import AccountStore

PLATFORM = [(6000, 60)]  # requests of one key or user in a minute
READ_S = 10.0  # how old a tenant's limit may be
MOST = 10_000  # names that are counted; the one that was seen longest ago is forgotten

Windows = list[tuple[int, int]]


@dataclass(slots=True)
class _Counted:
    read_at: float
    windows: SlidingWindows | None
    lock: Lock = field(default_factory=Lock)


class RequestLimits:
    """May be used from several threads."""

    def __init__(self, store: AccountStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self._counted: OrderedDict[tuple[str, str], _Counted] = OrderedDict()
        self._lock = Lock()

    def require(self, who: Principal) -> None:
        """Count a request. Raises ProblemError: it is one too many."""
        now, tenant = self._monotonic(), who.tenant
        counted = self._of(who.id, tenant, now)
        if counted.windows is None:
            return
        with counted.lock:
            wait_s = counted.windows.take(1, now)
        if wait_s > 0.0:
            whose = (
                f"the {who.kind} {who.name}"
                if tenant is None
                else f"tenant {tenant} (its limit {Quota.API_REQUESTS.value})"
            )
            raise ProblemError(
                Code.LIMIT_EXCEEDED,
                f"too many requests of {whose}: send fewer, and try again later",
                headers={"Retry-After": str(max(1, int(wait_s + 0.999)))},
            )

    def _of(self, who: str, tenant: str | None, now: float) -> _Counted:
        name = ("", who) if tenant is None else ("tenant", tenant)
        known = self._counted.get(name)
        if known is None or (tenant is not None and now - known.read_at >= READ_S):
            limits = PLATFORM if tenant is None else self._limits(tenant)
            with self._lock:
                known = self._noted(name, limits, now)
        return known

    def _noted(self, name: tuple[str, str], limits: Windows, now: float) -> _Counted:
        known = self._counted.pop(name, None) or _Counted(now, None)
        known.read_at = now
        if not limits:
            known.windows = None
        elif known.windows is None:
            known.windows = SlidingWindows(limits)
        else:
            with known.lock:
                known.windows.set_windows(limits)
        self._counted[name] = known
        while len(self._counted) > MOST:
            self._counted.popitem(last=False)
        return known

    def _limits(self, tenant: str) -> Windows:
        """Raises NotFoundError: the tenant is gone."""
        for each in quotas.effective(self._store, tenant):
            if each.name == Quota.API_REQUESTS.value:
                windows = parse_limits(each.limits).get(Quota.API_REQUESTS, ())
                return [(one.limit, one.seconds) for one in windows if one.limit is not None and not one.is_dry_run]
        return []
