"""How fast the SQLite queue driver appends: messages per second and CPU per message, at 16 and 256 per commit.

Run by hand: `python tests/bench/bench_queues.py [directory]`. Knows no hub: this is the store alone, one thread.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from iothub.testing.clock import ManualClock
from iothub_services.queues.port import Append, Delivery, Move, MoveKind, QueueLimits
from iothub_services.queues.schema import SCHEMA
from iothub_services.queues.sqlite import SqliteQueues
from iothub_services.sqlite.database import open_database

QUEUES = 1_000
BODY = bytes(1_024)


def measure(directory: Path, per_commit: int, messages: int) -> tuple[float, float, float]:
    """Append `messages`, then acknowledge them; returns (messages/s, CPU us per append, CPU us per acknowledged message)."""
    path = directory / f"queues-{per_commit}.db"
    store = SqliteQueues(open_database(path, SCHEMA, ManualClock(), lambda _name, _text: None))
    with store.group():
        for queue_id in range(1, QUEUES + 1):
            store.create(1, queue_id, QueueLimits())
    epochs = {queue_id: store.claim(queue_id, b"bench").epoch for queue_id in (1,)}
    started, cpu = time.perf_counter(), time.process_time()
    for start in range(0, messages, per_commit):
        store.append(
            [
                Append(number.to_bytes(16), BODY, 0, (Delivery(1 + number * 7 % QUEUES, 1),))
                for number in range(start, start + per_commit)
            ]
        )
    elapsed, used = time.perf_counter() - started, time.process_time() - cpu
    cpu = time.process_time()
    with store.group():
        for queue_id in range(1, QUEUES + 1):
            epochs[queue_id] = store.claim(queue_id, b"bench").epoch
    for queue_id in range(1, QUEUES + 1, 4):
        store.apply([Move(MoveKind.ACK, each, epochs[each], 1 << 40) for each in range(queue_id, queue_id + 4)])
    acknowledged = time.process_time() - cpu
    store.close()
    return messages / elapsed, used / messages * 1e6, acknowledged / messages * 1e6


def main() -> None:
    """Measure both sizes and say what came out."""
    with tempfile.TemporaryDirectory(dir=sys.argv[1] if len(sys.argv) > 1 else None) as directory:
        for per_commit, messages in ((16, 16_000), (256, 51_200)):
            rate, append_us, ack_us = measure(Path(directory), per_commit, messages)
            sys.stdout.write(
                f"{per_commit:4} per commit: {rate:8.0f} messages/s, "
                f"{append_us:.1f} us CPU per append, {ack_us:.1f} us per acknowledged message\n"
            )


if __name__ == "__main__":
    main()
