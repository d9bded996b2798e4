"""The whole hub's figures as Mosquitto names them below `$SYS/broker`, for the operator's tenant.

Knows no topic's subscriber: `iothub_tenants.broker.sys_topics` publishes them. They are made of the metrics, so with workers they are the whole
hub's; each machine of a cluster has its own.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable, Mapping

from iothub.base.clock import Clock
from iothub_services.metrics import metrics
from iothub_services.metrics.merging import Figures
from iothub_services.metrics.metrics import Metric

MINUTES = (1, 5, 15)
_DROPPED_BEFORE_QUEUES = frozenset({"no_subscribers"})  # nobody has lost anything

AllFigures = Callable[[], Awaitable[Figures]]
Named = Mapping[str, str]

_LOADS = {
    "messages/received": "messages/received",
    "messages/sent": "messages/sent",
    "publish/received": "publish/messages/received",
    "publish/sent": "publish/messages/sent",
    "publish/dropped": "publish/messages/dropped",
    "bytes/received": "bytes/received",
    "bytes/sent": "bytes/sent",
}
"""Each load, and the counter whose rise it is."""


class BrokerFigures:
    """On the reactor thread. `named`: the figures of the last `refresh`, by the rest of their Topic Name; empty before the first one."""

    def __init__(self, figures: AllFigures, resident_bytes: Callable[[], int], version: str, clock: Clock) -> None:
        self._figures = figures
        self._resident_bytes = resident_bytes
        self._clock = clock
        self._started_s = clock.monotonic()
        self._version = version
        self._loads: dict[str, float] = {}
        self._before: Mapping[str, float] | None = None
        self._before_s = 0.0
        self._most_clients = 0
        self._most_bytes = 0
        self.named: Named = {}

    async def refresh(self) -> None:
        """Read the figures of the hub, with all its workers."""
        counted = _counted(await self._figures())
        now_s = self._clock.monotonic()
        self._average(counted, now_s)
        self._before, self._before_s = counted, now_s
        connected, resident = int(counted["clients/connected"]), self._resident_bytes()
        self._most_clients, self._most_bytes = max(self._most_clients, connected), max(self._most_bytes, resident)
        self.named = {
            **{name: str(int(value)) for name, value in counted.items() if name not in _FOR_LOADS},
            "clients/maximum": str(self._most_clients),
            "heap/current": str(resident),
            "heap/maximum": str(self._most_bytes),
            "uptime": f"{int(now_s - self._started_s)} seconds",
            "version": f"iothub version {self._version}",
            **{name: f"{value:.2f}" for name, value in self._loads.items()},
        }

    def _average(self, counted: Mapping[str, float], now_s: float) -> None:
        """Keep each counter's rise for a minute as an exponential average over 1, 5 and 15 minutes, as Mosquitto does."""
        before, passed_s = self._before, now_s - self._before_s
        for load, counter in {**_LOADS, "sockets": "sockets", "connections": "connections"}.items():
            risen = 0.0 if before is None else max(counted[counter] - before[counter], 0.0)
            a_minute = risen * 60 / passed_s if before is not None and passed_s > 0 else 0.0
            for minutes in MINUTES:
                name = f"load/{load}/{minutes}min"
                kept = math.exp(-passed_s / (60.0 * minutes)) if before is not None else 0.0
                self._loads[name] = a_minute + kept * (self._loads.get(name, 0.0) - a_minute)


_FOR_LOADS = frozenset({"sockets", "connections"})


def _counted(figures: Figures) -> dict[str, float]:
    connected, offline = _sum(figures, metrics.SESSIONS, "connected"), _sum(figures, metrics.SESSIONS, "offline")
    queued, retained = _sum(figures, metrics.QUEUED_MESSAGES), _sum(figures, metrics.RETAINED_MESSAGES)
    dropped = _sum(figures, metrics.MESSAGES_DROPPED) - sum(
        _sum(figures, metrics.MESSAGES_DROPPED, reason) for reason in _DROPPED_BEFORE_QUEUES
    )
    return {
        "clients/total": connected + offline,
        "clients/connected": connected,
        "clients/active": connected,
        "clients/disconnected": offline,
        "clients/inactive": offline,
        "clients/expired": _sum(figures, metrics.SESSION_EVENTS, "expired"),
        "messages/received": _sum(figures, metrics.PACKETS_RECEIVED),
        "messages/sent": _sum(figures, metrics.PACKETS_SENT),
        "messages/stored": queued + retained,
        "store/messages/count": queued + retained,
        "store/messages/bytes": _sum(figures, metrics.QUEUED_BYTES) + _sum(figures, metrics.RETAINED_BYTES),
        "publish/messages/received": _sum(figures, metrics.MESSAGES_RECEIVED),
        "publish/messages/sent": _sum(figures, metrics.MESSAGES_DELIVERED),
        "publish/messages/dropped": dropped,
        "bytes/received": _sum(figures, metrics.BYTES_RECEIVED),
        "bytes/sent": _sum(figures, metrics.BYTES_SENT),
        "subscriptions/count": _sum(figures, metrics.SUBSCRIPTIONS, "plain"),
        "shared_subscriptions/count": _sum(figures, metrics.SUBSCRIPTIONS, "shared"),
        "retained messages/count": retained,
        "sockets": _sum(figures, metrics.CONNECTS) + _sum(figures, metrics.ACCEPTS_REFUSED),
        "connections": _sum(figures, metrics.CONNECTS),
    }


def _sum(figures: Figures, metric: Metric, *labels: str) -> float:
    """Add up a metric's series; with a label those that have it."""
    series = figures.get(metric, {})
    found = (value for key, value in series.items() if set(labels) <= set(key))
    return float(sum(value for value in found if isinstance(value, int | float)))
