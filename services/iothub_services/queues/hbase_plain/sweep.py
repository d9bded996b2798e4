"""Which bodies the queues of driver `hbase-plain` refer to: its part of the mark of mark and sweep (the sweep is `hbase.bodies.sweepable`).

Knows rows of table `queues_plain`; removes nothing. It reads every record, so it is work for a job at night, not for a hub.

Theory: an open intent's reference moves to the records of its queues before the intent is closed. Intents are therefore read first: one
that is closed meanwhile has its records by then, and they are read later.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.records import keys
from iothub.records.queue_batch import records_of
from iothub.records.queued import decode_intent
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase_plain.log import ROWS_AT_ONCE
from iothub_services.queues.hbase_plain.meta import BATCH, FINISHED, intent_column

_FAMILY = b"m"
_INTENT = intent_column(0)[:-2]


def referenced(caller: Caller, table: bytes) -> set[tuple[int, bytes]]:
    """Return (tenant id, body id) of every body that an intent or a record refers to.

    Where queues of driver `hbase` share the table of bodies, theirs belong to the mark as well (`hbase.sweep.referenced`).

    Raises:
        BackendError: HBase cannot be reached, or refused.
        CorruptRecordError: A row of a future version, or a damaged one: nothing can be swept before that is settled.
    """
    marked: set[tuple[int, bytes]] = set()
    for columns, read in ((_FAMILY, _of_intents), (BATCH, _of_records)):
        for row in caller.scan(Scan(table, columns=(columns,), caching=ROWS_AT_ONCE), ROWS_AT_ONCE):
            for body_id in read(row):
                marked.add((keys.split_queue_key(row.key)[1], body_id))
    return marked


def _of_intents(row: Row) -> Iterator[bytes]:
    for column, cell in row.cells.items():
        if column.startswith(_INTENT) and cell.value != FINISHED and len(column) == len(_INTENT) + 2:
            body = decode_intent(cell.value).body
            if body.id:
                yield body.id


def _of_records(row: Row) -> Iterator[bytes]:
    for record in records_of(row.cells[BATCH].value):
        if record.body.id:
            yield record.body.id
