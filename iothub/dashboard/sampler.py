"""The one sampler of a process: reads the hub's metrics through REST, and keeps what the charts show.

Knows no page and no browser: however many look, the hub is asked once.
"""

from __future__ import annotations

import asyncio
import time
from array import array
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from iothub.base import log as logging
from iothub.dashboard import exposition
from iothub.dashboard.api import Api, RefusalError
from iothub.dashboard.exposition import Samples, by_label, total

if TYPE_CHECKING:
    from starlette.types import ASGIApp

EVERY_S = 5.0
KEPT = 720  # an hour
TENANTS_EVERY_S = 30.0
TENANTS_KEPT = 120  # an hour
TENANTS_AT_ONCE = 200  # of a page: more of them would exceed metrics.tenant_series_max
TENANTS_MOST = 20_000
FIELDS = ("connections", "received", "delivered", "dropped", "bytes_in", "bytes_out", "queued")
_COUNTERS = frozenset(FIELDS[1:6])
NEAR = 0.8  # of a limit

log = logging.get(__name__)
Point = dict[str, float | None]


@dataclass(frozen=True, slots=True)
class Usage:
    """How far a tenant is in one of its limits."""

    tenant: str
    quota: str
    used: float
    limit: float

    @property
    def share(self) -> float:
        return self.used / self.limit if self.limit else 0.0


@dataclass(slots=True)
class TenantSample:
    """One look at all tenants: `values` has FIELDS of each, in the order of `places`; counters as they were read."""

    at_s: float
    places: dict[str, int]
    values: array[float]

    def of(self, tenant: str) -> Sequence[float] | None:
        place = self.places.get(tenant)
        return None if place is None else self.values[place * len(FIELDS) : (place + 1) * len(FIELDS)]


@dataclass(slots=True)
class _Reading:
    at_s: float
    samples: Samples = field(repr=False)


class Sampler:
    """Samples of the hub every few seconds, and of its tenants every half minute; both for an hour.

    Invariant: used by the event loop alone; `points` and `tenants` are in the order of time.
    """

    def __init__(self, rest: ASGIApp, clock: Callable[[], float] = time.time) -> None:
        self._api = Api(rest, "", ("127.0.0.1", 0), "http://dashboard")
        self._clock = clock
        self._before: _Reading | None = None
        self.points: deque[tuple[float, Point]] = deque(maxlen=KEPT)
        self.tenants: deque[TenantSample] = deque(maxlen=TENANTS_KEPT)
        self.usages: dict[str, list[Usage]] = {}
        self.problem = "The first sample comes in a few seconds."

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        tasks = [
            asyncio.create_task(self._repeat(self.sample, EVERY_S)),
            asyncio.create_task(self._repeat(self.sample_tenants, TENANTS_EVERY_S)),
        ]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
                with suppress(asyncio.CancelledError):
                    await task

    async def _repeat(self, sample: Callable[[], object], every_s: float) -> None:
        while True:
            try:
                await sample()  # type: ignore[misc]  # both are coroutine functions
            except RefusalError as refusal:  # no hub runs, or it has no HTTP port: the charts have a gap
                self.problem = refusal.detail
                self._before = None
            except Exception as error:  # the edge of a loop of its own
                log.error("sampling failed, will retry", exc_info=error)
            await asyncio.sleep(every_s)

    async def sample(self) -> None:
        """Read the hub's metrics once. Raises RefusalError."""
        text = await self._api.text("/metrics")
        now = _Reading(self._clock(), await asyncio.to_thread(exposition.read, text))
        self.points.append(
            (now.at_s, point(now.samples, self._before.samples if self._before else None, self._since(now)))
        )
        self._before = now
        self.problem = ""

    def _since(self, now: _Reading) -> float:
        return max(now.at_s - self._before.at_s, 0.001) if self._before else 0.0

    async def sample_tenants(self) -> None:
        """Read the metrics of all tenants once, some at a time. Raises RefusalError."""
        places: dict[str, int] = {}
        values = array("d")
        usages: dict[str, list[Usage]] = {}
        after = ""
        while len(places) < TENANTS_MOST:
            text = await self._api.text("/metrics/tenants", limit=TENANTS_AT_ONCE, after=after)
            found = await asyncio.to_thread(_tenants, text)
            for tenant, (numbers, limits) in found.items():
                places[tenant] = len(places)
                values.extend(numbers)
                if limits:
                    usages[tenant] = limits
            if len(found) < TENANTS_AT_ONCE:
                break
            after = max(found)
        if self.tenants and self.tenants[-1].places == places:
            places = self.tenants[-1].places  # one index for all samples of the same tenants
        self.tenants.append(TenantSample(self._clock(), places, values))
        self.usages = usages

    # --- what pages ask

    @property
    def last(self) -> Point:
        """The newest figures of the hub; empty: there are none yet."""
        return self.points[-1][1] if self.points and not self.problem else {}

    def drop_reasons(self) -> list[str]:
        """Why messages were dropped within the hour, the most frequent first."""
        sums: dict[str, float] = {}
        for _, values in self.points:
            for name, value in values.items():
                if name.startswith("dropped:") and value:
                    sums[name] = sums.get(name, 0.0) + value
        return [name.partition(":")[2] for name in sorted(sums, key=lambda name: -sums[name])]

    def rates(self, tenant: str) -> list[tuple[float, Point]]:
        """Return what a tenant did within the hour: gauges as they are, counters per second."""
        made = []
        before: TenantSample | None = None
        for sample in self.tenants:
            found = _rates(tenant, sample, before)
            if found is not None:
                made.append((sample.at_s, found))
            before = sample
        return made

    def latest(self, tenant: str) -> Point:
        """Return what a tenant did between the last two samples; empty: it is in neither."""
        if not self.tenants:
            return {}
        return _rates(tenant, self.tenants[-1], self.tenants[-2] if len(self.tenants) > 1 else None) or {}

    def top(self, name: str, count: int = 10) -> list[tuple[str, float]]:
        """Return the tenants with the most of one of FIELDS between the last two samples, above zero."""
        if not self.tenants:
            return []
        found = [(tenant, self.latest(tenant).get(name) or 0.0) for tenant in self.tenants[-1].places]
        return sorted((each for each in found if each[1] > 0), key=lambda each: (-each[1], each[0]))[:count]

    def near_limits(self, count: int = 10) -> list[Usage]:
        """Return where tenants have used most of a limit."""
        found = [usage for each in self.usages.values() for usage in each if usage.share >= NEAR]
        return sorted(found, key=lambda usage: (-usage.share, usage.tenant, usage.quota))[:count]


def point(now: Samples, before: Samples | None, since_s: float) -> Point:
    """Make the figures of one moment; rates and quantiles need the reading before."""
    made: Point = {
        "connections": total(now, "iothub_connections"),
        "sessions": total(now, "iothub_sessions"),
        "offline": total(now, "iothub_sessions", state="offline"),
        "subscriptions": total(now, "iothub_subscriptions"),
        "retained": total(now, "iothub_retained_messages"),
        "queued": total(now, "iothub_queued_messages"),
        "queued_bytes": total(now, "iothub_queued_bytes"),
        "memory": total(now, "process_resident_memory_bytes"),
        "descriptors": total(now, "iothub_file_descriptors"),
        "overload": total(now, "iothub_overload_level"),
        "started": total(now, "iothub_start_time_seconds"),
    }
    if before is None:
        return made
    for name, metric in _RATES.items():
        made[name] = _grown(total(now, metric), total(before, metric)) / since_s
    dropped_before = by_label(before, _DROPPED, "reason")
    for reason, value in by_label(now, _DROPPED, "reason").items():
        made[f"dropped:{reason}"] = _grown(value, dropped_before.get(reason, 0.0)) / since_s
    for name, metric in _TIMES.items():
        new, old = exposition.buckets(now, metric), exposition.buckets(before, metric)
        made[f"{name}_p50"] = exposition.quantile(0.5, new, old)
        made[f"{name}_p99"] = exposition.quantile(0.99, new, old)
    return made


_DROPPED = "iothub_messages_dropped_total"
_RATES = {
    "connects": "iothub_connects_total",
    "disconnects": "iothub_disconnects_total",
    "received": "iothub_messages_received_total",
    "delivered": "iothub_messages_delivered_total",
    "dropped": _DROPPED,
    "bytes_in": "iothub_bytes_received_total",
    "bytes_out": "iothub_bytes_sent_total",
    "cpu": "process_cpu_seconds_total",
    "rejections": "iothub_quota_rejections_total",
}
_TIMES = {"commit": "iothub_store_commit_duration_seconds", "tick": "iothub_reactor_tick_duration_seconds"}
_OF_TENANTS = {
    "iothub_tenant_connections": 0,
    "iothub_tenant_messages_received_total": 1,
    "iothub_tenant_messages_delivered_total": 2,
    "iothub_tenant_messages_dropped_total": 3,
    "iothub_tenant_bytes_received_total": 4,
    "iothub_tenant_bytes_sent_total": 5,
    "iothub_tenant_queued_messages": 6,
}


def _grown(now: float, before: float) -> float:
    """Return by how much a counter rose; one that fell has begun again."""
    return now - before if now >= before else now


def _tenants(text: str) -> dict[str, tuple[list[float], list[Usage]]]:
    """Read a page of /metrics/tenants: FIELDS and limits of each tenant."""
    samples = exposition.read(text)
    found: dict[str, tuple[list[float], list[Usage]]] = {}
    for metric, place in _OF_TENANTS.items():
        for labels, value in samples.get(metric, ()):
            numbers, _ = found.setdefault(labels["tenant"], ([0.0] * len(FIELDS), []))
            numbers[place] += value
    limits = {(each["tenant"], each["quota"]): value for each, value in samples.get("iothub_tenant_quota_limit", ())}
    for labels, used in samples.get("iothub_tenant_quota_used", ()):
        limit = limits.get((labels["tenant"], labels["quota"]))
        if limit and labels["tenant"] in found:
            found[labels["tenant"]][1].append(Usage(labels["tenant"], labels["quota"], used, limit))
    return found


def _rates(tenant: str, sample: TenantSample, before: TenantSample | None) -> Point | None:
    now = sample.of(tenant)
    if now is None:
        return None
    old = before.of(tenant) if before else None
    since_s = sample.at_s - before.at_s if before else 0.0
    made: Point = {}
    for place, name in enumerate(FIELDS):
        if name not in _COUNTERS:
            made[name] = now[place]
        else:
            made[name] = _grown(now[place], old[place]) / since_s if old is not None and since_s > 0 else None
    return made
