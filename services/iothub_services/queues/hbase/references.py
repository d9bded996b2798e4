"""Which bodies the queues refer to, read page by page and kept in a fixed amount of memory: the mark of mark and sweep (`body_sweep`).

Knows rows of table `queues`; removes nothing.

Theory: a Bloom filter. What was added is always found, so nothing that is referred to is swept. Of the rest about one in `2**-_PROBES` is
found too while there are fewer than `bits / 10` of them, and stays for the next sweep, which has another salt and with it other mistakes.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from hashlib import blake2b

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
MARKED_BYTES = 16 << 20  # some 13 million bodies, and then less and less is swept
_PROBES = 7
_HALF = 8

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
            "damaged record skipped by the sweep of bodies",
            queue=queue_id,
            tenant=tenant_id,
            row=row.key.hex(),
            why=str(error),
        )
        return b""


class Marked:
    """A set that cannot grow. `size_bytes`: a power of two."""

    def __init__(self, size_bytes: int = MARKED_BYTES, salt: bytes | None = None) -> None:
        self._bits = bytearray(size_bytes)
        self._mask = size_bytes * 8 - 1
        self._salt = secrets.token_bytes(16) if salt is None else salt

    def add(self, tenant_id: int, body_id: bytes) -> None:
        """Mark a body."""
        bits = self._bits
        for at in self._places(tenant_id, body_id):
            bits[at >> 3] |= 1 << (at & 7)

    def __contains__(self, body: tuple[int, bytes]) -> bool:
        bits = self._bits
        return all(bits[at >> 3] >> (at & 7) & 1 for at in self._places(*body))

    def _places(self, tenant_id: int, body_id: bytes) -> list[int]:
        digest = blake2b(tenant_id.to_bytes(_HALF) + body_id, digest_size=2 * _HALF, salt=self._salt).digest()
        first, step = int.from_bytes(digest[:_HALF]), int.from_bytes(digest[_HALF:]) | 1
        return [(first + number * step) & self._mask for number in range(_PROBES)]
