"""What the client does shows on /metrics."""

from __future__ import annotations

from iothub_services.metrics.exposition import Registry
from iothub_services.redis.client import RedisClient
from iothub_services.redis.metering import RegistryMeter


def test_calls_and_pipelines_are_shown(client: RedisClient) -> None:
    """By outcome; whether it is up; what waits."""
    registry = Registry()
    meter = RegistryMeter(registry)
    meter.watch(client)
    meter.done(10, 1, 0.002, is_lost=False)
    meter.done(3, 3, 1.0, is_lost=True)
    meter.bypassed(7)
    client.trouble = "Timeout"

    page = registry.render().decode()

    for result, count in (("answered", 9), ("refused", 1), ("lost", 3), ("bypassed", 7)):
        assert f'iothub_redis_calls_total{{result="{result}"}} {count}' in page
    assert "iothub_redis_pipelines_total 2" in page
    assert "iothub_redis_pipeline_duration_seconds_count 2" in page
    assert "iothub_redis_up 0" in page
    assert "iothub_redis_waiting_calls 0" in page
