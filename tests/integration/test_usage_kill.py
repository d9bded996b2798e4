"""A day window survives kill -9 of a real process, to the unit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from iothub.base.clock import SystemClock
from iothub_services.quota.grammar import parse_limits
from iothub_services.quota.names import Quota
from iothub_services.quota.slots import SlotFile
from iothub_services.quota.usage import Usage, UsageStore
from iothub_services.quota.windows import DayCounter

ALLOWED, USED = 10_000_000, 54_321


def open_counter(path: Path) -> tuple[DayCounter, UsageStore, SlotFile]:
    """Open the data directory as a hub does."""
    clock = SystemClock()
    store, slots = UsageStore(path / "usage.db", clock, lambda name, text: None), SlotFile(path / "usage.map")
    quota = Quota.PUBLISH_MESSAGES
    windows = parse_limits(f"publish_messages={ALLOWED}/30d")[quota]
    return DayCounter(Usage(store, clock, slots), clock, (1, ""), quota, windows, lambda: None), store, slots


def test_calendar_window_survives_kill_9(tmp_path: Path) -> None:
    """Killed before any flush, the next process knows every unit; should the month turn meanwhile, everything is left."""
    command = [sys.executable, __file__, str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as victim:
        assert victim.stdout is not None
        assert victim.stdout.readline() == "used\n"
        os.kill(victim.pid, signal.SIGKILL)

    counter, store, slots = open_counter(tmp_path)
    left = counter.left()
    store.close()
    slots.close()

    assert left in (ALLOWED - USED, ALLOWED)


def live_until_killed(path: Path) -> None:
    """What the victim does."""
    counter, _store, _slots = open_counter(path)
    for _ in range(USED):
        counter.take(1)
    sys.stdout.write("used\n")
    sys.stdout.flush()
    sys.stdin.read()


if __name__ == "__main__":
    live_until_killed(Path(sys.argv[1]))
