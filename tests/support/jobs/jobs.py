"""Jobs as an operator starts them: real processes of the command, whose job is a fake program without Spark."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.store import AccountStore
from tests.support.hubs.hub import IOTHUB, iothub
from tests.support.jobs.job_leases import let_expire

FAKE = Path(__file__).with_name("fake_job.py")
_END_S = 30.0


@dataclass
class JobHarness:
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
        """End the runs that a test has left, politely first; their processes end with them."""
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

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return iothub(self.data_dir, "job", *words, check=False, environment=self.environment)

    def history(self) -> list[dict[str, Any]]:
        return list(json.loads(self.run("history", "-o", "json").stdout))

    def let_lease_expire(self) -> None:
        """Do as if the run under way had written no heartbeat for a minute."""
        with closing(AccountStore(sqlite_url(self.data_dir / "accounts.db"))) as store:
            (run,) = job_runs.running(store)
            let_expire(store, run.id)
