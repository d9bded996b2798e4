"""Which bodies the queues refer to: the mark of mark and sweep (`hbase_bodies.sweep`).

Knows rows of table `queues`; removes nothing. It reads every record, page by page.
"""

from __future__ import annotations

from collections.abc import Iterator

from iothub.base import log as logging
from iothub.base.errors import CorruptRecordError
from iothub.records import keys
from iothub.records.queued import decode_intent, decode_record
from iothub_services.hbase.caller import Caller
from iothub_services.hbase.calls import Scan
from iothub_services.hbase.pages import pages
from iothub_services.hbase.replies import Row
from iothub_services.queues.hbase import requests

RECORD = b"d:b"

log = logging.get(__name__)


def referenced(caller: Caller, table: bytes, *, of_intents: bool) -> Iterator[list[tuple[int, bytes]]]:
    """Yield (tenant id, body id) of what open intents, or else records, refer to; consumed records included that are still stored.

    Raises:
        BackendError: HBase cannot be reached, or refused.
    """
    column = requests.INTENT if of_intents else RECORD
    for rows in pages(caller, Scan(table, columns=(column,))):
        found = ((row.key, _body_id(row, column, of_intents=of_intents)) for row in rows if column in row.cells)
        yield [(keys.split_queue_key(key)[1], body_id) for key, body_id in found if body_id]


def _body_id(row: Row, column: bytes, *, of_intents: bool) -> bytes:
    """Return b"" for a damaged one as well: its readers pass it over, so nobody asks for its body by it."""
    raw = row.cells[column].value
    try:
        return decode_intent(raw).body.id if of_intents else decode_record(raw).body.id
    except CorruptRecordError as error:
        queue_id, tenant_id = keys.split_queue_key(row.key)
        log.warning(
            "a damaged record refers to no body", queue=queue_id, tenant=tenant_id, row=row.key.hex(), why=str(error)
        )
        return b""
