"""What the session directory costs: `PYTHONPATH=. python tests/bench/bench_directory.py`.

Three hubs in one process and one reactor over Unix sockets, so a CONNECT of one waits for the others' work. A take-over is from HOLD at the hub to
which the client comes until it has the Client Identifier, the client at the other hub being closed at once.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import quantiles
from time import perf_counter

from iothub.testing.reactor_thread import ReactorThread
from tests.support.in_process.directories_on_sockets import DirectoryHub, linked_hubs

_TAKE_OVERS = 500
_STORM = 5_000
_ENTRIES = 20_000
_AT_ONCE = 100


def _take_overs(hubs: Sequence[DirectoryHub], count: int) -> list[float]:
    """Move a client round the hubs, one time after the other; return the milliseconds of each."""
    taken: list[float] = []
    reactor = hubs[0].thread.reactor

    def move(number: int) -> None:
        began = perf_counter()

        def moved() -> None:
            taken.append((perf_counter() - began) * 1e3)
            if len(taken) < count:
                reactor.callLater(0, partial(move, number + 1))

        hubs[number % len(hubs)].connect((1, f"client-{number // 50}"), moved)

    hubs[0].thread.call(partial(move, 0))
    hubs[0].thread.until(lambda: len(taken) == count)
    return taken


def _storm(hubs: Sequence[DirectoryHub]) -> tuple[float, list[float]]:
    """Connect many other clients, each hub some at a time, and move one meanwhile; return the seconds and the take-overs' milliseconds."""
    done = 0
    started = [0] * len(hubs)

    def connect(at: int) -> None:
        started[at] += 1
        if started[at] <= _STORM // len(hubs):
            hubs[at].connect((1, f"storm-{at}-{started[at]}"), partial(connected, at))

    def connected(at: int) -> None:
        nonlocal done
        done += 1
        hubs[at].thread.reactor.callLater(0, partial(connect, at))

    began = perf_counter()
    for at in range(len(hubs)):
        hubs[at].thread.call(lambda at=at: [connect(at) for _ in range(_AT_ONCE)])  # type: ignore[misc]
    taken = _take_overs(hubs, 20)
    hubs[0].thread.until(lambda: done == _STORM // len(hubs) * len(hubs))
    return perf_counter() - began, taken


def _view_change(hubs: Sequence[DirectoryHub]) -> float:
    """Let hubs that were alone, with many clients each, see each other; return the seconds until a moved key is granted."""
    for hub in hubs:
        hub.see(hub.id)
        hub.connected.clear()
        hub.connected.update((1, f"{hub.id.node}-{number}") for number in range(_ENTRIES))
    began = perf_counter()
    for hub in hubs:
        hub.see(*(each.id for each in hubs))
    done: list[bool] = []
    hubs[0].thread.call(lambda: hubs[0].connect((1, f"{hubs[1].id.node}-1"), lambda: done.append(True)))
    hubs[0].thread.until(lambda: done)
    return perf_counter() - began


def _shown(milliseconds: Sequence[float]) -> str:
    parts = quantiles(milliseconds, n=100)
    return f"p50 {parts[49]:.2f} ms, p99 {parts[98]:.2f} ms"


def main() -> None:
    with tempfile.TemporaryDirectory() as path, ReactorThread() as thread:
        hubs = linked_hubs("compiled", thread, 3, Path(path))
        for hub in hubs:
            hub.see(*(each.id for each in hubs))
        print(f"take-over between two hubs: {_shown(_take_overs(hubs[:2], _TAKE_OVERS))}")
        seconds, taken = _storm(hubs)
        print(f"{_STORM} CONNECTs at three hubs: {seconds:.2f} s; take-over meanwhile: {_shown(taken)}")
        print(f"view change with {_ENTRIES} entries at each of three hubs: {_view_change(hubs):.2f} s")
        for hub in hubs:
            hub.close()


if __name__ == "__main__":
    main()
