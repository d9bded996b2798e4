"""The first lines of the process `iothub`: signal handlers are set before anything else is loaded.

Loading `iothub.cli.main` takes a moment, and Ctrl-C must work meanwhile.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import time
from types import FrameType

_INTERRUPTED = 130


def main() -> None:
    """Run the command line of this process."""
    is_serving = "serve" in sys.argv[1:]
    signal.signal(signal.SIGINT, _stop_early if is_serving else _give_up)
    if is_serving:  # until the hub runs and has its own
        signal.signal(signal.SIGTERM, _stop_early)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a locale that lacks a character of an answer
    from iothub.base import gc_tuning, log_level

    log_level.program_began_at = time.monotonic()
    gc_tuning.relax()
    from iothub.cli.main import run

    log_level.is_command = True  # `serve` configures the log anew, by its settings
    log_level.is_debug = "--debug" in sys.argv[1:]
    if not is_serving:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.exit(run(sys.argv[1:]))


def _stop_early(_number: int, _frame: FrameType | None) -> None:
    """Nothing was promised to anybody yet: leave as after a clean stop."""
    what = "the API" if "admin" in sys.argv[1:] else "the hub"  # `admin serve`, perhaps beside a hub that is ready
    _leave(f"iothub: stopped before {what} was ready\n", 0)


def _give_up(_number: int, _frame: FrameType | None) -> None:
    _leave("iothub: interrupted; nothing was changed\n", _INTERRUPTED)


def _leave(line: str, code: int) -> None:
    """An exception would not do: a signal may come in a callback whose exceptions Python ignores."""
    os.write(2, line.encode())
    os._exit(code)
