"""A program that looks like a server's JVM from outside: it prints `ready` and stays, or does what its words say. Knows no server."""

from __future__ import annotations

import sys
from pathlib import Path

_SOURCE = """#!{python} -S
import signal, subprocess, sys, time
signal.signal(signal.SIGINT, signal.SIG_DFL)  # what a shell starts in the background ignores it; PostgreSQL does not
if "deaf" in sys.argv:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
if "parent" in sys.argv:
    print(subprocess.Popen(["sleep", "60"]).pid, flush=True)
print("ready", flush=True)
if "brief" in sys.argv:
    print("this is the last line", flush=True)
    sys.exit(1)
time.sleep(60)
"""


def make_stand_in(folder: Path) -> str:
    """Write the program; it takes the place of `java`."""
    path = folder / "java"
    path.write_text(_SOURCE.format(python=sys.executable))
    path.chmod(0o755)
    return str(path)
