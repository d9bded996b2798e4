"""One message at a time between two workers: `python -m tests.bench.bench_workers [--pause MS] [NAME=IOTHUB ...]`.

Each hub is started with two workers on a data directory of its own; without names it is this checkout's. One client at the first worker publishes
90 bytes at QoS 1 to a subscription at the same worker or at the other one, in turns; several hubs take turns, too. A message is over when it has
arrived and both sides are acknowledged. Prints medians of microseconds until it arrived, and the CPU of both workers for each message.
"""

from __future__ import annotations

import argparse
import socket
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import quantiles
from time import perf_counter_ns, sleep
from typing import cast

from iothub.config.datadir import DataDir
from tests.support.clients.packets import PUBACK, packet
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import IOTHUB, Hub
from tests.support.waiting import until

_BLOCK = 250
_USER = "acme/dev1"
_PAYLOAD = b"x" * 90


class Waits:
    """Of one hub and one side: microseconds of each message, and CPU seconds of both workers."""

    def __init__(self) -> None:
        self.arrivals: list[float] = []
        self.cpu_ns = 0


class Measured:
    """A hub with two workers, a publisher at the first one, and a subscriber at either."""

    def __init__(self, hub: Hub) -> None:
        self.pids = [_worker_pid(hub, number) for number in (1, 2)]
        self.waits = (Waits(), Waits())
        port = hub.ports["tcp"]
        self.publisher = _client_at(self.pids[0], port, "p")
        self.subscribers = [_client_at(pid, port, f"s{pid}") for pid in self.pids]
        for number, subscriber in enumerate(self.subscribers):
            subscriber.subscribe((f"bench/{number}", 1))

    def run(self, side: int, count: int, pause_s: float, *, counts: bool = True) -> None:
        """Send so many messages to the subscriber at the same worker (0) or at the other one (1)."""
        publisher, subscriber = (cast(socket.socket, each.stream) for each in (self.publisher, self.subscribers[side]))
        data = self.publisher.publish_bytes(f"bench/{side}", _PAYLOAD, 1, 7)
        waits = self.waits[side]
        began_cpu = self._cpu_ns()
        for _ in range(count):
            if pause_s:
                sleep(pause_s)
            began = perf_counter_ns()
            publisher.send(data)
            arrived = subscriber.recv(4096)
            ended = perf_counter_ns()
            assert len(arrived) == len(data), arrived
            subscriber.send(packet(PUBACK << 4, arrived[-92:-90]))
            assert len(publisher.recv(4096)) == 4
            if counts:
                waits.arrivals.append((ended - began) / 1000)
        if counts:
            waits.cpu_ns += self._cpu_ns() - began_cpu

    def _cpu_ns(self) -> int:
        return sum(
            int(each.read_text().split()[0])
            for pid in self.pids
            for each in Path(f"/proc/{pid}/task").glob("*/schedstat")
        )


def _worker_pid(hub: Hub, number: int) -> int:
    noted = DataDir.of_worker(hub.data_dir, number).read_hub()
    assert noted is not None
    return int(str(noted["pid"]))


def _client_at(pid: int, port: int, name: str) -> RawClient:
    """Connect until the kernel has given the connection to that worker."""
    for attempt in range(100):
        client = RawClient(port)
        client.connect(f"{name}-{attempt}", _USER)
        if _is_with(pid, cast(socket.socket, client.stream), port):
            return client
        client.disconnect()
    raise SystemExit(f"bench: no connection came to process {pid}")


def _is_with(pid: int, stream: socket.socket, port: int) -> bool:
    ends = (f"0100007F:{port:04X}", f"0100007F:{stream.getsockname()[1]:04X}")
    names = {f"/proc/{pid}/fd/{each.name}" for each in Path(f"/proc/{pid}/fd").iterdir()}
    inodes = {
        row[9]
        for table in ("tcp", "tcp6")
        for row in map(str.split, Path(f"/proc/net/{table}").read_text().splitlines()[1:])
        if (row[1][-13:], row[2][-13:]) == ends
    }
    return any(
        each.readlink().name == f"socket:[{inode}]"
        for inode in inodes
        for each in map(Path, names)
        if each.is_symlink()
    )


@dataclass
class _Program(Hub):
    """A hub of whichever checkout `program` is of."""

    program: str = str(IOTHUB)

    def command(self) -> list[str]:
        return [self.program, *super().command()[1:]]


@contextmanager
def _running(program: str) -> Iterator[Measured]:
    with tempfile.TemporaryDirectory() as directory:
        hub = _Program(Path(directory) / "hub", settings={"node.workers": "2"}, is_whole=True, program=program)
        hub.init()
        hub.tenant("acme", "dev1")
        hub.start()
        try:
            until(lambda: [row["state"] for row in hub.rows("cluster", "status")] == ["up", "up"], "two workers")
            yield Measured(hub)
        finally:
            hub.stop()


def _shown(name: str, measured: Measured) -> None:
    sides = [quantiles(waits.arrivals, n=20) for waits in measured.waits]
    cpu = [waits.cpu_ns / 1000 / len(waits.arrivals) for waits in measured.waits]
    for side, cuts in zip(("same worker", "other worker"), sides, strict=True):
        number = side == "other worker"
        print(
            f"{name:>10}, {side:>12}: p50 {cuts[9]:6.1f} us, p10 {cuts[1]:6.1f} us, p90 {cuts[17]:7.1f} us, CPU {cpu[number]:6.1f} us"
        )
    print(
        f"{name:>10}, {'times':>12}: {sides[1][9] / sides[0][9]:.2f} (p10 {sides[1][1] / sides[0][1]:.2f})", flush=True
    )


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("programs", nargs="*", metavar="NAME=IOTHUB", default=[f"this={IOTHUB}"])
    options.add_argument("--pause", type=float, default=0.0, metavar="MS", help="before each message")
    options.add_argument("--messages", type=int, default=10_000, help="of each hub and side")
    asked = options.parse_args()
    programs = dict(word.split("=", 1) for word in asked.programs)
    block = _BLOCK if not asked.pause else max(10, min(_BLOCK, int(500 / asked.pause)))
    with ExitStack() as stack:
        hubs = {name: stack.enter_context(_running(program)) for name, program in programs.items()}
        for number in range(max(1, asked.messages // block) + 1):
            for measured in list(hubs.values())[:: 1 if number % 2 else -1]:
                for side in (0, 1):
                    measured.run(side, 10, 0.0, counts=False)
                    measured.run(side, block, asked.pause / 1000, counts=number > 0)
        for name, measured in hubs.items():
            _shown(name, measured)
    return 0


if __name__ == "__main__":
    sys.exit(main())
