"""How many durable messages a second the queue coprocessor takes: `python -m tests.bench.bench_coprocessor` beside running services.

Knows the byte contract, no driver and no hub: one thread and one connection for each of some regions, one `m:mul` call in flight.
"""

from __future__ import annotations

import argparse
import os
import sys
import threading
import time

from ops.services.services import Services
from tests.support.hbase import queue_bytes
from tests.support.hbase.queue_table import QueueTable, queue_table

_WARM_UP_S = 10.0


class _Region(threading.Thread):
    """Appends to the queues of one region, round about, one message each, until time is over."""

    def __init__(self, table: QueueTable, queues: list[int], batch: int, writer: int, until: float) -> None:
        super().__init__()
        self.latencies: list[float] = []
        self.messages = 0
        self._table = table
        self._queues = queues
        self._batch = batch
        self._writer = writer
        self._until = until

    def run(self) -> None:
        body = queue_bytes.record(os.urandom(1024))
        sequence = 0
        turn = 0
        with self._table.caller() as caller:
            while time.monotonic() < self._until:
                sequence += 1
                size = min(self._batch, len(self._queues))
                chosen = [self._queues[(turn + each) % len(self._queues)] for each in range(size)]
                turn += size
                records = [body] * (self._batch // size)
                began = time.monotonic()
                steps = [queue_bytes.append(each, self._writer, sequence, records) for each in chosen]
                results = self._table.do(caller, chosen[0], *steps)
                self.latencies.append(time.monotonic() - began)
                assert all(each.status == queue_bytes.Status.DONE for each in results)
                self.messages += size * len(records)


def _server_cpu_s(services: Services) -> float:
    return next(report.cpu_s for report in services.reports() if report.name == "hbase")


def _measure(table: QueueTable, regions: list[list[int]], batch: int, writer: int, seconds: float) -> str:
    threads = [_Region(table, queues, batch, writer, time.monotonic() + seconds) for queues in regions]
    server, client, began = _server_cpu_s(table.services), time.process_time(), time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    took = time.monotonic() - began
    messages = sum(thread.messages for thread in threads)
    latencies = sorted(latency for thread in threads for latency in thread.latencies)
    server = (_server_cpu_s(table.services) - server) / messages * 1e6
    client = (time.process_time() - client) / messages * 1e6
    return (
        f"{len(regions):4} regions {batch:4} a call {messages / took:7.0f} messages/s {len(latencies) / took:5.0f} calls/s  "
        f"p50 {latencies[len(latencies) // 2] * 1e3:.0f} ms  p99 {latencies[int(len(latencies) * 0.99)] * 1e3:.0f} ms  "
        f"server {server:.0f} us  client {client:.1f} us a message  load {os.getloadavg()[0]:.1f}"
    )


def _say(line: str) -> None:
    sys.stderr.write(line + "\n")


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--regions", type=int, default=4)
    parser.add_argument("--queues", type=int, default=1000)
    parser.add_argument("--batch", type=int, nargs="+", default=[256, 16, 1])
    parser.add_argument("--seconds", type=float, default=8.0)
    options = parser.parse_args(words)
    services = Services(say=_say)
    services.up("hbase")
    with queue_table(services, options.regions) as table, table.caller() as caller:
        regions: dict[int, list[int]] = {}
        for queue_id in range(1, options.queues + 1):
            regions.setdefault(queue_bytes.queue_key(queue_id)[0] * options.regions // 256, []).append(queue_id)
        for queues in regions.values():
            table.do(caller, queues[0], *[queue_bytes.create(each) for each in queues])
        _measure(table, list(regions.values()), 256, 1, _WARM_UP_S)
        for writer, batch in enumerate(options.batch, 2):
            sys.stdout.write(_measure(table, list(regions.values()), batch, writer, options.seconds) + "\n")
            sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
