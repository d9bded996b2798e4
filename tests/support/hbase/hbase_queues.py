"""The queue driver `hbase` on a gateway and a coprocessor in memory.

Knows how they are put together.
"""

from __future__ import annotations

from iothub.testing.clock import ManualClock
from iothub_services.hbase.tables import Tables, split_keys
from iothub_services.queues.hbase.store import HBaseQueues
from tests.support.hbase.hbase_calls import FakeCaller
from tests.support.hbase.hbase_gateway import FakeGateway
from tests.support.hbase.queue_coprocessor import QueueCoprocessor

TABLES = Tables("test")
REGIONS = 4


class HBase:
    """Tables in memory. Several stores may use them, each with a caller of its own."""

    def __init__(self) -> None:
        self.gateway = FakeGateway()
        for table in (TABLES.queue_index, TABLES.bodies):
            self.gateway.tables[table] = {}
        self.coprocessor = QueueCoprocessor(self.gateway, TABLES.queues, split_keys(REGIONS))
        self.clock = ManualClock()
        self.alarms: list[str] = []  # about damaged queues
        self.damaged_records: list[tuple[str, str, str]] = []

    def store(self, incarnation: int = 1) -> tuple[HBaseQueues, FakeCaller]:
        """Return a hub's store, and its caller."""
        caller = FakeCaller(self.gateway)
        store = HBaseQueues(
            caller,
            TABLES,
            incarnation,
            self.clock,
            on_damaged=lambda _, text: self.alarms.append(text),
            on_damaged_record=lambda *damaged, **_: self.damaged_records.append(damaged),
        )
        return store, caller
