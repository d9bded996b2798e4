"""iothub.jobs.control: a run that outlives whoever asks for it, and the end of one of this machine."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from iothub.base.errors import ConfigError, ConflictError, UnavailableError
from iothub.jobs.control import cancel_run, start_run
from iothub_tenants.accounts import job_runs
from iothub_tenants.accounts.database import sqlite_url
from iothub_tenants.accounts.initial import init_store
from iothub_tenants.accounts.job_runs import Owner, Result
from iothub_tenants.accounts.store import AccountStore

HERE = socket.gethostname()


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AccountStore]:
    with closing(init_store(sqlite_url(tmp_path / "accounts.db"), pepper=b"p" * 32)) as made:
        yield made


def ending(code: int, said: str = "") -> list[str]:
    return [sys.executable, "-c", f"import sys; sys.stderr.write({said!r}); sys.exit({code})"]


def test_run_is_returned_when_its_row_is_there(store: AccountStore) -> None:
    """The process goes on; it has a session of its own."""
    command = [sys.executable, "-c", "import signal; signal.pause()", "job", "usage"]
    asked: list[int] = []

    def begin(_seconds: float) -> None:
        children = Path(f"/proc/self/task/{os.getpid()}/children").read_text().split()
        asked.extend(int(each) for each in children if b"usage" in Path(f"/proc/{each}/cmdline").read_bytes())
        if asked:
            job_runs.begin(store, "usage", {}, Owner(HERE, asked[0], "me"))

    run = start_run(store, command, "usage", begin)
    try:
        assert (run.job, run.owner.pid) == ("usage", asked[0])
        assert os.getsid(run.owner.pid) == run.owner.pid
        cancel_run(run)
    finally:
        os.kill(run.owner.pid, signal.SIGTERM)


@pytest.mark.parametrize(
    ("code", "kind"), [(2, ConfigError), (4, ConflictError), (7, UnavailableError), (1, UnavailableError)]
)
def test_process_that_ends_before_says_why(store: AccountStore, code: int, kind: type[Exception]) -> None:
    with pytest.raises(kind, match=r"^no Java$"):
        start_run(store, ending(code, "warning\niothub: no Java\n"), "usage", lambda _: None)


def test_process_that_cannot_be_started_is_named(store: AccountStore) -> None:
    with pytest.raises(UnavailableError, match="/no/such: cannot be started"):
        start_run(store, ["/no/such"], "usage")


def test_run_that_is_over_or_elsewhere_is_not_cancelled(store: AccountStore) -> None:
    run = job_runs.begin(store, "usage", {}, Owner("elsewhere", 1, "me"))
    with pytest.raises(ConflictError, match="machine elsewhere"):
        cancel_run(run)
    job_runs.end(store, run.id, Result.DONE, figures={})

    with pytest.raises(ConflictError, match="result is done"):
        cancel_run(job_runs.show(store, run.id))


def test_process_that_is_another_by_now_is_left_alone(store: AccountStore) -> None:
    """Its number may have been given to somebody else."""
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        run = job_runs.begin(store, "usage", {}, Owner(HERE, other.pid, "me"))

        with pytest.raises(ConflictError, match="no process"):
            cancel_run(run)

        assert other.poll() is None
        other.communicate(b"\n")
