"""Pages of queues in HBase: asked of the coprocessor, decoded, bodies that lie apart put in place.

Knows one queue at a time, and no writer.

Theory: the coprocessor refuses a page in which a record is that it cannot read, and says which. What is before that one is asked for by
itself: positions have no gaps but for what was removed, so the distance is how many to ask for, or more; then half as many, until it fits.
"""

from __future__ import annotations

from collections.abc import Sequence

from iothub.base.errors import CorruptRecordError
from iothub.records import keys
from iothub.records.queued import Record, decode_record
from iothub_services.hbase import calls
from iothub_services.hbase.caller import Caller
from iothub_services.queues.hbase import requests
from iothub_services.queues.hbase.bodies import Bodies, Wanted
from iothub_services.queues.hbase.moves import unreadable
from iothub_services.queues.hbase.requests import PageTold, Status
from iothub_services.queues.port import Page, QueuedRecord, StaleEpochError, Unreadable
from iothub_services.queues.remote.index import KnownQueue, unknown


class Pages:
    """Reads pages. `most_bytes`: of bodies in one answer, but for a single one that is larger."""

    def __init__(self, caller: Caller, table: bytes, bodies: Bodies, most_bytes: int) -> None:
        self._caller = caller
        self._table = table
        self._bodies = bodies
        self._most_bytes = most_bytes

    def read(self, known: KnownQueue, epoch: int, after: int, count: int, size_bytes: int) -> Page:
        """Read a page behind a position.

        Raises:
            NotFoundError: There is no such queue.
            StaleEpochError: Another reader has claimed it.
            UnreadableQueueError: The queue's state cannot be read.
            BackendError: HBase cannot be reached, or refused.
        """
        told = self._ask(known, epoch, after, count, size_bytes)
        if isinstance(told, PageTold):
            return self._decoded(known, told)
        unreadable = told
        while count := min(count // 2, unreadable.position - after - 1):
            told = self._ask(known, epoch, after, count, size_bytes)
            if isinstance(told, PageTold):
                return self._decoded(known, told)
        return Page([], unreadable.position - 1, False, unreadable)

    def _ask(self, known: KnownQueue, epoch: int, after: int, count: int, size_bytes: int) -> PageTold | Unreadable:
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
        if row is None:
            raise unknown(known.queue_id)
        told = requests.paged(row.cells[requests.PAGE].value)
        return told if isinstance(told, PageTold) else _refusal(known.queue_id, epoch, *told)

    def _decoded(self, known: KnownQueue, page: PageTold) -> Page:
        """Decode records; the page ends before one that a newer hub has written, or that is damaged."""
        loaded: list[tuple[int, Record]] = []
        for position, raw in page.records:
            try:
                loaded.append((position, decode_record(raw)))
            except CorruptRecordError as error:
                return Page(self._with_bodies(known, loaded), position - 1, False, Unreadable(position, str(error)))
        return Page(self._with_bodies(known, loaded), page.upto, page.is_short)

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


def _refusal(queue_id: int, epoch: int, status: int, octets: bytes) -> Unreadable:
    """Return which record cannot be read; raise why there is no page otherwise."""
    if status == Status.STALE_EPOCH:
        raise StaleEpochError(f"queue {queue_id} is at epoch {requests.number(octets)}, the reader at {epoch}")
    if status == Status.GONE:
        raise unknown(queue_id)
    error = unreadable(queue_id, octets)
    if not error.position:
        raise error
    return error.found
