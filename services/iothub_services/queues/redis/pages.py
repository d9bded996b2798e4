"""Pages of queues in Redis: asked of the script, decoded.

Knows the fields of a record, and no writer.
"""

from __future__ import annotations

from typing import cast

from iothub_services.queues.port import Damaged, Page, QueuedRecord, StaleEpochError
from iothub_services.queues.redis.index import unknown
from iothub_services.queues.redis.names import Names
from iothub_services.queues.redis.reader_scripts import READ, RECORD_VERSION
from iothub_services.queues.redis.sending import Sender
from iothub_services.redis.calls import script_call

PAGE_BYTES = 8 << 20  # of bodies, but for a single one that is larger

_FIELDS = [b"v", b"q", b"f", b"e", b"i", b"d", b"b"]
_Entry = tuple[bytes, list[bytes]]


def read_page(sender: Sender, names: Names, queue_id: int, epoch: int, after: int, count: int, size_bytes: int) -> Page:
    """Read a page behind a position; a damaged record is passed over.

    Raises:
        NotFoundError: There is no such queue, or it is lost.
        StaleEpochError: Another reader has claimed it.
        BackendError: Redis cannot be reached, or refused.
    """
    if sender.damage.is_lost(queue_id):
        raise unknown(queue_id)
    asked = script_call(READ, names.keys(queue_id), epoch, after, count, min(size_bytes, PAGE_BYTES))
    answer = sender.read_one(asked, queue_id)
    if not isinstance(answer, list):
        raise unknown(queue_id)
    if len(answer) == 1:
        raise StaleEpochError(f"queue {queue_id} is at epoch {int(cast('bytes', answer[0]))}, the reader at {epoch}")
    tail = int(cast("bytes", answer[1]))
    records: list[QueuedRecord] = []
    damaged: list[Damaged] = []
    entries = [(int(name.partition(b"-")[0]), fields) for name, fields in cast("list[_Entry]", answer[3])]
    for position, fields in entries:
        record = _decoded(position, fields)
        if record is None:
            damaged.append(Damaged(position, "damaged queued record: the fields do not fit"))
        else:
            records.append(record)
    is_cut = bool(cast("int", answer[2]))
    upto = entries[-1][0] if is_cut else max(after, tail)
    return Page(records, upto, upto >= tail, tuple(damaged))


def _decoded(position: int, fields: list[bytes]) -> QueuedRecord | None:
    """Return None for a damaged record."""
    if fields[::2] != _FIELDS or fields[1] != b"%d" % RECORD_VERSION:
        return None
    _, qos, flags, expires_at_ms, identifiers, _, body = fields[1::2]
    try:
        subscription_ids = tuple(map(int, identifiers.split(b","))) if identifiers else ()
        return QueuedRecord(position, int(qos), int(flags), subscription_ids, int(expires_at_ms), body)
    except ValueError:
        return None
