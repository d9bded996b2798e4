"""Pages of queues in HBase: asked of the coprocessor, decoded, bodies that lie apart put in place.

Knows one queue at a time, and no writer.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import BackendError, CorruptRecordError
from iothub.records import keys
from iothub.records.queued import Record, decode_record
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.queues.damage import DamagedQueues
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.bodies import Bodies, Wanted
from iothub_services.queues.hbase.index import KnownQueue, unknown
from iothub_services.queues.hbase.requests import PageResult, Status
from iothub_services.queues.port import Damaged, Page, QueuedRecord, StaleEpochError


class Pages:
    """Reads pages. `most_bytes`: of bodies in one answer, but for a single one that is larger."""

    def __init__(self, caller: Caller, table: bytes, damage: DamagedQueues, bodies: Bodies, most_bytes: int) -> None:
        self._caller = caller
        self._table = table
        self._damage = damage
        self._bodies = bodies
        self._most_bytes = most_bytes

    def read(self, known: KnownQueue, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        """Read a page behind a position; a damaged record is passed over.

        Raises:
            NotFoundError: There is no such queue.
            StaleEpochError: Another reader has claimed it.
            BackendError: HBase cannot be reached, or refused.
        """
        asked = requests.page(epoch, after, count, min(size_bytes, self._most_bytes))
        # a pin of its own: apart from what is written to the queue's region
        row = self._caller.call(
            calls.get_row(
                self._table,
                keys.meta_row(known.key),
                (requests.PAGE,),
                {requests.ASKED: asked},
                pin=b"read " + known.key,
            )
        )
        if row is None:  # the queue may be there all the same
            fact = f"a region of {self._table.decode()} answers without the queue coprocessor"
            raise BackendError(fact, retryable=False)
        found = requests.paged(row.cells[requests.PAGE].value)
        if isinstance(found, PageResult):
            return self._decoded(known, found)
        status, octets = found
        if status == Status.STALE_EPOCH:
            raise StaleEpochError(
                f"queue {known.queue_id} is at epoch {requests.number(octets)}, the reader at {epoch}"
            )
        if status == Status.DAMAGED:
            self._damage.found(known.queue_id, requests.damage(octets))
        raise unknown(known.queue_id)

    def _decoded(self, known: KnownQueue, page: PageResult) -> Page:
        loaded: list[tuple[int, Record]] = []
        damaged: list[Damaged] = []
        for position, raw in page.records:
            try:
                loaded.append((position, decode_record(raw)))
            except CorruptRecordError as error:
                damaged.append(Damaged(position, str(error)))
        return Page(self._with_bodies(known, loaded), page.upto, page.is_short, tuple(damaged))

    def _with_bodies(self, known: KnownQueue, loaded: Sequence[tuple[int, Record]]) -> list[QueuedRecord]:
        """Put bodies in place. One that is lost leaves nothing: who decodes that names it."""
        wanted = [Wanted(known.tenant_id, record.body.id, record.body.size) for _, record in loaded if record.body.id]
        bodies = self._bodies.fetch(wanted) if wanted else {}
        return [
            QueuedRecord(
                position,
                record.qos,
                record.flags,
                record.subscription_ids,
                record.expires_at_ms,
                bodies.get(record.body.id, b"") if record.body.id else record.body.octets,
            )
            for position, record in loaded
        ]
