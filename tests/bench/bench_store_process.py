"""What an append costs over the store process, against the same file in the own process; and what merging saves.

Run as `python -m tests.bench.bench_store_process [SECONDS]`, on the disk that `TMPDIR` names. Prints one line for each figure.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from iothub.base.clock import SystemClock
from iothub_services.queues.port import Append, Appended, Delivery, QueueLimits
from iothub_services.queues.sqlite.schema import SCHEMA
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from iothub_services.store_process.queues import PORT, QueuePort, RemoteQueues, UsageChanges
from iothub_services.store_process.requests import Requests
from iothub_services.store_process.server import StoreServer

SIZES = (1, 16, 256)
BODY = b"x" * 256
TENANT = 1


class Appending(Protocol):
    """What is measured."""

    def append(self, batch: list[Append]) -> list[Appended]: ...


def measure(store: Appending, queue_id: int, size: int, seconds: float) -> tuple[int, float, float]:
    """Append batches for a while; return how many, and seconds of wall and of this process's CPU."""
    batches = 0
    began, cpu, until = time.perf_counter(), time.process_time(), time.perf_counter() + seconds
    while time.perf_counter() < until:
        store.append([Append(b"", BODY, 0, (Delivery(queue_id, 1),)) for _ in range(size)])
        batches += 1
    return batches, time.perf_counter() - began, time.process_time() - cpu


def say(what: str, size: int, batches: int, wall_s: float, cpu_s: float) -> None:
    each = 1_000_000 / (batches * size)
    print(
        f"{what:12} batch {size:3}: {wall_s * each:8.1f} us per message, {cpu_s * each:6.1f} us of CPU here", flush=True
    )


def opened(path: Path, on_usage: Callable[..., None] | None = None) -> tuple[SqliteQueues, Requests]:
    database = open_database(path, SCHEMA, SystemClock(), lambda word, text: None)
    return SqliteQueues(database, on_usage), Requests(database, SystemClock())


def bench_direct(directory: Path, seconds: float) -> None:
    queues, _ = opened(directory / "direct.db")
    queues.create(TENANT, 1, QueueLimits(0, 0))
    for size in SIZES:
        say("direct", size, *measure(queues, 1, size, seconds))
    queues.close()


def bench_remote(directory: Path, seconds: float) -> None:
    """One worker, then two: each in a process of its own, the store process is this one."""
    sys.setswitchinterval(0.0005)  # as the store process does
    usage = UsageChanges()
    queues, requests = opened(directory / "remote.db", usage.changed)
    port = QueuePort(queues, usage, SystemClock(), requests)
    server = StoreServer(directory / "store.sock", {PORT: port})
    server.start()
    for workers in (1, 2):
        for size in SIZES:
            before, cpu = port.commits, time.process_time()
            children = [
                subprocess.Popen(
                    [sys.executable, "-m", __spec__.name, str(seconds), str(directory), str(number), str(size)],
                    stdout=subprocess.PIPE,
                    text=True,
                )
                for number in range(workers)
            ]
            outputs = [child.communicate()[0].split() for child in children]
            batches = sum(int(output[0]) for output in outputs)
            wall_s = max(float(output[1]) for output in outputs)
            each = 1_000_000 / (batches * size)
            print(
                f"{workers} worker(s)  batch {size:3}: {wall_s * each:8.1f} us per message, "
                f"{sum(float(output[2]) for output in outputs) * each:6.1f} us of CPU in workers, "
                f"{(time.process_time() - cpu) * each:6.1f} in the store process, "
                f"{batches / (port.commits - before):.2f} requests per commit",
                flush=True,
            )
    server.close()
    queues.close()


def work(seconds: float, directory: Path, number: int, size: int) -> None:
    """Be a worker."""
    queues = RemoteQueues(directory / "store.sock")
    queue_id = time.time_ns() >> 10
    queues.create(TENANT, queue_id + number, QueueLimits(0, 0))
    print(*measure(queues, queue_id + number, size, seconds))
    queues.close()


def main() -> None:
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 3.0
    if len(sys.argv) > 2:
        work(seconds, Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
        return
    with tempfile.TemporaryDirectory() as directory:
        bench_direct(Path(directory), seconds)
        bench_remote(Path(directory), seconds)


if __name__ == "__main__":
    main()
