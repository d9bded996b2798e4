"""Tables of a test's own on the real HBase, several together as a queue driver needs them, calls to them, and what is done to their regions.

Knows layouts by name; knows no driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from iothub.base.units import Endpoint
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.table_admin import TableAdmin
from iothub_services.hbase.tables import TableLayout, Tables, layouts
from iothub_services.hbase.wire import Bounds
from ops.services.places import HOST
from ops.services.services import Services
from tests.support.hbase import table_calls

_REGION_ADMIN = "iothub.hbase.admin.RegionAdmin"
_DROP_S = 30.0  # HBase may have come back a moment ago
_DROPPED_AT_ONCE = 6


def caller_of(services: Services, port: int | None = None, timeout_s: float = Bounds().timeout_s) -> DirectCaller:
    """Return a connection to the gateway, for one thread."""
    return DirectCaller([Endpoint(HOST, port or services.ports.thrift)], Bounds(timeout_s=timeout_s))


@contextmanager
def made_tables(services: Services, wanted: Sequence[TableLayout]) -> Iterator[None]:
    """Make these tables; they are gone afterwards."""
    TableAdmin(services.places.folder / "hbase-java").create(wanted)
    try:
        yield
    finally:
        try:
            services.up("hbase")
        finally:  # it may not have answered because of one of them
            drop_tables(services, [layout.name.encode() for layout in wanted])


@contextmanager
def own_tables(services: Services, regions: int, *names: str) -> Iterator[Tables]:
    """Make these tables in a namespace of their own; they are gone afterwards."""
    tables = Tables(f"t{uuid.uuid4().hex}")
    wanted = [each for each in layouts(tables.namespace, regions) if each.name.partition(":")[2] in names]
    assert len(wanted) == len(names)
    with made_tables(services, wanted):
        yield tables


def drop_tables(services: Services, names: Sequence[bytes]) -> None:
    """Several at once: each waits a second for the master, and does nothing meanwhile."""
    with ThreadPoolExecutor(_DROPPED_AT_ONCE) as pool:
        list(pool.map(lambda name: _drop(services, name), names))


def _drop(services: Services, name: bytes) -> None:
    with caller_of(services, timeout_s=_DROP_S) as caller:
        caller.call(table_calls.disable_table(name))
        caller.call(table_calls.delete_table(name))


def reopen_regions(services: Services, table: bytes, times: int) -> None:
    """Close and open each region, round after round."""
    assert services.java("hbase", _REGION_ADMIN, "reopen", table.decode(), str(times)) == 0


def flush_regions(services: Services, table: bytes) -> None:
    """Write what is in memory to files."""
    assert services.java("hbase", _REGION_ADMIN, "flush", table.decode()) == 0
