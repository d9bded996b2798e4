"""The section `[hbase]` as the values that this room takes.

Knows no object of a running hub.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import ConfigError
from iothub.base.units import Endpoint
from iothub.config.sections import HBase
from iothub_services.hbase.administration import TableAdmin
from iothub_services.hbase.client import HBaseClient
from iothub_services.hbase.direct import DirectCaller
from iothub_services.hbase.pending_calls import Bounds, Meter
from iothub_services.hbase.wire import Reactor


def gateways(settings: HBase) -> Sequence[Endpoint]:
    """Return where the gateways listen. Raises ConfigError when none is set."""
    if not settings.thrift:
        raise ConfigError('no HBase is configured: set hbase.thrift to its Thrift gateways, such as ["127.0.0.1:9090"]')
    return settings.thrift


def bounds(settings: HBase) -> Bounds:
    return Bounds(
        in_flight=settings.in_flight,
        in_flight_bytes=settings.in_flight_bytes,
        frame_bytes=settings.frame_limit,
        timeout_s=settings.timeout_s,
    )


def client(settings: HBase, reactor: Reactor, meter: Meter | None = None) -> HBaseClient:
    """Return the client of a running hub, not opened yet."""
    found = gateways(settings)
    return HBaseClient(reactor, found, lanes_each=settings.connections, bounds=bounds(settings), meter=meter)


def direct_caller(settings: HBase) -> DirectCaller:
    """Return the caller of a tool."""
    return DirectCaller(gateways(settings), bounds(settings))


def table_admin(settings: HBase) -> TableAdmin:
    return TableAdmin(settings.admin_program or "hbase")
