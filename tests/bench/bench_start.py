"""How long a hub takes from `iothub serve` until it takes connections, against the length of its session log, with and without a checkpoint.

`ONLY=start make bench` is this alone. By hand, on less: `.venv/bin/python tests/bench/bench_start.py --events 100000`.
Everything is in SQLite. The checkpoint is made by `iothub job run compact_events`, and `TAIL` events come after it; both sides have the same events
and queues and begin without session states (`state.db` is not there), as after the loss of it. The turns alternate.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from iothub.records.state import SessionState
from iothub.testing.clock import ManualClock
from iothub_services.events.sqlite.log import SCHEMA as EVENTS
from iothub_services.events.sqlite.log import SqliteEvents
from iothub_services.queues.port import QueueLimits
from iothub_services.queues.sqlite.schema import SCHEMA as QUEUES
from iothub_services.queues.sqlite.store import SqliteQueues
from iothub_services.sqlite.database import open_database
from iothub_services.state.memory.store import MemoryStates
from iothub_services.state.service import StateService
from tests.support.hubs.hub import IOTHUB, Hub, iothub
from tests.support.jobs.event_log import EventMill, append, make_log

SESSIONS_OF = 10  # events per session
TENANTS = 50
TAIL = 10_000
LIMIT_S = 900.0
HEAD = """
| events | sessions | without a checkpoint, s | with one and a tail of 10,000, s | times as long |
| --- | --- | --- | --- | --- |"""


def prepare(folder: Path, count: int) -> tuple[Path, Path, int]:
    """Make two data directories with the same sessions, without and with a checkpoint; return them, and how many sessions there are."""
    without, with_one = folder / "without", folder / "with"
    iothub(without, "init")
    for number in range(TENANTS):
        iothub(without, "tenant", "create", f"t{number + 1}")
    shutil.copytree(without, with_one)
    mill = EventMill(max(1, count // SESSIONS_OF), TENANTS)
    for each in (without, with_one):
        make_log(each / "events.db")
    events, tail = list(mill.events(count)), list(mill.events(TAIL))
    append(without / "events.db", [*events, *tail])
    append(with_one / "events.db", events)
    subprocess.run([IOTHUB, "--data-dir", with_one, "job", "run", "compact_events"], check=True, capture_output=True)
    append(with_one / "events.db", tail)
    states = living(without / "events.db")
    make_queues(without / "queues.db", states)
    shutil.copy(without / "queues.db", with_one)
    return without, with_one, len(states)


def living(log: Path) -> list[SessionState]:
    """Return the sessions that a log says."""
    with closing(SqliteEvents(open_database(log, EVENTS, ManualClock(), print))) as events:
        return StateService(events, MemoryStates(), lambda name, text: None).load()


def make_queues(path: Path, states: Sequence[SessionState]) -> None:
    """Give every session its queue, with the bounds that the hub would give it."""
    with closing(SqliteQueues(open_database(path, QUEUES, ManualClock(), print))) as queues, queues.group():
        for state in states:
            queues.create(state.tenant_id, state.queue_id, QueueLimits(), state.epoch)


def seconds_to_start(folder: Path) -> float:
    """Start the whole program on a copy of a data directory."""
    with tempfile.TemporaryDirectory() as name:
        hub = Hub(Path(shutil.copytree(folder, Path(name) / "hub")), is_whole=True)
        (hub.data_dir / "state.db").unlink(missing_ok=True)
        began = time.perf_counter()
        try:
            hub.start(LIMIT_S)
            return time.perf_counter() - began
        finally:
            hub.close()


def measure(count: int, turns: int) -> str:
    """Return a row of the table: the middle of the turns, and their range."""
    with tempfile.TemporaryDirectory() as name:
        without, with_one, sessions = prepare(Path(name), count)
        pairs = [(seconds_to_start(without), seconds_to_start(with_one)) for _ in range(turns)]
    columns = [*zip(*pairs, strict=True), [slow / fast for slow, fast in pairs]]
    cells = [f"{statistics.median(each):.1f} ({min(each):.1f}-{max(each):.1f})" for each in columns]
    return f"| {count + TAIL:,} | {sessions:,} | {' | '.join(cells)} |"


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--events", type=int, nargs="+", default=[100_000, 1_000_000])
    parser.add_argument("--turns", type=int, default=2)
    given = parser.parse_args(arguments)
    print(f"load average {os.getloadavg()[0]:.1f}, {os.cpu_count()} cores", HEAD, sep="\n", flush=True)
    for count in given.events:
        print(measure(count, given.turns), flush=True)
    print(f"\nload average {os.getloadavg()[0]:.1f}")


if __name__ == "__main__":
    main()
