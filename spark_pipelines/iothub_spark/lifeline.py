"""A job ends with the process that started it, however that one ended: kill -9 included.

Knows no job. The starting process keeps the other end of standard input open and never writes; when it is gone, reading ends.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import suppress


def hold(descriptor: int = 0) -> None:
    """Kill this process, with the process group that it leads, as soon as nobody holds the other end of `descriptor` any more."""
    threading.Thread(target=_end_with, args=(descriptor,), name="lifeline", daemon=True).start()


def _end_with(descriptor: int) -> None:
    with suppress(OSError):
        while os.read(descriptor, 4096):
            pass
    with suppress(ProcessLookupError):  # not the leader: the group is somebody else's
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
