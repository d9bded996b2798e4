"""Tables of a test's own on the real HBase, several together as a queue driver needs them, and calls to them.

Knows layouts by name; knows no driver.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

from iothub.units import Endpoint
from iothub_services.hbase import calls
from iothub_services.hbase.administration import TableAdmin
from iothub_services.hbase.direct import DirectCaller
from iothub_services.hbase.tables import Tables, layouts
from ops.services.house import Services
from ops.services.places import HOST


def caller_of(services: Services, port: int | None = None) -> DirectCaller:
    """Return a connection to the gateway, for one thread."""
    return DirectCaller([Endpoint(HOST, port or services.ports.thrift)])


@contextmanager
def own_tables(services: Services, regions: int, *names: str) -> Iterator[Tables]:
    """Make these tables in a namespace of their own; they are gone afterwards."""
    tables = Tables(f"t{uuid.uuid4().hex}")
    wanted = [each for each in layouts(tables.namespace, regions) if each.name.partition(":")[2] in names]
    assert len(wanted) == len(names)
    TableAdmin(services.places.folder / "hbase-java").create(wanted)
    try:
        yield tables
    finally:
        services.up("hbase")
        with caller_of(services) as caller:
            for layout in wanted:
                caller.call(calls.disable_table(layout.name.encode()))
                caller.call(calls.delete_table(layout.name.encode()))
