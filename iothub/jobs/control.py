"""Starts a run in a process that outlives whoever asks for it, and ends a run of this machine.

Knows no job: the process is `iothub job run`, which has the lease and writes the row of the run.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO

from iothub.base.errors import ConfigError, ConflictError, DeniedError, IotHubError, UnavailableError
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.job_runs import Result, Run
from iothub_tenants.accounts.store import AccountStore

START_S = 60.0  # from the start of a process to its row: it checks its packages and Java before
_TURN_S = 0.1
_RECENT = 5  # runs among which one that has ended already is looked for
_TEXT_BYTES = 4096
_BY_CODE: dict[int, type[IotHubError]] = {
    kind.exit_code: kind for kind in (ConfigError, ConflictError, UnavailableError)
}


def start_run(
    store: AccountStore, command: Sequence[str], job: str, pause: Callable[[float], None] = time.sleep
) -> Run:
    """Start `command`, which runs a job, in a session of its own; return its run as soon as its row is there.

    Raises:
        ConfigError, ConflictError, UnavailableError: It ended before that; the text is its own.
    """
    with tempfile.TemporaryFile() as said:
        try:
            process = subprocess.Popen(  # noqa: S603  our own program
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said, start_new_session=True
            )
        except OSError as error:
            raise UnavailableError(f"{command[0]}: cannot be started: {error.strerror}") from None
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            has_ended = process.poll() is not None  # asked first: a row that it wrote before its end is found below
            found = _run_of(store, job, process.pid)
            if found is not None:
                threading.Thread(target=process.wait, daemon=True).start()  # nobody else takes its exit code
                return found
            if has_ended:
                raise _why(process.returncode, said)
            pause(_TURN_S)
        process.terminate()
        process.wait()
        raise UnavailableError(f"job {job} has not begun within {START_S:.0f} s and was stopped; try again")


def cancel_run(run: Run) -> None:
    """Ask the process of a run to end; it notes the run as interrupted.

    Raises:
        ConflictError: The run is not under way, or it is on another machine.
        DeniedError: The process belongs to another user.
    """
    if run.result is not Result.RUNNING:
        raise ConflictError(f"run {run.id} is not under way: its result is {run.result.value}")
    if run.owner.host != socket.gethostname():
        raise ConflictError(f"run {run.id} is on the machine {run.owner.host}: cancel it there")
    if not _is_job(run.owner.pid, run.job):
        raise ConflictError(f"run {run.id} has no process {run.owner.pid} any more; it is `died` within a minute")
    try:
        os.kill(run.owner.pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError:
        raise DeniedError(
            f"process {run.owner.pid} of run {run.id} belongs to another user: cancel it as that user"
        ) from None


def _run_of(store: AccountStore, job: str, pid: int) -> Run | None:
    host = socket.gethostname()
    for run in job_runs.history(store, job, _RECENT):
        if (run.owner.host, run.owner.pid) == (host, pid):
            return run
    return None


def _why(code: int, said: IO[bytes]) -> IotHubError:
    """Return the error that the process ended with: what it said last."""
    size = said.seek(0, os.SEEK_END)
    said.seek(max(0, size - _TEXT_BYTES))
    lines = said.read().decode("utf-8", "replace").strip().splitlines()
    text = lines[-1].removeprefix("iothub: ") if lines else f"its process ended with exit code {code}"
    return _BY_CODE.get(code, UnavailableError)(text)


def _is_job(pid: int, job: str) -> bool:
    """Whether the process still is one of this job: a number may be another's by now."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:
        return False
    return b"job" in words and (job.encode() in words or b"--nightly" in words)
