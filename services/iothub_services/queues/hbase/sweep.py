"""Which bodies the queues of driver `hbase` refer to: the mark of mark and sweep (the sweep is `bodies.sweepable`).

Knows rows of table `queues`; removes nothing. It reads every record, so it is work for a job at night, not for a hub.

Theory: an open intent's reference moves to the records of its queues before the intent is closed. Intents are therefore read first: one
that is closed meanwhile has its records by then, and they are read later.
"""

from __future__ import annotations

from iothub.records import keys
from iothub.records.queued import Body, decode_intent, decode_record
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Scan
from iothub_services.queues.hbase import requests

RECORD = b"d:b"
_PAGE_ROWS = 64


def referenced(caller: Caller, table: bytes) -> set[tuple[int, bytes]]:
    """Return (tenant id, body id) of every body that an intent or a record refers to, consumed ones included that are still stored.

    Where queues of driver `hbase-plain` share the table of bodies, theirs belong to the mark as well.

    Raises:
        BackendError: HBase cannot be reached, or refused.
        CorruptRecordError: A record of a future version, or a damaged one: nothing can be swept before that is settled.
    """
    marked: set[tuple[int, bytes]] = set()
    for column, read in ((requests.INTENT, _of_intent), (RECORD, _of_record)):
        for row in caller.scan(Scan(table, columns=(column,), caching=_PAGE_ROWS), _PAGE_ROWS):
            cell = row.cells.get(column)
            body = None if cell is None else read(cell.value)
            if body is not None and body.id:
                _, tenant_id = keys.split_queue_key(row.key)
                marked.add((tenant_id, body.id))
    return marked


def _of_intent(raw: bytes) -> Body:
    return decode_intent(raw).body


def _of_record(raw: bytes) -> Body:
    return decode_record(raw).body
