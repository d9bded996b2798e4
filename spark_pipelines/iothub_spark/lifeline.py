"""A job ends with the process that started it, however that one ended: kill -9 included.

Knows no job. The starting process keeps the other end of standard input open and never writes; when it is gone, reading ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress


def hold(descriptor: int = 0) -> None:
    """End this process, and all of its process group, as soon as nobody holds the other end of `descriptor` any more."""
    threading.Thread(target=wait_for_end, args=(descriptor, end_group), name="lifeline", daemon=True).start()


def wait_for_end(descriptor: int, end: Callable[[], None]) -> None:
    """Block until the other end is closed, then call `end`."""
    try:
        while os.read(descriptor, 4096):
            pass
    except OSError:
        pass
    end()


def end_group() -> None:
    """Kill this process and its Java, where they have a group of their own; Spark's workers end when their Java does."""
    with suppress(OSError, ValueError):  # whoever is gone was, as a rule, the one who read this
        sys.stderr.write("whoever started this job is gone: it ends\n")
        sys.stderr.flush()
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpgrp(), signal.SIGKILL)
    os._exit(1)
