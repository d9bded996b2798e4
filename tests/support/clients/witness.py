"""A pair of well-behaved clients that play QoS 1 ping-pong while others misbehave, and what a process costs meanwhile.

Knows no abuse; it only says how the innocent fared. Time in which hub or witness were ready to run and the machine ran somebody
else is not held against the hub: the kernel counts it (`schedstat`).
"""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType

from tests.support.clients.packets import PUBACK, PUBLISH
from tests.support.clients.raw import RawClient
from tests.support.hubs.hub import Hub
from tests.support.night import by_day
from tests.support.waiting import PATIENCE_S

PAUSE_S = 0.02
LIMIT_S = by_day(PATIENCE_S, 1.0)  # by day they are served all the time; how soon is measured at night


class Witness:
    """Use as a context manager: leaving it fails the test when a round trip took too long or the hub closed us."""

    def __init__(self, hub: Hub, name: str = "witness", limit_s: float = LIMIT_S) -> None:
        assert hub.process is not None
        self._begin(hub.process.pid, hub.ports["tcp"], name, limit_s)

    @classmethod
    def of(cls, pid: int, port: int) -> Witness:
        """Watch a hub that another process started."""
        witness = cls.__new__(cls)
        witness._begin(pid, port, "witness", LIMIT_S)
        return witness

    def _begin(self, pid: int, port: int, name: str, limit_s: float) -> None:
        self.limit_s = limit_s
        self._pid = pid
        self.worst_s = 0.0
        self.rounds = 0
        self._error: Exception | None = None
        self._is_over = threading.Event()
        self._name = name
        self._pair = (RawClient(port, 4), RawClient(port, 5))
        for number, client in enumerate(self._pair):
            client.connect(f"{name}-{number}", "acme/dev1")
            client.subscribe((f"{name}/{number}", 1))
        self._thread = threading.Thread(target=self._play)

    def __enter__(self) -> Witness:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        self._is_over.set()
        self._thread.join()
        for client in self._pair:
            client.close()
        if kind is None:
            assert self._error is None, f"the witness failed after {self.rounds} rounds: {self._error!r}"
            assert self.rounds > 0
            assert self.worst_s < self.limit_s, f"a witness round trip took {self.worst_s:.2f} s"

    def _play(self) -> None:
        try:
            while not self._is_over.is_set() or not self.rounds:
                begun, starved = time.monotonic(), self._starved_s()
                for number in (0, 1):
                    self._pass_ball(self._pair[number], self._pair[1 - number], 1 - number)
                took = time.monotonic() - begun - (self._starved_s() - starved)
                self.worst_s = max(self.worst_s, took)
                self.rounds += 1
                self._is_over.wait(PAUSE_S)
        except (AssertionError, OSError) as error:
            self._error = error

    def _starved_s(self) -> float:
        """How long the hub's main thread and this thread have waited for a processor."""
        return waited_s(self._pid, self._pid) + waited_s(os.getpid(), threading.get_native_id())

    def _pass_ball(self, sender: RawClient, receiver: RawClient, number: int) -> None:
        ball = str(self.rounds).encode()
        sender.send(sender.publish_bytes(f"{self._name}/{number}", ball, 1, self.rounds % 65535 + 1))
        found = receiver.expect(PUBLISH)
        receiver.ack(PUBACK, found.packet_id)
        sender.expect(PUBACK)
        assert found.payload == ball


class DistantWitness:
    """A witness in a process of its own: beside a load that keeps the test's own interpreter busy."""

    def __init__(self, hub: Hub) -> None:
        assert hub.process is not None
        self._words = [
            sys.executable,
            "-m",
            "tests.support.clients.witness",
            str(hub.process.pid),
            str(hub.ports["tcp"]),
        ]

    def __enter__(self) -> DistantWitness:
        root = Path(__file__).parents[3]
        self._process = subprocess.Popen(
            self._words, cwd=root, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline() == "ready\n"
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _where: TracebackType | None
    ) -> None:
        said, _ = self._process.communicate(timeout=PATIENCE_S)
        if kind is None:
            assert self._process.returncode == 0, said


def main(pid: str, port: str) -> None:
    """Watch until standard input ends."""
    with Witness.of(int(pid), int(port)):
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        sys.stdin.read()


def waited_s(pid: int, thread: int) -> float:
    """Time that a thread was runnable and not running."""
    return int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[1]) / 1e9


def rss_bytes(pid: int) -> int:
    """Resident memory of a process."""
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def cpu_s(pid: int) -> float:
    """Processor time that the threads of a process have used, to the nanosecond (`stat` counts ticks of 10 ms)."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def open_files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))


if __name__ == "__main__":
    main(*sys.argv[1:])
