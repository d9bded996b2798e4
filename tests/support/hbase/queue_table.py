"""A table of queues on the real HBase, asked through the Thrift 1 gateway.

Knows the calls; the bytes in them are `queue_bytes`'.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from iothub.base.errors import BackendError
from iothub_services.hbase import calls
from iothub_services.hbase.caller import DirectCaller
from iothub_services.hbase.tables import Tables, layouts
from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.own_tables import caller_of, flush_regions, made_tables, reopen_regions
from tests.support.hbase.queue_bytes import Page, Result

_RETRY_LIMIT_S = 120.0
_RETRY_PAUSE_S = 0.2


class QueueTable:
    """One table. A caller belongs to one thread."""

    def __init__(self, services: Services, name: bytes) -> None:
        self.services = services
        self.name = name

    def caller(self) -> DirectCaller:
        return caller_of(self.services)

    def append(self, caller: DirectCaller, row: bytes, value: bytes, column: bytes = b"m:mul") -> bytes:
        return caller.call(calls.append(self.name, row, column, value))

    def do(self, caller: DirectCaller, queue_id: int, *steps: bytes) -> list[Result]:
        """Do operations in one call, sent to the region of a queue."""
        answer = self.append(caller, queue_bytes.meta_row(queue_id), queue_bytes.request(*steps))
        return queue_bytes.answers(answer)

    def do_until_answered(self, caller: DirectCaller, queue_id: int, *steps: bytes) -> list[Result]:
        """Send the same bytes again until they are answered, as a writer does after a time-out."""
        deadline = time.monotonic() + _RETRY_LIMIT_S
        while True:
            try:
                return self.do(caller, queue_id, *steps)
            except BackendError as error:
                if "refused:" in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(_RETRY_PAUSE_S)

    def get(self, caller: DirectCaller, row: bytes, column: bytes, asked: bytes | None = None) -> bytes | None:
        attributes = None if asked is None else {b"request": asked}
        found = caller.call(calls.get_row(self.name, row, [column], attributes))
        return None if found is None else found.cells[column].value

    def page(self, caller: DirectCaller, queue_id: int, epoch: int, after: int, count: int = 10_000) -> Page:
        asked = queue_bytes.page(epoch, after, count, 1 << 30)
        raw = self.get(caller, queue_bytes.meta_row(queue_id), b"m:deq", asked)
        assert raw is not None
        return queue_bytes.paged(raw)

    def all_records(self, caller: DirectCaller, queue_id: int, epoch: int) -> dict[int, bytes]:
        """Read page by page, as a session does that is behind."""
        found: dict[int, bytes] = {}
        page = self.page(caller, queue_id, epoch, 0)
        while page.records:
            found |= page.records
            page = self.page(caller, queue_id, epoch, page.upto)
        return found

    def reopen(self, times: int) -> None:
        reopen_regions(self.services, self.name, times)

    def flush(self) -> None:
        flush_regions(self.services, self.name)


@contextmanager
def queue_tables(services: Services, regions: int, count: int) -> Iterator[list[QueueTable]]:
    """Give tables of one's own with the hub's layout, gone afterwards."""
    namespace = f"t{uuid.uuid4().hex}"
    layout = next(each for each in layouts(namespace, regions) if each.name.encode() == Tables(namespace).queues)
    name = layout.name.replace(":", "_")
    wanted = [replace(layout, name=f"{name}_{number}") for number in range(count)]
    with made_tables(services, wanted):
        yield [QueueTable(services, each.name.encode()) for each in wanted]


@contextmanager
def queue_table(services: Services, regions: int) -> Iterator[QueueTable]:
    """Give one table."""
    with queue_tables(services, regions, 1) as (table,):
        yield table
