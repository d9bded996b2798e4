"""Which bodies the queues of driver `hbase-plain` refer to: its part of the mark of mark and sweep (`hbase_bodies.sweep`).

Knows rows of table `queues_plain`; removes nothing. It reads every record, page by page.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.base.errors import CorruptRecordError
from iothub.records import keys
from iothub.records.queue_batch import records_of
from iothub.records.queued import decode_intent
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.pages import pages
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase.references import unsettled
from iothub_services.queues.hbase_plain.meta import BATCH, FINISHED, intent_column

_FAMILY = b"m"
_INTENT = intent_column(0)[:-2]


def referenced(caller: Caller, table: bytes, *, of_intents: bool) -> Iterator[list[tuple[int, bytes]]]:
    """Yield (tenant id, body id) of what open intents, or else records, refer to.

    Raises:
        BackendError: HBase cannot be reached, or refused.
        CorruptRecordError: One is of a future version, or damaged.
    """
    for rows in pages(caller, Scan(table, columns=(_FAMILY if of_intents else BATCH,))):
        yield [
            (keys.split_queue_key(row.key)[1], body_id)
            for row in rows
            for body_id in _body_ids(row, of_intents=of_intents)
        ]


def _body_ids(row: Row, *, of_intents: bool) -> list[bytes]:
    try:
        return [body_id for body_id in (_of_intents(row) if of_intents else _of_records(row)) if body_id]
    except CorruptRecordError as error:
        raise unsettled(row.key, error, of_intents=of_intents) from None


def _of_intents(row: Row) -> Iterator[bytes]:
    for column, cell in row.cells.items():
        if column.startswith(_INTENT) and cell.value != FINISHED and len(column) == len(_INTENT) + 2:
            yield decode_intent(cell.value).body.id


def _of_records(row: Row) -> Iterator[bytes]:
    for record in records_of(row.cells[BATCH].value):
        yield record.body.id
