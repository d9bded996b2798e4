"""The section `[hbase]` as a client, a caller or a table administration; what a hub's client does is shown on /metrics.

Knows no object of a running hub.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.sections import HBase
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.connection import OnOutcome
from iothub_services.hbase.table_admin import TableAdmin
from iothub_services.hbase.wire import Bounds, Reactor
from iothub_services.metrics import metrics
from iothub_services.metrics.exposition import Registry, Timing


def client(settings: HBase, reactor: Reactor, registry: Registry) -> HBaseClient:
    """Return the client of a running hub, not opened yet. Raises ConfigError when no gateway is set."""
    gateways = _gateways(settings)
    made = HBaseClient(
        reactor,
        gateways,
        connections=settings.connections * len(gateways),
        bounds=_bounds(settings),
        on_outcome=_counted(registry),
    )

    def connections() -> dict[str, int]:
        up = sum(each.is_up for each in made.connections)
        return {"up": up, "down": len(made.connections) - up}

    registry.feed(metrics.HBASE_CONNECTIONS, connections)
    registry.feed(metrics.HBASE_GATEWAY_UP, lambda: made.gateways.are_up)
    registry.feed(metrics.HBASE_IN_FLIGHT, lambda: sum(each.in_flight for each in made.connections))
    return made


def _counted(registry: Registry) -> OnOutcome:
    """Count and time every call that was sent."""
    requests = registry.tally(metrics.HBASE_REQUESTS)
    timings: dict[str, Timing] = {}

    def count(verb: str, result: str, seconds: float) -> None:
        requests.add(verb, result)
        if verb not in timings:
            timings[verb] = registry.timing(metrics.HBASE_REQUEST_DURATION, verb)
        timings[verb].observe(seconds)

    return count


def direct_caller(settings: HBase) -> DirectCaller:
    """Return the caller of a tool. Raises ConfigError when no gateway is set."""
    return DirectCaller(_gateways(settings), _bounds(settings))


def table_admin(settings: HBase) -> TableAdmin:
    return TableAdmin(settings.admin_program or "hbase")


def _gateways(settings: HBase) -> Sequence[Endpoint]:
    if not settings.thrift:
        raise ConfigError('no HBase is configured: set hbase.thrift to its Thrift gateways, such as ["127.0.0.1:9090"]')
    return settings.thrift


def _bounds(settings: HBase) -> Bounds:
    return Bounds(
        in_flight=settings.in_flight,
        in_flight_bytes=settings.in_flight_bytes,
        frame_bytes=settings.frame_limit,
        timeout_s=settings.timeout_s,
    )
