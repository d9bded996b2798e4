"""Rates that several hubs use together: each has a part of a limit, by its demand, and its token buckets are filled with that.

Knows the engine's meters and no message. Asked for and changed several times a second; between that only units are counted.

Theory. The parts of all hubs are never more than the limit, because the ledger gives no hub what another one still holds. A hub wishes a little more
than it spends, and a multiple of that if a publisher was held back since the last look. What no hub wishes is divided, too, so that the first
messages after a silence find a rate. A bucket keeps its tokens when its part changes, so that a changing part allows no new burst. A hub whose wish
has not changed reports nothing. A publisher that is held back by a part of a limit tries again soon: the part may have grown.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from iothub.base.clock import Clock
from iothub.engine.buckets import Bucket, Meter
from iothub_services.quota.names import Quota
from iothub_services.quota.shared import scripts
from iothub_services.quota.shared.keys import count_name
from iothub_services.quota.shared.lease import LapsedError, Lease

BATCH = 200
LOOKS = 1_000  # tenants that are looked at in one turn
SURPLUS = 1.15  # of what is spent is wished
HUNGER = 4.0
RETRY_S = 0.05  # the wheel makes up to 0.15 of it
_LEAST = 0.005  # of a limit: what even a silent hub wishes
_FIRST_HUNGER = 0.3
_NOTICEABLE = 0.02  # of a limit
_WHOLE = 0.97
_SAVED_S = 0.4  # of a limit, at all hubs together: what a bucket holds where there is one hub
_STILL_S = 0.25  # how long after a publisher was held back the hub may still be short
_SILENCE_S = 0.16
_SHORT_LOOK_S = 0.04
_LOOK_S = 0.16  # a publisher that is held back tries again with a tick of the timer wheel: in less time it may seem to be silent


class WatchedMeter:
    """A meter in front of another one: it counts what is spent, and notes when a publisher was held back last.

    `saved`: tokens that no longer fitted into a bucket when its part became less; the first publishers that would be held back later get them.
    """

    __slots__ = ("_meter", "asked_at", "held_back", "is_whole", "saved", "short_until", "spent")

    def __init__(self, meter: Meter) -> None:
        self._meter = meter
        self.asked_at = 0.0  # when units were last asked for
        self.spent = 0
        self.saved = 0.0
        self.held_back = 0  # how often a publisher was
        self.short_until = 0.0
        self.is_whole = True

    def take(self, units: int, now: float) -> float:
        """As the meter says; but who waits for a part of a limit comes back soon."""
        self.asked_at = now
        wait: float = self._meter.take(units, now)
        if wait == 0.0 or (units <= self.saved and not self._meter.budgets):
            self.saved -= units if wait else 0
            self.spent += units
            return 0.0
        return self._held_back(wait, now)

    def wait(self, units: int, now: float) -> float:
        """Return what `take` would."""
        self.asked_at = now
        wait: float = self._meter.wait(units, now)
        return wait if wait == 0.0 else self._held_back(wait, now)

    def spend(self, units: int) -> None:
        """Take units that `wait` allowed at the same time."""
        self._meter.spend(units)
        self.spent += units

    def _held_back(self, wait: float, now: float) -> float:
        soon = wait if self.is_whole else min(wait, RETRY_S)
        self.held_back += 1
        self.short_until = now + _STILL_S
        return soon


class LeasedRate:
    """One window of one rate. Units of `share`, `wish` and `limit`: in the window."""

    __slots__ = (
        "_at",
        "_held_back",
        "_reported",
        "_spent",
        "is_due",
        "limit",
        "name",
        "seconds",
        "share",
        "wish",
    )

    def __init__(self, name: str, limit: int, seconds: int, share: float, now: float) -> None:
        self.name = name
        self.limit = limit
        self.seconds = seconds
        self.share = share
        self.wish = limit * _LEAST
        self.is_due = True
        self._reported = self.wish
        self._spent = self._held_back = 0
        self._at = now

    @property
    def is_whole(self) -> bool:
        """Whether there is nothing to be had from others."""
        return self.share >= self.limit * _WHOLE

    def filled(self, bucket: Bucket, now: float) -> Bucket:
        """Return a bucket for the share, with the tokens of the one before."""
        rate = max(self.share, self.limit * _LEAST / 2) / self.seconds
        new = Bucket(self.limit, self.limit / rate, now)
        return Bucket(self.limit, self.limit / rate, now, new.burst - min(bucket.tokens, new.capacity))

    def begun(self, watched: WatchedMeter) -> None:
        """Count from here."""
        self._spent, self._held_back = watched.spent, watched.held_back

    def observe(self, watched: WatchedMeter, now: float) -> None:
        """See what was spent since the last look, and wish accordingly."""
        elapsed = now - self._at
        was_short = watched.held_back > self._held_back
        if now - watched.asked_at >= _SILENCE_S:
            self._see(watched, now, 0.0, is_short=False)
        elif elapsed >= _LOOK_S or (was_short and elapsed >= _SHORT_LOOK_S):
            demand = (watched.spent - self._spent) / elapsed
            self._see(watched, now, demand, is_short=was_short or now <= watched.short_until)
        is_short = self.share < self.wish * 0.98
        is_silent = self.wish <= self.limit * _LEAST < self._reported
        self.is_due |= is_short or is_silent or abs(self.wish - self._reported) > self.limit * _NOTICEABLE

    def _see(self, watched: WatchedMeter, now: float, demand_per_s: float, *, is_short: bool) -> None:
        self._at = now
        self.begun(watched)
        demand = demand_per_s * self.seconds
        wish = max(demand * HUNGER, self.limit * _FIRST_HUNGER) if is_short else demand * SURPLUS
        self.wish = min(max(wish, self.limit * _LEAST), float(self.limit))

    def end(self) -> None:
        """Nothing is wished any more."""
        self.wish = -1.0

    def report(self) -> float:
        """Return the wish, which counts as reported."""
        self.is_due = False
        self._reported = self.wish
        return self.wish


class TenantRates:
    """The leased rates of one tenant, and the meters that they fill."""

    def __init__(self, tenant_id: int, clock: Clock) -> None:
        self._tenant_id = tenant_id
        self._clock = clock
        self._leases: dict[str, tuple[WatchedMeter, Meter, int, LeasedRate]] = {}  # the place is the bucket's

    def apply_limits(self, meters: Mapping[Quota, Meter], hubs: int) -> Mapping[Quota, WatchedMeter]:
        """The limits were set, or set anew: `meters` are filled by whole limits. Return what the engine is to ask in their place.

        `hubs`: number of hubs among which a new rate is divided at first.
        """
        before, self._leases = self._leases, {}
        return {quota: self._lease(quota, meter, before, hubs) for quota, meter in meters.items()}

    def _lease(
        self, quota: Quota, meter: Meter, before: Mapping[str, tuple[WatchedMeter, Meter, int, LeasedRate]], hubs: int
    ) -> WatchedMeter:
        now = self._clock.monotonic()
        watched = WatchedMeter(meter)
        for place, bucket in enumerate(meter.buckets):
            seconds = int(bucket.seconds)
            name = count_name(self._tenant_id, quota, seconds)
            known = before.get(name)
            rate = _renewed(None if known is None else known[3], name, bucket.limit, seconds, hubs, now)
            rate.begun(watched)
            meter.buckets[place] = rate.filled(bucket, now)
            self._leases[name] = (watched, meter, place, rate)
            watched.is_whole &= rate.is_whole
        return watched

    @property
    def rates(self) -> Iterable[LeasedRate]:
        return [rate for *_, rate in self._leases.values()]

    def due(self) -> Iterator[LeasedRate]:
        """Look at every rate; return those that have something to report."""
        now = self._clock.monotonic()
        for watched, _, _, rate in self._leases.values():
            rate.observe(watched, now)
            if rate.is_due:
                yield rate

    def fill(self, rate: LeasedRate, share: float, hubs: int) -> None:
        """Another share from now on."""
        found = self._leases.get(rate.name)
        if found is None or found[3] is not rate:
            return
        is_same = abs(share - rate.share) < rate.limit * 0.001
        rate.share = share
        watched, meter, place, _ = found
        watched.is_whole = all(each.is_whole for other, _, _, each in self._leases.values() if other is watched)
        if not is_same:
            now = self._clock.monotonic()
            meter.wait(0, now)  # fills the buckets up to now
            before, after = meter.buckets[place], rate.filled(meter.buckets[place], now)
            meter.buckets[place] = after
            saved = watched.saved + max(before.tokens - after.tokens, 0.0)
            room = rate.limit / rate.seconds * _SAVED_S / hubs - after.capacity
            watched.saved = max(min(saved, room), 0.0)


class LeasedRates:
    """Those of all tenants. On the reactor thread."""

    def __init__(self, lease: Lease, clock: Clock) -> None:
        self._lease = lease
        self._clock = clock
        self._tenants: dict[int, TenantRates] = {}
        self._ended: list[tuple[TenantRates, LeasedRate]] = []
        self._looked_at = 0  # tenants, of this round
        self._hubs = 1
        self.is_restless = False  # demands change: it is worth looking again soon

    def apply_limits(self, tenant_id: int, meters: Mapping[Quota, Meter]) -> Mapping[Quota, WatchedMeter]:
        """Lease these rates of a tenant from now on, and no others. Return what is to be asked in their place."""
        tenant = self._tenants.get(tenant_id)
        if tenant is None:
            tenant = self._tenants[tenant_id] = TenantRates(tenant_id, self._clock)
        return tenant.apply_limits(meters, self._hubs)

    def close(self, tenant_id: int) -> None:
        """The tenant is not served here: its parts are given back."""
        tenant = self._tenants.pop(tenant_id, None)
        if tenant is not None:
            for rate in tenant.rates:
                rate.end()
            self._ended += [(tenant, rate) for rate in tenant.rates]

    def rates_of(self, tenant_id: int) -> Iterable[LeasedRate]:
        """Return what is leased for a tenant."""
        tenant = self._tenants.get(tenant_id)
        return () if tenant is None else tenant.rates

    def wanted(self, name: str) -> None:
        """Another hub is short of it."""
        owner = name.partition(":")[0]
        for rate in self.rates_of(int(owner)) if owner.isdigit() else ():
            rate.is_due |= rate.name == name

    def change_all(self) -> None:
        """Report everything again."""
        for tenant in self._tenants.values():
            for rate in tenant.rates:
                rate.is_due = True

    async def report(self, hubs: int) -> None:
        """Look at the rates of some tenants, and lease what they need. Raises LapsedError, BackendError."""
        self._hubs = max(hubs, 1)
        due = [(tenant, rate) for tenant in self._next() for rate in tenant.due()]
        self.is_restless = bool(due)
        due, self._ended = self._ended + due, []  # who has ended may have begun anew
        for start in range(0, len(due), BATCH):
            await self._share(due[start : start + BATCH])

    def _next(self) -> list[TenantRates]:
        """Return so many tenants that all have their turn in some turns."""
        found = list(islice(self._tenants.values(), self._looked_at, self._looked_at + LOOKS))
        self._looked_at = 0 if len(found) < LOOKS else self._looked_at + LOOKS
        return found

    async def _share(self, due: list[tuple[TenantRates, LeasedRate]]) -> None:
        keys = self._lease.keys
        names = [keys.wanted, *(keys.rate(rate.name) for _, rate in due)]
        arguments = [
            part for _, rate in due for part in (rate.name, rate.limit, f"{rate.report():.6f}", f"{rate.share:.6f}")
        ]
        answer = await self._lease.ask(scripts.SHARE, names, scripts.KEPT_S, *arguments)
        if len(answer) != 1 + len(due):
            raise LapsedError("unexpected answer of the quota ledger")
        for (tenant, rate), share in zip(due, answer[1:], strict=True):
            if isinstance(share, bytes):
                tenant.fill(rate, float(share), self._hubs)


def _renewed(known: LeasedRate | None, name: str, limit: int, seconds: int, hubs: int, now: float) -> LeasedRate:
    if known is not None and known.limit == limit:
        return known
    share = limit / hubs if known is None else min(known.share * limit / max(known.limit, 1), float(limit))
    return LeasedRate(name, limit, seconds, share, now)
