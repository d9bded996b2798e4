"""`iothub.jobs.process`: a process is known by more than its number, and ends with all that it has started."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from iothub.jobs import process

SLEEPER = "import time; time.sleep(600)"


def test_this_process_lives_here() -> None:
    owner = process.this_process()

    assert owner.pid == os.getpid()
    assert process.is_here(owner.process)
    assert process.lives(owner.process)


def test_ended_process_is_gone_also_before_it_is_reaped() -> None:
    """A zombie works no more."""
    child = subprocess.Popen([sys.executable, "-c", SLEEPER])
    name = process.name_of(child.pid)
    assert name is not None
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)

    assert not process.lives(name)
    child.wait()
    assert process.name_of(child.pid) is None


def test_successor_with_the_same_number_is_another_process() -> None:
    """The start time tells them apart."""
    name = process.this_process().process
    other = f"{name.rpartition('/')[0]}/1"

    assert process.is_here(other)
    assert not process.lives(other)


def test_process_elsewhere_is_not_here() -> None:
    """Another machine, another boot, or another container."""
    name = process.this_process().process
    for part, word in ((0, "elsewhere"), (1, "b00t"), (2, "pid:[1]")):
        parts = name.split("/")
        parts[part] = word
        assert not process.is_here("/".join(parts))


def test_ending_a_session_takes_what_was_started_in_it(tmp_path: Path) -> None:
    """Also what has made a process group of its own, as Spark's workers do, and what ignores SIGTERM."""
    program = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        f"child = subprocess.Popen([sys.executable, '-c', {SLEEPER!r}], process_group=0)\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    leader = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, start_new_session=True)
    assert leader.stdout is not None
    worker = process.name_of(int(leader.stdout.readline()))
    assert worker is not None

    process.end_session(leader.pid, grace_s=0.1)

    assert leader.wait(10) == -9
    assert not process.lives(worker)
    leader.stdout.close()
