"""A child of a supervisor that serves nobody: `python supervised_child.py DIRECTORY --as-worker K | --store-process`.

It writes what happens to it into `DIRECTORY/events`, a line each. `DIRECTORY/refuse-NAME` holds the text with which it refuses to start,
`DIRECTORY/ignore-NAME` lets it ignore SIGTERM, `DIRECTORY/wait-NAME` lets it never be ready, `DIRECTORY/kill-NAME` says
how many of its processes are killed before they are ready, and `DIRECTORY/finish-NAME` lets it end once as a
worker that the other hubs go on without. `DIRECTORY/drain-NAME` holds "begin" or "end": it says that its drain does.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from iothub.base.errors import ConfigError
from iothub.hub.workers import supervised

BEAT_S = 0.2  # more often than a supervisor looks, on the busiest machine


def main() -> int:
    supervised.BEAT_S = BEAT_S
    supervised.begin()
    is_draining = supervised.DRAINING in sys.argv
    directory, option, *number = [word for word in sys.argv[1:] if word != supervised.DRAINING]
    place = Path(directory)
    name = "store" if option == "--store-process" else f"w{number[0]}"
    report = supervised.Reporter()

    def note(what: str) -> None:
        with (place / "events").open("a") as events:
            events.write(f"{name} {what} {os.getpid()}\n")

    def stop(*_: object) -> None:
        note("stopped")
        os._exit(0)

    note("begun")
    refusal = place / f"refuse-{name}"
    if refusal.exists():
        error = ConfigError(refusal.read_text())
        error.details = ("and a detail",)
        report.failed(error)
        return error.exit_code
    kill = place / f"kill-{name}"
    if kill.exists() and (left := int(kill.read_text())):
        kill.write_text(str(left - 1))
        os.kill(os.getpid(), signal.SIGKILL)
    signal.signal(signal.SIGTERM, signal.SIG_IGN if (place / f"ignore-{name}").exists() else stop)
    signal.signal(signal.SIGHUP, lambda *_: note("reloaded"))
    if name != "store":
        threading.Thread(target=_note_news, args=(note,), daemon=True).start()
    if (place / f"wait-{name}").exists():
        note("waits")
    while (place / f"wait-{name}").exists():
        time.sleep(BEAT_S)
    note("ready-draining" if is_draining else "ready")
    report.ready()
    while True:
        time.sleep(BEAT_S)
        drain = place / f"drain-{name}"
        if drain.exists():
            report.drains(drain.read_text() == "begin")
            drain.unlink()
            note("drain-said")
        if (place / f"finish-{name}").exists():
            (place / f"finish-{name}").unlink()
            os._exit(supervised.BEGINS_AGAIN)
        report.beat()


def _note_news(note: Callable[[str], None]) -> None:
    with open(supervised.NEWS, closefd=False) as news:
        for line in news:
            note("store-away" if json.loads(line) else "store-back")


if __name__ == "__main__":
    sys.exit(main())
