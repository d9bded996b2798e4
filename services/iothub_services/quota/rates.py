"""The rates of one tenant and of its devices: meters for the engine, refusals for the control plane, trials for both.

Knows no packets and no plan: it is given `EffectiveLimits`. Two kinds of rate, because two things can happen above one: a publisher
is held back (the engine's `Meter`: smooth), a CONNECT or SUBSCRIBE is refused (`SlidingWindow`: a whole window's worth at once is
fine, one more is not).
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Protocol

from iothub.base.clock import Clock
from iothub.engine.buckets import Meter
from iothub_services.quota.grammar import Window
from iothub_services.quota.names import Kind, Quota, Scope
from iothub_services.quota.port import QuotaObserver
from iothub_services.quota.resolve import EffectiveLimits
from iothub_services.quota.usage import Usage
from iothub_services.quota.windows import REFUSED, DayCounter

REFUSING = frozenset({Quota.CONNECTS, Quota.SUBSCRIBES, Quota.API_REQUESTS})
"""Rates above which somebody is refused at once; the others hold back."""

IDLE_DEVICES = 1_000  # per tenant: what a device has spent is remembered over its reconnects
_SLOTS = 50


class MeterLike(Protocol):
    """The engine's `Meter`, or what stands before one."""

    def take(self, units: int, now: float) -> float: ...

    def wait(self, units: int, now: float) -> float: ...

    def spend(self, units: int) -> None: ...


class SlidingWindow:
    """At most `limit` units in any `seconds`, and at least 98 % of it under constant demand.

    Units are kept in slots of a fiftieth of the window; one counts until its last moment is too old.
    """

    __slots__ = ("_slot_s", "_spent", "_total", "limit", "seconds")

    def __init__(self, limit: int, seconds: int) -> None:
        self.limit = limit
        self.seconds = seconds
        self._slot_s = seconds / _SLOTS
        self._spent: deque[tuple[int, int]] = deque()  # (slot, units), at most _SLOTS + 1
        self._total = 0

    def wait(self, units: int, now: float) -> float:
        """Return 0.0 if `units` may pass now, else the seconds until something is free again."""
        self._forget(now)
        if self._total + units <= self.limit:
            return 0.0
        return (self._spent[0][0] + _SLOTS + 1) * self._slot_s - now if self._spent else float(self.seconds)

    def spend(self, units: int, now: float) -> None:
        """Count units that `wait` let pass at the same time."""
        slot = int(now / self._slot_s)
        if self._spent and self._spent[-1][0] == slot:
            units_before = self._spent.pop()[1]
            self._spent.append((slot, units_before + units))
        else:
            self._spent.append((slot, units))
        self._total += units

    def let_pass(self, limit: int) -> None:
        """Apply another limit; what is spent stays spent."""
        self.limit = limit

    def spent(self, now: float) -> int:
        """Return what still counts."""
        self._forget(now)
        return self._total

    def is_idle(self, now: float) -> bool:
        """Whether everything that was spent is forgotten."""
        self._forget(now)
        return not self._spent

    def _forget(self, now: float) -> None:
        oldest = int(now / self._slot_s) - _SLOTS
        while self._spent and self._spent[0][0] < oldest:
            self._total -= self._spent.popleft()[1]


class SlidingWindows:
    """Several sliding windows on one name: a unit passes when all of them let it pass."""

    __slots__ = ("_windows",)

    def __init__(self, windows: list[tuple[int, int]]) -> None:
        self._windows: dict[int, SlidingWindow] = {}
        self.set_windows(windows)

    def set_windows(self, windows: list[tuple[int, int]]) -> None:
        """Change the limits; what is spent stays spent."""
        known = self._windows
        self._windows = {}
        for limit, seconds in windows:
            window = self._windows[seconds] = known.get(seconds) or SlidingWindow(limit, seconds)
            window.limit = limit

    @property
    def windows(self) -> Collection[SlidingWindow]:
        return self._windows.values()

    def take(self, units: int, now: float) -> float:
        """Take units from all windows and return 0.0; or take nothing and return the seconds until it is worth a try."""
        wait = self.wait(units, now)
        if wait == 0.0:
            for window in self._windows.values():
                window.spend(units, now)
        return wait

    def wait(self, units: int, now: float) -> float:
        """Return what `take` would, and take nothing."""
        return max(window.wait(units, now) for window in self._windows.values())

    def is_idle(self, now: float) -> bool:
        return all(window.is_idle(now) for window in self._windows.values())


class Rate:
    """Every window of one name in one object, where the engine takes a single meter."""

    __slots__ = ("_day", "_meter")

    def __init__(self, meter: MeterLike, day: DayCounter) -> None:
        self._meter = meter
        self._day = day

    def take(self, units: int, now: float) -> float:
        """0.0: taken; > 0: seconds to wait, nothing taken; -1.0: refused until the calendar window ends."""
        wait: float = self._meter.wait(units, now)
        if wait == 0.0:
            wait = self._day.take(units)
        if wait == 0.0:
            self._meter.spend(units)
        return wait


class DryRunRate:
    """A rate with dry-run windows: what passes is counted in them, and `on_trial` is called when they would have rejected something."""

    __slots__ = ("_enforced", "_on_refusal", "_trial")

    def __init__(
        self, enforced: MeterLike | DayCounter | Rate | None, trial: Meter, on_refusal: Callable[[], None]
    ) -> None:
        self._enforced = enforced
        self._trial = trial
        self._on_refusal = on_refusal

    def take(self, units: int, now: float) -> float:
        """As the enforced rate says; 0.0 if there is none."""
        wait: float = 0.0 if self._enforced is None else self._enforced.take(units, now)
        if wait == 0.0 and self._trial.take(units, now) != 0.0:
            self._on_refusal()
        return wait


class Rates:
    """The rates of a tenant, or of one device (`subject`); must be used on one thread.

    Meters and counters are the same objects as long as their name has a limit of their kind: what is spent stays spent when
    limits change. After `set_limits` the engine must be given them anew: one may have come or gone.
    """

    def __init__(self, tenant_id: int, subject: str, usage: Usage, clock: Clock, observer: QuotaObserver) -> None:
        self._owner = (tenant_id, subject)
        self._usage = usage
        self._clock = clock
        self._observer = observer
        self._meters: dict[Quota, Meter] = {}
        self._sliding: dict[Quota, SlidingWindows] = {}
        self._days: dict[Quota, DayCounter] = {}
        self._watched: Mapping[Quota, MeterLike] = {}
        self._trials: dict[Quota, Meter] = {}
        self._sliding_trials: dict[Quota, SlidingWindows] = {}

    def set_limits(self, limits: EffectiveLimits) -> None:
        """Apply other limits from now on, without watchers (`watch`)."""
        self._watched = {}
        now = self._clock.monotonic()
        for quota in Quota:
            if quota.kind is not Kind.RATE:
                continue
            enforced = limits.rates.get(quota, ())
            on_trial = limits.dry_run.get(quota, ())
            if quota in REFUSING:
                _set_sliding(self._sliding, quota, enforced)
                _set_sliding(self._sliding_trials, quota, on_trial)
            else:
                _set_meter(self._meters, quota, enforced, now)
                _set_meter(self._trials, quota, on_trial, now)
            self._set_days(quota, (*enforced, *on_trial))

    @property
    def meters(self) -> Mapping[Quota, Meter]:
        """The meters of enforced limits, without dry-run windows."""
        return self._meters

    @property
    def sliding(self) -> Mapping[Quota, SlidingWindows]:
        """The enforced windows above which a request is refused at once."""
        return self._sliding

    def watch(self, watched: Mapping[Quota, MeterLike]) -> None:
        """Have these asked in the place of the meters of the same names."""
        self._watched = watched

    def _enforced(self, quota: Quota) -> MeterLike | None:
        return self._watched.get(quota) or self._meters.get(quota)

    def meter(self, quota: Quota) -> MeterLike | DryRunRate | None:
        """Return the windows below an hour that hold back; None: no limit."""
        enforced = self._enforced(quota)
        return self._dry_run(quota, enforced) or enforced

    def day(self, quota: Quota) -> DayCounter | None:
        """Return the windows of an hour and more; None: no limit."""
        return self._days.get(quota)

    def rate(self, quota: Quota) -> MeterLike | DayCounter | Rate | DryRunRate | None:
        """Return all windows that hold back or refuse as one `take`; None: no limit."""
        meter, day = self._enforced(quota), self.day(quota)
        enforced = Rate(meter, day) if meter is not None and day is not None else meter or day
        return self._dry_run(quota, enforced) or enforced

    def _dry_run(self, quota: Quota, enforced: MeterLike | DayCounter | Rate | None) -> DryRunRate | None:
        trial = self._trials.get(quota)
        if trial is None:
            return None
        return DryRunRate(enforced, trial, lambda: self._observer.would_refuse(self._owner[0], quota))

    def take(self, quota: Quota, units: int = 1) -> float:
        """Take units of a `REFUSING` rate: 0.0, or > 0: refused for that many seconds, or -1.0: refused until the window ends."""
        sliding, day, trial = self._sliding.get(quota), self._days.get(quota), self._sliding_trials.get(quota)
        if sliding is None and day is None and trial is None:
            return 0.0
        now = self._clock.monotonic()
        refused = 0.0 if sliding is None else sliding.take(units, now)
        if refused == 0.0 and day is not None:
            refused = day.take(units)
        if refused != 0.0:
            self._observer.refused(self._owner[0], quota)
            return refused
        if trial is not None and trial.take(units, now) != 0.0:
            self._observer.would_refuse(self._owner[0], quota)
        return 0.0

    def wait(self, quota: Quota, units: int = 1) -> float:
        """Return what taking units of a rate would, and take nothing: 0.0, seconds to wait, or -1.0 until the window ends."""
        windows = self._sliding.get(quota) or self._enforced(quota)
        wait = 0.0 if windows is None else windows.wait(units, self._clock.monotonic())
        left = None if (day := self._days.get(quota)) is None else day.left()
        return REFUSED if wait == 0.0 and left is not None and units > left else wait

    @property
    def is_idle(self) -> bool:
        """Whether new ones would let no more pass than these. Calendar windows are not asked: `usage` remembers them."""
        now = self._clock.monotonic()
        return (
            all(_is_idle(meter, now) for meter in self._meters.values())
            and all(windows.is_idle(now) for windows in self._sliding.values())
            and all(_is_idle(meter, now) for meter in self._trials.values())
            and all(windows.is_idle(now) for windows in self._sliding_trials.values())
        )

    def _set_days(self, quota: Quota, windows: tuple[Window, ...]) -> None:
        if not any(window.is_durable for window in windows):
            self._days.pop(quota, None)
        elif quota in self._days:
            self._days[quota].set_windows(windows)
        else:
            tenant_id = self._owner[0]
            self._days[quota] = DayCounter(
                self._usage,
                self._clock,
                self._owner,
                quota,
                windows,
                lambda: self._observer.would_refuse(tenant_id, quota),
            )


class RateRegistry:
    """The rates of a tenant and of its devices. All sessions of a device share its rates, also one after the other."""

    def __init__(self, tenant_id: int, usage: Usage, clock: Clock, observer: QuotaObserver) -> None:
        self._new: Callable[[str], Rates] = lambda subject: Rates(tenant_id, subject, usage, clock, observer)
        self.tenant = self._new("")
        self._devices: dict[str, tuple[Rates, int]] = {}  # with the number of its sessions
        self._idle: OrderedDict[str, Rates] = OrderedDict()
        self._seen = self._seen_own = EffectiveLimits()  # nearly all devices of a tenant have the same object

    def join(self, device: str, limits: EffectiveLimits) -> Rates | None:
        """A session of the device begins, or its limits have changed (after `leave`): return the device's rates, if it has any."""
        known, sessions = self._devices.get(device, (None, 0))
        if limits is not self._seen:
            self._seen, self._seen_own = limits, _of_device(limits)
        own = self._seen_own
        if known is None and not own.rates and not own.dry_run:
            return None  # nothing to keep for most devices
        rates = known or self._idle.pop(device, None) or self._new(device)
        self._devices[device] = (rates, sessions + 1)
        rates.set_limits(own)
        return rates

    def leave(self, device: str) -> None:
        """A session that was given rates has ended."""
        rates, sessions = self._devices.pop(device, (None, 0))
        if rates is None:
            return
        if sessions > 1:
            self._devices[device] = (rates, sessions - 1)
            return
        self._idle[device] = rates
        while len(self._idle) > IDLE_DEVICES:
            self._idle.popitem(last=False)

    def of_device(self, device: str) -> Rates | None:
        """Return the rates that a device has spent of; None: nothing of it is remembered."""
        return self._devices.get(device, (None, 0))[0] or self._idle.get(device)

    def forget(self, device: str) -> None:
        """The device was deleted: what it has spent is not remembered for another one of its name."""
        self._idle.pop(device, None)

    @property
    def is_idle(self) -> bool:
        """Whether these rates may be dropped: no session uses them, and new ones would let no more pass."""
        return not self._devices and self.tenant.is_idle and all(rates.is_idle for rates in self._idle.values())


def _of_device(limits: EffectiveLimits) -> EffectiveLimits:
    """Only what is counted per device: the tenant's own names are metered once, for all."""
    return EffectiveLimits(
        rates={quota: windows for quota, windows in limits.rates.items() if quota.scope is Scope.DEVICE},
        dry_run={quota: windows for quota, windows in limits.dry_run.items() if quota.scope is Scope.DEVICE},
    )


def _short(windows: Iterable[Window]) -> list[tuple[int, int]]:
    return [(window.limit, window.seconds) for window in windows if not window.is_durable and window.limit is not None]


def _set_meter(meters: dict[Quota, Meter], quota: Quota, windows: Iterable[Window], now: float) -> None:
    short: list[tuple[int, float]] = [(limit, float(seconds)) for limit, seconds in _short(windows)]
    if not short:
        meters.pop(quota, None)
    elif quota in meters:
        meters[quota].set_windows(short, now)
    else:
        meters[quota] = Meter(short, now)


def _is_idle(meter: Meter, now: float) -> bool:
    """Whether as much may pass at once as through a new meter: every window is asked for its whole limit."""
    return meter.wait(max(window.limit for window in (*meter.buckets, *meter.budgets)), now) == 0.0


def _set_sliding(known: dict[Quota, SlidingWindows], quota: Quota, windows: Iterable[Window]) -> None:
    short = _short(windows)
    if not short:
        known.pop(quota, None)
    elif quota in known:
        known[quota].set_windows(short)
    else:
        known[quota] = SlidingWindows(short)
