"""What the client of Redis does, as metrics.

Knows no link's inside. Fed only in a hub that has something on Redis.
"""

from __future__ import annotations

from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry
from iothub_services.redis.client import RedisClient


class RegistryMeter:
    """Counts calls and times pipelines; fulfils `Meter`. On the reactor thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._calls = registry.tally(metrics.REDIS_CALLS)
        self._duration = registry.timing(metrics.REDIS_PIPELINE_DURATION)
        self._pipelines = 0
        registry.feed(metrics.REDIS_PIPELINES, lambda: self._pipelines)

    def done(self, calls: int, refused: int, seconds: float, *, is_lost: bool) -> None:
        """Count a pipeline that is done."""
        self._pipelines += 1
        self._duration.observe(seconds)
        self._calls.add("answered", amount=calls - refused)
        self._calls.add("lost" if is_lost else "refused", amount=refused)

    def bypassed(self, calls: int) -> None:
        """Count calls that failed at once."""
        self._calls.add("bypassed", amount=calls)

    def watch(self, client: RedisClient) -> None:
        """Register the metrics of the client's state."""
        self._registry.feed(metrics.REDIS_UP, lambda: int(not client.is_degraded))
        self._registry.feed(metrics.REDIS_WAITING, lambda: client.waiting)
