"""A job's process without Spark: it says what its arguments tell it to.

Run as a program; knows nothing of ours but how a job ends with whoever started it. Steps, one per argument:
`stage:NAME:DONE:OF`, `note:TEXT`, `done:JSON`, `failed:KIND:TEXT`; `noise:TEXT` (no JSON), `long:COUNT` (so many characters on a line),
`error:TEXT` (standard error); `touch:FILE`, `until:FILE` (wait for it), `forever`; `stubborn` (ignore SIGTERM), `java:FILE` (start a process that
notes its id there and stays), `pid:FILE` (note its own id there), `kill` (kill -9 itself),
`exit:CODE`.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from iothub_spark import lifeline


def say(**fields: object) -> None:
    sys.stdout.write(json.dumps(fields) + "\n")
    sys.stdout.flush()


def _until(file: str) -> None:
    while not Path(file).exists():
        time.sleep(0.02)


def _java(file: str) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=False)
    Path(file).write_text(str(child.pid))


def _stage(words: str) -> None:
    name, done, of = words.split(":")
    say(event="stage", name=name, done=int(done), of=int(of), unit="records")


def _failed(words: str) -> None:
    kind, _, text = words.partition(":")
    say(event="failed", kind=kind, text=text)


def _error(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _exit(code: str) -> None:
    sys.exit(int(code))


def _noise(text: str) -> None:
    sys.stdout.write(text + "\n")


STEPS: dict[str, Callable[[str], object]] = {
    "stage": _stage,
    "note": lambda text: say(event="note", text=text),
    "done": lambda text: say(event="done", figures=json.loads(text)),
    "failed": _failed,
    "noise": _noise,
    "long": lambda count: _noise("{" * int(count)),
    "error": _error,
    "pid": lambda file: Path(file).write_text(str(os.getpid())),
    "touch": lambda file: Path(file).touch(),
    "until": _until,
    "forever": lambda _: _until("/nonexistent/file"),
    "stubborn": lambda _: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "java": _java,
    "kill": lambda _: os.kill(os.getpid(), signal.SIGKILL),
    "exit": _exit,
}


def main(steps: list[str]) -> None:
    lifeline.hold()
    for step in steps:
        name, _, words = step.partition(":")
        STEPS[name](words)


if __name__ == "__main__":
    main(sys.argv[1:])
