"""Jobs as an operator starts them: real processes of the command, whose job is a fake program without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iothub.jobs import process
from tests.support.hub import IOTHUB, iothub

FAKE = Path(__file__).with_name("fake_job.py")
_END_S = 30.0


@dataclass
class JobHouse:
    """A data directory whose `spark.python` does the given steps, whatever job is asked for. `end` it, whatever happens."""

    data_dir: Path
    folder: Path
    started: list[subprocess.Popen[str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        java = self.folder / "java/bin/java"
        java.parent.mkdir(parents=True, exist_ok=True)
        java.write_text("")
        java.chmod(0o700)

    def does(self, *steps: str) -> None:
        """Say what the next jobs' processes do."""
        program = self.folder / "python"
        words = " ".join(f"'{word}'" for word in (sys.executable, str(FAKE), *steps))
        written = program.with_name("python.new")
        asked = f'[ "$1" = -c ] && exec \'{sys.executable}\' "$@"\n'  # what it has
        written.write_text(f"#!/bin/sh\n{asked}exec {words}\n")
        written.chmod(0o700)
        written.replace(program)

    @property
    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            "JAVA_HOME": str(self.folder / "java"),
            "IOTHUB_SPARK__PYTHON": str(self.folder / "python"),
        }

    def command(self, *words: str) -> list[str]:
        return [str(IOTHUB), "--data-dir", str(self.data_dir), "job", *words]

    def start(self, *words: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        running = subprocess.Popen(self.command(*words), env=self.environment, stdout=pipe, stderr=pipe, text=True)
        self.started.append(running)
        return running

    def end(self) -> None:
        """End what a test that failed has left: the runs, politely first, then the processes that they looked after."""
        for running in self.started:
            running.terminate()
            try:
                running.wait(_END_S)
            except subprocess.TimeoutExpired:
                running.kill()
                running.wait()
            for pipe in (running.stdout, running.stderr):
                if pipe is not None:
                    pipe.close()
        for note in self.data_dir.glob("jobs/run-*/process"):
            with suppress(OSError, ValueError):
                name = note.read_text()
                if process.lives(name):
                    process.kill_session(int(name.split("/")[-2]))

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return iothub(self.data_dir, "job", *words, check=False, environment=self.environment)

    def history(self) -> list[dict[str, Any]]:
        return list(json.loads(self.run("history", "-o", "json").stdout))
