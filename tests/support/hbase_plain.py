"""The queue driver `hbase-plain` on a gateway in memory.

Knows how they are put together.
"""

from __future__ import annotations

from iothub.testing.clock import ManualClock
from iothub_services.hbase.tables import Tables
from iothub_services.queues.hbase_plain.store import PlainHBaseQueues
from tests.support.hbase_calls import FakeCaller
from tests.support.hbase_gateway import FakeGateway

TABLES = Tables("test")


class PlainHBase:
    """Tables in memory. Several stores may use them, each with a caller of its own."""

    def __init__(self) -> None:
        self.gateway = FakeGateway()
        for table in (TABLES.queues_plain, TABLES.queue_index, TABLES.bodies):
            self.gateway.tables[table] = {}
        self.clock = ManualClock()

    @property
    def rows(self) -> dict[bytes, dict[bytes, tuple[bytes, int]]]:
        return self.gateway.tables[TABLES.queues_plain]

    def store(self, incarnation: int = 1) -> tuple[PlainHBaseQueues, FakeCaller]:
        """Return a hub's store, and its caller."""
        caller = FakeCaller(self.gateway)
        return PlainHBaseQueues(caller, TABLES, incarnation, self.clock), caller
