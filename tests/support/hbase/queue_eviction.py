"""Messages that are appended to a queue on HBase and acknowledged, and the size of the files that are left of them."""

from __future__ import annotations

from tests.support.hbase import queue_bytes
from tests.support.hbase.queue_bytes import Kind, claimed, record
from tests.support.hbase.queue_table import QueueTable

BATCH = 1_000
BODY = bytes(256)
ALMOST_EMPTY_BYTES = 64 << 10  # of 5 MB at least; an empty HFile has 5 KB


def hfile_bytes(table: QueueTable) -> int:
    """Return the size of all files with messages of a table."""
    return _family_bytes(table, "d")


def id_bytes(table: QueueTable) -> int:
    """Return the size of all files with states and message ids of a table."""
    return _family_bytes(table, "m")


def _family_bytes(table: QueueTable, family: str) -> int:
    root = table.services.places.of("hbase") / "root/data/default" / table.name.decode()
    return sum(file.stat().st_size for file in root.glob(f"*/{family}/*") if file.is_file())


def fill(table: QueueTable, queue_id: int, messages: int, *, is_read: bool) -> int:
    """Append so many; `is_read`: acknowledge each batch when the next one is there. Returns the epoch."""
    with table.caller() as caller:
        results = table.do(caller, queue_id, queue_bytes.create(queue_id), queue_bytes.claim(queue_id))
        epoch = claimed(results[1]).epoch
        for number in range(1, messages // BATCH + 1):
            steps = [queue_bytes.append(queue_id, 9, number, [record(BODY)] * BATCH)]
            if is_read:
                steps.append(queue_bytes.moves(queue_id, epoch, number, (Kind.ACK, number * BATCH - BATCH // 2)))
            table.do(caller, queue_id, *steps)
        if is_read:
            table.do(caller, queue_id, queue_bytes.moves(queue_id, epoch, messages, (Kind.ACK, messages)))
    return epoch


def fill_qos2(table: QueueTable, queue_id: int, messages: int, *, is_settled: bool) -> None:
    """Append so many QoS 2 messages that nobody reads; `is_settled`: each call says that those before it are."""
    with table.caller() as caller:
        table.do(caller, queue_id, queue_bytes.create(queue_id))
        for number in range(1, messages // BATCH + 1):
            records = [
                record(b"", 2, message_id=(number * BATCH + at).to_bytes(16), is_settled_later=True)
                for at in range(BATCH)
            ]
            settled = (1, number) if is_settled else (1, 1)
            table.do(caller, queue_id, queue_bytes.append(queue_id, 9, number, records, settled=settled))
