"""What the client of HBase does, as metrics.

Knows no lane's inside. Fed only in a hub that has a store on HBase.
"""

from __future__ import annotations

from iothub_services.hbase.client import HBaseClient
from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry, Timing


class RegistryMeter:
    """Counts and times every call that was sent; fulfils `Meter`. On the reactor thread."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._requests = registry.tally(metrics.HBASE_REQUESTS)
        self._timings: dict[str, Timing] = {}

    def sent(self, verb: str, result: str, seconds: float) -> None:
        """Hear of a call that has its outcome."""
        self._requests.add(verb, result)
        if verb not in self._timings:
            self._timings[verb] = self._registry.timing(metrics.HBASE_REQUEST_DURATION, verb)
        self._timings[verb].observe(seconds)

    def watch(self, client: HBaseClient) -> None:
        """Show how a client's connections are."""

        def connections() -> dict[str, int]:
            up = sum(lane.is_up for lane in client.lanes)
            return {"up": up, "down": len(client.lanes) - up}

        self._registry.feed(metrics.HBASE_CONNECTIONS, connections)
        self._registry.feed(metrics.HBASE_GATEWAY_UP, lambda: client.gateways.are_up)
        self._registry.feed(metrics.HBASE_IN_FLIGHT, lambda: sum(lane.in_flight for lane in client.lanes))
