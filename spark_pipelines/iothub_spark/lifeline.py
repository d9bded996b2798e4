"""A job ends with the process that started it, however that one ended, and no later than the lease of its run.

Knows no job and no lease. The starting process keeps the other end of standard input open and writes lines there, each the time up to which this
process may go on. Reading ends when the starting process is gone, kill -9 included; the time passes when it stands still: it was stopped, or the
machine was suspended.

Invariant: the time is absolute and was taken before the lease was renewed, so no delay of reader or writer lets two runs work at once.
"""

from __future__ import annotations

import math
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress

_LOOK_S = 1.0  # how late an end can be noticed
_LINE_BYTES = 64


def boot_s() -> float:
    """Return seconds since the machine was started, those in which it was suspended included: other clocks of processes leave them out."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def hold(descriptor: int = 0) -> None:
    """Kill this process, with the process group that it leads, as soon as `wait_for_end` returns."""
    threading.Thread(target=_end_with, args=(descriptor,), name="lifeline", daemon=True).start()


def wait_for_end(descriptor: int, now_s: Callable[[], float] = boot_s, look_s: float = _LOOK_S) -> str:
    """Return why this process must end: nobody holds the other end of `descriptor`, or the time that was written there has passed."""
    until_s, begun = math.inf, b""
    while now_s() < until_s:
        if not select.select([descriptor], [], [], look_s)[0]:
            continue
        try:
            octets = os.read(descriptor, 4096)
        except OSError:
            octets = b""
        if not octets:
            return "the process that started this job is gone"
        *lines, begun = (begun + octets).split(b"\n")
        begun = begun[:_LINE_BYTES]  # a longer line is no time, whatever its beginning says
        for line in lines:
            until_s = int(line) / 1000 if line.isdigit() and len(line) < _LINE_BYTES else until_s
    return "the process that started this job renews its lease no more (it was stopped, or the machine was suspended)"


def _end_with(descriptor: int) -> None:
    why = wait_for_end(descriptor)
    with suppress(OSError, ValueError):  # nobody may read it any more
        sys.stderr.write(f"{why}: the job ends itself\n")
        sys.stderr.flush()
    with suppress(ProcessLookupError):  # not the leader: the group is somebody else's
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
